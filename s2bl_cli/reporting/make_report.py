"""Files and a request in, a report out: which tables and figures, in which form, and whether the claims hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import polars as pl

from s2bl_cli.contract.lineage import Step, command_lines
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

    @property
    def has_claims(self) -> bool:
        return bool(self.checks) or self.claims.baseline is not None


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
    figures = request.figures
    has_figures = request.is_page or figures.plot is not None
    data, lineages = read_inputs(
        names, request.where, with_figures=has_figures, with_logs=figures.figure in _LOG_FIGURES
    )
    report, text = Report(), None
    if not data.scores.is_empty():
        if has_figures:
            data = replace(data, metric=request.settings.metric or default_metric(data.scores))
        report = report_of_scores(data, lineages, request)
        text = FORMATS.load(request.form)(report)
    elif figures.plot is None or request.has_claims:
        raise SettingError("no scores are given, and a table is made of scores: s2bl evaluate makes them")
    name, file = ("", b"") if figures.plot is None else draw_figure(figures.figure, data, _suffix(figures.plot))
    return ReportOutput(text, name, file, report.claims, report.notes)


def report_of_scores(data: FigureData, lineages: Sequence[Step], request: ReportRequest) -> Report:
    """The table that is asked for, and claims on it; on a page also the other tables and the figures that apply."""
    frame, settings = data.scores, request.settings
    name = chosen_table(frame, settings)
    has_all_estimators = name == OPE and settings.against is None
    metric = settings.metric or ("" if has_all_estimators else default_metric(frame))
    asked = TableRequest(metric, parsed_group_by(settings.group_by, frame.columns), settings.significance)
    claims = make_claims(frame, name, asked, request) if request.has_claims else []
    tables = [against_paper(frame, asked) if settings.against == PAPER else TABLES.load(name)(frame, asked)]
    figures: list[tuple[str, str]] = []
    notes: list[str] = []
    if request.is_page:
        if settings.table == AUTO and settings.metric is None:
            shown = () if settings.against else (name, metric)
            others, notes = other_tables(frame, name, asked, shown)
            tables += others
        figures, undrawn = page_figures(data, request.figures.figure)
        notes += undrawn
    commands = dict.fromkeys(tuple(command_lines(step)) for step in lineages)  # once for files made alike
    health = tuple(verdicts(frame))
    return Report(tuple(tables), tuple(figures), health, tuple(commands), tuple(claims), tuple(notes))


def other_tables(
    frame: pl.DataFrame, name: str, asked: TableRequest, shown: tuple[str, ...]
) -> tuple[list[Table], list[str]]:
    """The tables that the scores can fill besides the one that is shown, and why one of them could not be made."""
    others = [(name, metric) for metric in ACCURACIES if metric in metrics_of(trained(frame)) and name != OPE]
    others += [(OPE, "")] if set(ESTIMATORS) & set(metrics_of(frame)) else []
    tables: list[Table] = []
    notes: list[str] = []
    for other, metric in others:
        if (other, metric) != shown:
            try:
                tables.append(TABLES.load(other)(frame, replace(asked, metric=metric)))
            except S2blError as error:
                notes.append(f"No table {' of '.join(filter(None, (other, metric)))}: {error}")
    return tables, notes


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


def make_claims(frame: pl.DataFrame, name: str, asked: TableRequest, request: ReportRequest) -> list[Verdict]:
    """Of one metric, in the rows of the table."""
    if not asked.metric:
        raise SettingError("--check and --baseline compare one number: pass --metric, such as --metric dr")
    build = TABLES.load("main" if name == OPE else name)
    table, shown = build(frame, asked), quantity(asked.metric)
    results = [verdict for claim in request.checks for verdict in checked(claim, table, shown)]
    if request.claims.baseline is not None:
        old = selected_scores(read_scores([request.claims.baseline])[0], request.where)
        parsed_group_by(request.settings.group_by, old.columns)
        results += compared_with_baseline(table, build(old, asked), shown, request.claims.tolerance)
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
    """Whether `auto` draws a figure: a curve needs several points."""
    can_be_drawn: bool = FIGURES.load(name).can_be_drawn(data)
    return can_be_drawn and (name != "known-rows" or has_several_points(data))


def page_figures(data: FigureData, chosen: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Title and SVG of every figure that applies, and notes on those that cannot be drawn."""
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
