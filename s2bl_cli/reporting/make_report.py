"""Make a report from files: choose tables and figures, check claims, and format the result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import PurePath
from typing import TypeVar

import polars as pl

from s2bl_cli.contract.document import KIND_HISTORY, KIND_LOGS
from s2bl_cli.contract.history import read_history_files
from s2bl_cli.contract.input_files import InputFile, open_inputs
from s2bl_cli.contract.lineage import Step, command_lines
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.parquet_files import read_document
from s2bl_cli.contract.scores import read_scores, read_scores_files
from s2bl_cli.errors import ContractError, RunError, S2blError, SettingError, one_line
from s2bl_cli.registry import FIGURES, FORMATS, TABLES
from s2bl_cli.reporting.against import against_paper
from s2bl_cli.reporting.claims import checked, compared_with_baseline, parsed_claim
from s2bl_cli.reporting.figures.curves import has_fixed_known
from s2bl_cli.reporting.figures.figure import SUFFIXES, FigureData, LogPropensities, drawing, inline_svg, saved
from s2bl_cli.reporting.quantities import ACCURACIES, Metric, quantity
from s2bl_cli.reporting.runs import share_makes_rows
from s2bl_cli.reporting.selection import (
    default_metric,
    has_estimates,
    is_reference,
    metrics_of,
    metrics_with_intervals,
    no_scores,
    of_metrics,
    selected_scores,
    trained,
    with_settings,
)
from s2bl_cli.reporting.settings import AUTO, ReportSettings
from s2bl_cli.reporting.table import Report, Table, Verdict
from s2bl_cli.reporting.tables.grid import check_group_by, regulariser_pairs
from s2bl_cli.reporting.tables.ope import verdicts

OPE = "ope"
HTML = "html"
MARKDOWN = "md"
_FORMATS_BY_SUFFIX = {**{name: name for name in FORMATS.names}, "tex": "latex", "htm": HTML, "markdown": MARKDOWN}

_Part = TypeVar("_Part")


@dataclass(frozen=True)
class ReportRequest:
    """The request: settings, filters, claims and output."""

    settings: ReportSettings
    where: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    output: str = "-"

    def __post_init__(self) -> None:
        plot, figure = self.settings.plot, self.settings.figure
        if self.settings.confident and not self.checks:
            raise SettingError("--confident needs --check: --check 'new > logging' --confident")
        if plot is None and figure != AUTO and not self.is_page:
            raise SettingError(f"--figure {figure} needs --plot FILE or --format html: other formats have no figures")
        if plot is not None and _suffix(plot) not in SUFFIXES:
            endings = ", ".join(f".{suffix}" for suffix in SUFFIXES)
            raise SettingError(f"--plot must end in {endings}, found {one_line(plot, 60)!r}")
        if plot is not None and plot == self.output:
            raise SettingError("--plot and -o name the same file: give them different names")

    @property
    def form(self) -> str:
        """The requested format, else that of the output's suffix, else markdown."""
        return self.settings.format or _FORMATS_BY_SUFFIX.get(_suffix(self.output), MARKDOWN)

    @property
    def is_page(self) -> bool:
        return self.form == HTML

    @property
    def has_figures(self) -> bool:
        return self.is_page or self.settings.plot is not None

    @property
    def has_claims(self) -> bool:
        return bool(self.checks) or self.settings.baseline is not None


def _suffix(name: str) -> str:
    return PurePath(name).suffix.lower().removeprefix(".")


def make_report(names: Sequence[str], request: ReportRequest) -> Report:
    """Read the files and make the whole report before anything is written. Without scores there are only figures."""
    settings = request.settings
    data, lineages = read_inputs(names, request)
    report = Report()
    if not data.scores.is_empty():
        report = report_of_scores(data, lineages, request)
    elif settings.plot is None or request.has_claims:
        raise SettingError("a table needs scores, but none were given: make them with s2bl evaluate")
    if settings.plot is None:
        return report
    figures = chosen_figures(settings.figure, data)
    if not figures:
        raise SettingError("no figure can be drawn from these files: choose one with --figure to see what it needs")
    with drawing():
        plot = saved(FIGURES.load(figures[0]).draw(data), _suffix(settings.plot))
    return replace(report, plot=plot, plot_name=figures[0])


