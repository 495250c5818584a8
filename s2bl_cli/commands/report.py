"""`s2bl report`: tables, figures and claims."""

from typing import Annotated

import typer

from s2bl_cli.commands.options import Force, Quiet, settings_as_flags
from s2bl_cli.console import Console
from s2bl_cli.registry import FORMATS
from s2bl_cli.reporting.settings import CLAIM_PANEL, ReportSettings

Scores = Annotated[
    list[str],
    typer.Argument(
        help="Scores from s2bl evaluate: files, globs or folders; for figures also histories and logs",
        metavar="SCORES",
        show_default=False,
    ),
]
Where = Annotated[
    list[str],
    typer.Option(
        "--where",
        help="Keep only these scores, such as rho=0.02,0.2; COLUMN!=VALUE drops them",
        metavar="COLUMN=VALUE",
    ),
]
Check = Annotated[
    list[str],
    typer.Option(
        "--check",
        help="Fail if this claim does not hold, such as 'wce-s2bl >= tips + 2' in percentage points",
        metavar="CLAIM",
        rich_help_panel=CLAIM_PANEL,
    ),
]
TextOutput = Annotated[str, typer.Option("-o", "--output", help="File to write (default: stdout)", metavar="FILE")]


@settings_as_flags()
def report(
    scores: Scores,
    settings: ReportSettings,
    where: Where = [],  # noqa: B006 (typer reads the default and copies it)
    check: Check = [],  # noqa: B006
    output: TextOutput = "-",
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Make tables and figures of scores.

    One row per dataset, τ and ρ, one column per method, mean ± standard deviation over seeds, the best in bold, the
    second underlined. --check and --baseline test claims about the scores.

    Examples:
    s2bl report scores.parquet
    s2bl report scores/ --metric sampled-accuracy --format latex -o table.tex
    s2bl report scores/ --plot figure.svg --check 'wce-s2bl > tips'
    """
    from s2bl_cli.contract.atomic import STANDARD_STREAM, atomic_output, check_output
    from s2bl_cli.contract.text_output import write_text
    from s2bl_cli.reporting.make_report import ReportRequest, make_report

    console = Console(quiet=quiet)
    request = ReportRequest(settings, tuple(where), tuple(check), output)
    for target in filter(None, (settings.plot, output if output != STANDARD_STREAM else None)):
        check_output(target, force=force)
    result = make_report(scores, request)
    text = FORMATS.load(request.form)(result) if result.tables else None
    for note in result.notes:
        console.warn(note)
    if settings.plot is not None:
        with atomic_output(settings.plot, force=force) as file:
            file.write(result.plot)
        console.say(f"{settings.plot}: figure {result.plot_name}")
    if text is not None:
        write_text(text, output, force=force)
    for verdict in result.claims:
        print_line = console.say if verdict.holds else console.warn
        print_line(f"{verdict.word}: {verdict.claim}: {verdict.details}")
    if not all(verdict.holds for verdict in result.claims):
        raise typer.Exit(1)
