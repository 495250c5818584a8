"""`s2bl inspect`: describe files."""

from typing import Annotated

import typer

from s2bl_cli.commands.options import LOG_PANEL, Json, Quiet, console_of, settings_as_flags
from s2bl_cli.contract.logs.columns import LogColumns

FilesArgument = Annotated[
    list[str],
    typer.Argument(
        help="Logs, policies, scores, histories or checkpoints: files, globs or folders; - for stdin",
        metavar="FILE",
        show_default=False,
    ),
]


@settings_as_flags(columns=LOG_PANEL)
def inspect(
    files: FilesArgument,
    columns: LogColumns,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Describe a log, policy, scores or checkpoint file.

    The kind of a file is determined by its content. Several logs are described as one log. The whole log is read, and
    all its faults are reported. --json prints one JSON object per line: one for all logs, then one per other file.

    Examples:
    s2bl inspect logs.parquet
    s2bl inspect clicks/ --context-columns 'x_*' --reward-column reward
    s2bl inspect policy.safetensors scores.parquet --json
    """
    from dataclasses import asdict

    from s2bl_cli.inspection.description import print_descriptions
    from s2bl_cli.inspection.files import inspect_files

    console = console_of(quiet=quiet, as_json=json, output=None)
    descriptions = inspect_files(files, columns, console)
    if not json:
        print_descriptions(descriptions)
    for facts in descriptions:
        console.summary(asdict(facts))