def read_inputs(names: Sequence[str], request: ReportRequest) -> tuple[FigureData, list[Step]]:
    """The content of the files, and the lineages of the scores. The kind of a file is in its document.

    Histories and logs are only for figures. Without figures they are rejected as files of the wrong kind, or passed
    over in a folder, such as that of a sweep. A file without a document is read as a log of another tool, if the
    figure is one of logs.
    """
    settings = request.settings
    log_kinds = (KIND_LOGS, None) if settings.figure == "propensities" else (KIND_LOGS,)
    with open_inputs(names, folders=True) as files:
        kinds = [(file, (read_document(file) or {}).get("kind")) for file in files]
        histories = [file for file, kind in kinds if request.has_figures and kind == KIND_HISTORY]
        # A folder of a sweep has many logs: they are drawn only if they are asked for.
        asked = [file for file in files if file.folder is None or settings.figure == "propensities"]
        logs = [file for file, kind in kinds if request.has_figures and kind in log_kinds and file in asked]
        passed_over = [file for file, kind in kinds if file.folder is not None and kind in (KIND_LOGS, KIND_HISTORY)]
        others = [file for file in files if file not in (*histories, *logs, *passed_over)]
        table, lineages = read_scores_files(others) if others else (None, [])
        scores = no_scores() if table is None else selected_scores(table, request.where)
        history = with_settings(read_history_files(histories)[0]) if histories else pl.DataFrame()
        needs_metric = request.has_figures and not scores.is_empty()
        metric = settings.metric or (default_metric(scores) if needs_metric else "")
        return FigureData(scores, metric, history, tuple(map(_propensities, logs))), lineages


def _propensities(file: InputFile) -> LogPropensities:
    arrays = Log([file]).read(("propensity", "cost", "split"))
    train = ~arrays.is_test
    if not train.any():
        raise ContractError(f"{file.name}: it has no train rows, but the figure shows their propensities")
    return LogPropensities(file.base_name, arrays.propensity[train], arrays.known[train])


def report_of_scores(data: FigureData, lineages: Sequence[Step], request: ReportRequest) -> Report:
    """The requested table and the claims on it. A page also has the other tables and figures that fit."""
    frame, settings = data.scores, request.settings
    check_group_by(settings, frame.columns)
    name = chosen_table(frame, settings)
    claims = make_claims(frame, name, request) if request.has_claims else []
    tables = [against_paper(frame, settings) if settings.against else TABLES.load(name)(frame, settings)]
    figures: list[tuple[str, str]] = []
    notes: list[str] = []
    if request.is_page:
        tables += made_parts(other_tables(frame, name, settings), notes)
        figures = page_figures(data, settings.figure, notes)
    commands = dict.fromkeys(tuple(command_lines(step)) for step in lineages)  # once for files with the same lineage
    health = tuple(verdicts(frame))
    return Report(tuple(tables), tuple(figures), health, tuple(commands), tuple(claims), tuple(notes))


def made_parts(parts: Mapping[str, Callable[[], _Part]], notes: list[str]) -> list[_Part]:
    """The parts of a page that can be made. Notes explain why others cannot."""
    made: list[_Part] = []
    for name, make in parts.items():
        try:
            made.append(make())
        except S2blError as error:
            notes.append(f"No {name}: {error}")
    return made


def other_tables(frame: pl.DataFrame, name: str, settings: ReportSettings) -> dict[str, Callable[[], Table]]:
    """The other tables that fit the scores, unless --table chose one."""
    if settings.table != AUTO or settings.metric is not None:
        return {}
    shown = () if settings.against else (name, None if name == OPE else default_metric(frame))
    accuracies = [metric for metric in ACCURACIES if metric in metrics_of(trained(frame)) and name != OPE]
    others = [*((name, metric) for metric in accuracies), *([(OPE, None)] if has_estimates(frame) else [])]
    return {
        f"table {' of '.join(filter(None, other))}": partial(
            TABLES.load(other[0]), frame, replace(settings, metric=other[1])
        )
        for other in others
        if other != shown
    }


