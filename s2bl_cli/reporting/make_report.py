"""Files and a request in, a report out: which tables and figures, in which form, and whether the claims hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import polars as pl

from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.scores import read_scores
from s2bl_cli.errors import RunError, S2blError, SettingError, one_line
from s2bl_cli.registry import FIGURES, FORMATS, TABLES
from s2bl_cli.reporting.against import against_paper
from s2bl_cli.reporting.claims import checked, compared_with_baseline
from s2bl_cli.reporting.figures.curves import has_fixed_known, has_several_points
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.figures.style import SUFFIXES, drawing, inline_svg, saved
from s2bl_cli.reporting.inputs import read_inputs
from s2bl_cli.reporting.quantities import ACCURACIES, ESTIMATORS, quantity
from s2bl_cli.reporting.runs import share_makes_rows
from s2bl_cli.reporting.selection import (
    default_metric,
    is_reference,
    metrics_of,
    of_metrics,
    selected_scores,
    trained,
)
from s2bl_cli.reporting.settings import AUTO, PAPER, ClaimSettings, FigureSettings, ReportSettings
from s2bl_cli.reporting.table import Report, Table, TableRequest, Verdict
from s2bl_cli.reporting.tables.grid import parsed_group_by, regulariser_pairs
from s2bl_cli.reporting.tables.ope import verdicts

OPE = "ope"
HTML = "html"
MARKDOWN = "md"
_SUFFIXES = {"tex": "latex", "htm": "html", "markdown": "md"}
_LOG_FIGURES = ("propensities",)
# Histories and logs are given to be seen; else the figure that says most about the scores.
_FIGURES_BY_PREFERENCE = ("learning-curves", "propensities", "missing-ratio", "known-rows", "estimates")


@dataclass(frozen=True)
class ReportRequest:
    """All that was asked for."""

    settings: ReportSettings
    figures: FigureSettings
    claims: ClaimSettings
    where: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    output: str = "-"

    def __post_init__(self) -> None:
        plot = self.figures.plot
        if plot is None and self.figures.figure != AUTO and not self.is_page:
            raise SettingError(
                f"--figure {self.figures.figure} goes with --plot FILE or --format html: nothing else shows figures"
            )
        if plot is not None and _suffix(plot) not in SUFFIXES:
            endings = ", ".join(f".{suffix}" for suffix in SUFFIXES)
            raise SettingError(f"--plot must end in {endings}, found {one_line(plot, 60)!r}")
        if plot is not None and plot == self.output:
            raise SettingError("--plot and -o name the same file: give each its own")

    @property
    def form(self) -> str:
        """The format that is asked for, else what the output's suffix says, else markdown."""
        suffix = _suffix(self.output)
        guessed = _SUFFIXES.get(suffix, suffix)
        return self.settings.format or (guessed if guessed in FORMATS.names else MARKDOWN)

    @property
    def is_page(self) -> bool:
        return self.form == HTML


def _suffix(name: str) -> str:
    return PurePath(name).suffix.lower().removeprefix(".")


@dataclass(frozen=True)
class ReportOutput:
    """What is to be written and printed. No scores, no text; no plot asked for, no figure."""

    text: str | None
    figure_name: str
    figure: bytes
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]


def make_report(names: Sequence[str], request: ReportRequest) -> ReportOutput:
    """Read the files and make all of it, before any of it is written."""
    settings, figures, claims = request.settings, request.figures, request.claims
    has_figures = request.is_page or figures.plot is not None
    data, lineages = read_inputs(
        names, request.where, with_figures=has_figures, with_logs=figures.figure in _LOG_FIGURES
    )
    frame = data.scores
    if frame.is_empty() and (figures.plot is None or request.checks or claims.baseline is not None):
        raise SettingError("no scores are given, and a table is made of scores: s2bl evaluate makes them")
    if has_figures and not frame.is_empty():
        data = replace(data, metric=settings.metric or default_metric(frame))
    report = Report()
    if not frame.is_empty():
        verdicts_on_claims = tuple(make_claims(frame, request))
        tables, notes = make_tables(frame, settings, all_that_apply=request.is_page)
        drawn, undrawn = page_figures(data, figures.figure) if request.is_page else ([], [])
        commands = dict.fromkeys(tuple(command_lines(step)) for step in lineages)  # once for files made alike
        health = tuple(verdicts(frame))
        report = Report(tuple(tables), tuple(drawn), health, tuple(commands), verdicts_on_claims, (*notes, *undrawn))
    text = FORMATS.load(request.form)(report) if report.tables else None
    name, file = ("", b"") if figures.plot is None else draw_figure(figures.figure, data, _suffix(figures.plot))
    return ReportOutput(text, name, file, report.claims, report.notes)


