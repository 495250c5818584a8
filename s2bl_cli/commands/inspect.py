"""`s2bl inspect`: say what a file is."""

from typing import Annotated

import typer

from s2bl_cli.commands.options import LOG_PANEL, RUN_PANEL, Json, console_of, settings_as_flags
from s2bl_cli.contract.logs.columns import LogColumns

FilesArgument = Annotated[
    list[str],
    typer.Argument(
        help="Logs (files, globs or folders, read as one log), policies, scores, histories or checkpoints; - for stdin",
        metavar="FILE",
        show_default=False,
    ),
]
NoProgress = Annotated[bool, typer.Option("--quiet", help="Print no progress", rich_help_panel=RUN_PANEL)]


@settings_as_flags(columns=LOG_PANEL)
def inspect(
    files: FilesArgument,
    columns: LogColumns,
    quiet: NoProgress = False,
    json: Json = False,
) -> None:
    """Describe a log, policy, scores or checkpoint file.

    The content decides what a file is. All of it is read, and every fault is reported. With --json, all logs are one
    JSON object, and each other file is one more, on its own line.

    Examples:
    s2bl inspect logs.parquet
    s2bl inspect clicks/ --context-columns 'x_*' --reward-column reward
    s2bl inspect policy.safetensors scores.parquet --json
    """
    from dataclasses import asdict

    from s2bl_cli.inspection.files import inspect_files
    from s2bl_cli.inspection.words import print_words

    console = console_of(quiet=quiet, as_json=json, output=None)
    found = inspect_files(files, columns, console)
    if not json:
        print_words(found)
    for facts in found:
        console.summary(asdict(facts))