def chosen_table(frame: pl.DataFrame, settings: ReportSettings) -> str:
    """The requested table, else the first that fits: estimates without accuracies, a fixed number of known rows,
    regularisers with and without a risk, several models, and otherwise the main table."""
    if settings.table != AUTO:
        return settings.table
    learned = frame.filter(~is_reference())
    if learned.is_empty() or (settings.metric is None and not set(ACCURACIES) & set(metrics_of(learned))):
        return OPE if has_estimates(frame) else "main"
    metric = settings.metric or default_metric(frame)
    methods = learned["method"].unique().to_list()
    scores = of_metrics(learned, [metric])
    is_of_one_experiment = share_makes_rows(scores)
    if is_of_one_experiment and not settings.group_by and has_fixed_known(FigureData(frame, metric)):
        return "missing-ratio"
    if len(methods) > 1 and set(regulariser_pairs(methods)) == set(methods):
        return "regulariser-only"
    # A policy of another tool has no model; it stays in the rows of ours.
    return "full" if is_of_one_experiment and scores["model"].drop_nulls().n_unique() > 1 else "main"


def make_claims(frame: pl.DataFrame, name: str, request: ReportRequest) -> list[Verdict]:
    """Check the claims on one metric, in the rows of the table. Without --metric, a confident claim is on the first
    metric with an interval that all its methods have."""
    settings = request.settings
    is_open = name == OPE and settings.metric is None and settings.against is None
    if is_open and (settings.baseline is not None or not settings.confident):
        raise SettingError("--check and --baseline compare one number: pass --metric, such as --metric dr")
    layout = TABLES.load("main" if name == OPE else name)

    @cache
    def table_of(metric: str) -> tuple[Table, Metric]:
        return layout(frame, replace(settings, metric=metric)), quantity(metric)

    metrics = [settings.metric or default_metric(frame)]
    if settings.confident:
        metrics = [metric for metric in metrics_with_intervals(frame) if settings.metric in (metric, None)]
    if not metrics:
        raise SettingError(f"--confident needs an interval, and {settings.metric} has none: try --metric dr or snips")
    health = tuple(verdicts(frame))
    results = [
        verdict
        for text in request.checks
        for verdict in checked(parsed_claim(text, confident=settings.confident), map(table_of, metrics), health)
    ]
    if settings.baseline is not None:
        old = selected_scores(read_scores([settings.baseline])[0], request.where)
        table, shown = table_of(settings.metric or default_metric(frame))
        check_group_by(settings, old.columns)
        results += compared_with_baseline(
            table, layout(old, replace(settings, metric=shown.name)), shown, settings.tolerance
        )
    return results


def chosen_figures(asked: str, data: FigureData) -> list[str]:
    """The requested figure, else those that fit, the most informative first."""
    if asked == AUTO:
        return [name for name in FIGURES.names if FIGURES.load(name).applies(data)]
    figure = FIGURES.load(asked)
    if not figure.can_be_drawn(data):
        raise SettingError(f"--figure {asked} needs {figure.needs}, but these files have none")
    return [asked]


def page_figures(data: FigureData, asked: str, notes: list[str]) -> list[tuple[str, str]]:
    """Title and SVG of each figure."""
    names = chosen_figures(asked, data)
    try:
        with drawing():
            return made_parts({f"figure {name}": partial(_page_figure, name, data) for name in names}, notes)
    except RunError as error:
        notes.append(f"No figures: {error}")
        return []


def _page_figure(name: str, data: FigureData) -> tuple[str, str]:
    figure = FIGURES.load(name)
    return figure.title, inline_svg(figure.draw(data), name, figure.title)
