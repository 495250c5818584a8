"""`s2bl report`: tables to paste, figures to read, claims to gate on."""

from typing import Annotated

import typer

from s2bl_cli.commands.options import Force, Quiet, settings_as_flags
from s2bl_cli.console import Console
from s2bl_cli.reporting.settings import AUTO, ClaimSettings, FigureSettings, ReportSettings

FIGURE_PANEL = "Figures"
CLAIM_PANEL = "Claims: exit code 1 where one fails"

Scores = Annotated[
    list[str],
    typer.Argument(
        help="scores files that s2bl evaluate made; for figures also histories and logs",
        metavar="SCORES",
        show_default=False,
    ),
]
Where = Annotated[
    list[str],
    typer.Option(
        "--where",
        help="keep only scores with COLUMN=VALUE, such as rho=0.02,0.2; COLUMN!=VALUE leaves out; may be repeated",
        metavar="COLUMN=VALUE",
    ),
]
Check = Annotated[
    list[str],
    typer.Option(
        "--check",
        help="a claim that must hold, such as 'wce-s2bl >= tips + 2' (points of percent); may be repeated",
        metavar="CLAIM",
        rich_help_panel=CLAIM_PANEL,
    ),
]
TextOutput = Annotated[str, typer.Option("-o", "--output", help="the file to write; - is stdout", metavar="FILE")]


@settings_as_flags(figures=FIGURE_PANEL, claims=CLAIM_PANEL)
def report(
    scores: Scores,
    settings: ReportSettings,
    figures: FigureSettings,
    claims: ClaimSettings,
    where: Where = [],  # noqa: B006 (typer reads the default and copies it)
    check: Check = [],  # noqa: B006
    output: TextOutput = "-",
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Make tables and figures of scores.

    One row a dataset, τ and ρ; one column a method; mean ± standard deviation over seeds; the best in bold, the second
    underlined. With --check and --baseline, whether claims hold.
    """
    from s2bl_cli.contract.atomic import STANDARD_STREAM, atomic_output, check_output
    from s2bl_cli.contract.text_output import write_text
    from s2bl_cli.errors import SettingError
    from s2bl_cli.registry import FORMATS
    from s2bl_cli.reporting import make_report
    from s2bl_cli.reporting.inputs import read_inputs

    console = Console(quiet=quiet)
    form = make_report.chosen_format(settings, output)
    is_page = form == make_report.HTML
    if figures.figure != AUTO and figures.plot is None and not is_page:
        raise SettingError(
            f"--figure {figures.figure} goes with --plot FILE or --format html: nothing else shows figures"
        )
    suffix = None if figures.plot is None else make_report.checked_plot(figures.plot)
    if figures.plot is not None:
        check_output(figures.plot, force=force)
        if figures.plot == output:
            raise SettingError("--plot and -o name the same file: give each its own")
    if output != STANDARD_STREAM:
        check_output(output, force=force)
    inputs = read_inputs(
        scores,
        with_figures=is_page or figures.plot is not None,
        with_logs=make_report.takes_foreign_logs(figures.figure),
    )
    has_table = inputs.scores is not None or figures.plot is None
    frame = make_report.scores_of(inputs, where) if has_table else None
    data = make_report.figure_data(inputs, frame, settings)
    text, verdicts = None, []
    if frame is not None:
        verdicts = make_report.make_claims(frame, settings, claims, check, where)
        tables, notes = make_report.make_tables(frame, settings, all_that_apply=is_page)
        drawn, undrawn = make_report.page_figures(data, figures.figure) if is_page else ([], [])
        notes += undrawn
        for note in notes:
            console.warn(note)
        text = FORMATS.load(form)(make_report.assembled(tables, frame, inputs.lineages, verdicts, drawn, notes))
    if figures.plot is not None and suffix is not None:
        name, file = make_report.draw_figure(figures.figure, data, suffix)
        with atomic_output(figures.plot, force=force) as target:
            target.write(file)
        console.say(f"{figures.plot}: figure {name}")
    if text is not None:
        write_text(text, output, force=force)
    for verdict in verdicts:
        if verdict.holds:
            console.say(f"holds: {verdict.claim}: {verdict.told}")
        else:
            console.warn(f"fails: {verdict.claim}: {verdict.told}")
    if not all(verdict.holds for verdict in verdicts):
        raise typer.Exit(1)
