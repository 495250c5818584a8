"""`s2bl report`: tables to paste."""

from typing import Annotated

import typer

from s2bl_cli.commands.options import Force, settings_as_flags
from s2bl_cli.reporting.settings import ReportSettings

Scores = Annotated[
    list[str], typer.Argument(help="scores files that s2bl evaluate made", metavar="SCORES", show_default=False)
]
Where = Annotated[
    list[str],
    typer.Option(
        "--where", help="keep only scores with COLUMN=VALUE, such as lam=0.1; may be repeated", metavar="COLUMN=VALUE"
    ),
]
MarkdownOutput = Annotated[
    str, typer.Option("-o", "--output", help="the markdown file to write; - is stdout", metavar="FILE")
]


@settings_as_flags()
def report(
    scores: Scores,
    settings: ReportSettings,
    where: Where = [],  # noqa: B006 (typer reads the default and copies it)
    output: MarkdownOutput = "-",
    force: Force = False,
) -> None:
    """Make a markdown table of scores.

    One row a dataset, τ and ρ; one column a method; mean ± standard deviation over seeds; the best in bold.
    """
    from s2bl_cli.contract.scores import read_scores
    from s2bl_cli.contract.text_output import write_text
    from s2bl_cli.registry import TABLES
    from s2bl_cli.reporting.markdown import markdown
    from s2bl_cli.reporting.selection import selected_scores

    table, _ = read_scores(scores)
    frame = selected_scores(table, (settings.metric, "sampled-accuracy"), where)
    write_text(markdown(TABLES.load(settings.table)(frame, settings.metric)), output, force=force)