def make_tables(
    frame: pl.DataFrame, settings: ReportSettings, *, all_that_apply: bool = False
) -> tuple[list[Table], list[str]]:
    """The table that is asked for; with `all_that_apply` also the others that the scores can fill, and why one of them
    could not be made."""
    name = chosen_table(frame, settings)
    request = table_request(frame, settings, "main" if settings.against else name)
    tables = [against_paper(frame, request) if settings.against == PAPER else TABLES.load(name)(frame, request)]
    notes: list[str] = []
    if not all_that_apply or settings.table != AUTO or settings.metric is not None:
        return tables, notes
    others = [(name, metric) for metric in ACCURACIES if metric in metrics_of(trained(frame)) and name != OPE]
    others += [(OPE, "")] if set(ESTIMATORS) & set(metrics_of(frame)) else []
    for other, metric in others:
        if (other, metric) != (name, request.metric) or settings.against:
            try:
                tables.append(TABLES.load(other)(frame, replace(request, metric=metric)))
            except S2blError as error:
                notes.append(f"No table {' of '.join(filter(None, (other, metric)))}: {error}")
    return tables, notes


def table_request(frame: pl.DataFrame, settings: ReportSettings, table: str) -> TableRequest:
    metric = settings.metric or ("" if table == OPE else default_metric(frame))
    return TableRequest(metric, parsed_group_by(settings.group_by, frame.columns), settings.significance)


def chosen_table(frame: pl.DataFrame, settings: ReportSettings) -> str:
    """By what is in the scores: estimates alone, a fixed number of known rows with more and more missing ones,
    regularisers alone beside the whole, several models; else the main table."""
    if settings.table != AUTO:
        return settings.table
    learned = frame.filter(~is_reference())
    if learned.is_empty() or (settings.metric is None and not set(ACCURACIES) & set(metrics_of(learned))):
        return OPE if set(ESTIMATORS) & set(metrics_of(frame)) else "main"
    metric = settings.metric or default_metric(frame)
    methods = learned["method"].unique().to_list()
    scores = of_metrics(learned, [metric])
    is_of_one_experiment = share_makes_rows(scores)
    if is_of_one_experiment and not settings.group_by and has_fixed_known(FigureData(frame, metric)):
        return "missing-ratio"
    if len(methods) > 1 and set(regulariser_pairs(methods)) == set(methods):
        return "regulariser-only"
    return "full" if is_of_one_experiment and scores["model"].n_unique() > 1 else "main"


def make_claims(frame: pl.DataFrame, request: ReportRequest) -> list[Verdict]:
    """Of one metric, in the rows of the table."""
    settings, claims = request.settings, request.claims
    if not request.checks and claims.baseline is None:
        return []
    name = chosen_table(frame, settings)
    if name == OPE:
        if settings.metric is None:
            raise SettingError("--check and --baseline compare one number: pass --metric, such as --metric dr")
        name = "main"
    asked = table_request(frame, settings, name)
    table = TABLES.load(name)(frame, asked)
    shown = quantity(asked.metric)
    results = [verdict for claim in request.checks for verdict in checked(claim, table, shown)]
    if claims.baseline is not None:
        old = selected_scores(read_scores([claims.baseline])[0], request.where)
        parsed_group_by(settings.group_by, old.columns)
        results += compared_with_baseline(table, TABLES.load(name)(old, asked), shown, claims.tolerance)
    return results


def draw_figure(name: str, data: FigureData, suffix: str) -> tuple[str, bytes]:
    """The figure's name and its file."""
    suited = [figure for figure in _FIGURES_BY_PREFERENCE if is_suited(figure, data)]
    if name == AUTO and not suited:
        raise SettingError("no figure can be drawn from these files: --figure names what each needs")
    chosen = suited[0] if name == AUTO else name
    figure: Figure = FIGURES.load(chosen)
    if not figure.can_be_drawn(data):
        raise SettingError(f"--figure {chosen} is drawn from {figure.needs}, and there are none here")
    with drawing():
        return chosen, saved(figure.draw(data), suffix)


def is_suited(name: str, data: FigureData) -> bool:
    """Whether a figure is drawn unasked: a curve needs several points."""
    can_be_drawn: bool = FIGURES.load(name).can_be_drawn(data)
    return can_be_drawn and (name != "known-rows" or has_several_points(data))


def page_figures(data: FigureData, chosen: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Title and SVG of every figure that applies; and what to say where there are none."""
    names = [name for name in FIGURES.names if is_suited(name, data)] if chosen == AUTO else [chosen]
    drawn: list[tuple[str, str]] = []
    notes: list[str] = []
    for name in names:
        figure: Figure = FIGURES.load(name)
        if figure.can_be_drawn(data):
            try:
                with drawing():
                    drawn.append((figure.title, inline_svg(figure.draw(data), name, figure.title)))
            except RunError as error:
                return [], [f"No figures: {error}"]
            except S2blError as error:
                notes.append(f"No figure {name}: {error}")
    return drawn, notes
