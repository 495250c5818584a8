"""Inputs and wishes in, a `Report` out: which tables and figures, and whether the claims hold."""

from collections.abc import Sequence
from pathlib import PurePath

import polars as pl

from s2bl_cli.contract.lineage import Step, command_lines
from s2bl_cli.contract.scores import read_scores
from s2bl_cli.errors import RunError, S2blError, SettingError, one_line
from s2bl_cli.registry import FIGURES, FORMATS, TABLES
from s2bl_cli.reporting.against import against_paper
from s2bl_cli.reporting.claims import Verdict, checked, compared_with_baseline, parsed_claim
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.figures.missing_ratio import has_fixed_known
from s2bl_cli.reporting.figures.style import SUFFIXES, drawing, inline_svg, saved
from s2bl_cli.reporting.grid import Wanted, parsed_group_by
from s2bl_cli.reporting.inputs import Inputs
from s2bl_cli.reporting.quantities import ACCURACIES, ESTIMATORS, quantity
from s2bl_cli.reporting.report import DrawnFigure, Report
from s2bl_cli.reporting.selection import check_metric, default_metric, is_reference, metrics_of, selected_scores
from s2bl_cli.reporting.settings import AUTO, PAPER, ClaimSettings, ReportSettings
from s2bl_cli.reporting.table import Table
from s2bl_cli.reporting.tables.ope import verdicts
from s2bl_cli.reporting.tables.regulariser_only import pairs

OPE = "ope"
HTML = "html"
MARKDOWN = "md"
_SUFFIXES = {"tex": "latex", "htm": "html", "markdown": "md"}
_LOG_FIGURES = ("propensities",)


def chosen_format(settings: ReportSettings, output: str) -> str:
    """The one asked for, else what the output's suffix says, else markdown."""
    suffix = PurePath(output).suffix.lower().removeprefix(".")
    guessed = _SUFFIXES.get(suffix, suffix)
    return settings.format or (guessed if guessed in FORMATS.names else MARKDOWN)


def checked_plot(plot: str) -> str:
    """The suffix of a figure's file."""
    suffix = PurePath(plot).suffix.lower().removeprefix(".")
    if suffix not in SUFFIXES:
        raise SettingError(f"--plot must end in {', '.join('.' + s for s in SUFFIXES)}, found {one_line(plot, 60)!r}")
    return suffix


def takes_foreign_logs(figure: str) -> bool:
    return figure in _LOG_FIGURES


def scores_of(inputs: Inputs, where: Sequence[str]) -> pl.DataFrame:
    if inputs.scores is None:
        raise SettingError("no scores are given, and a table is made of scores: s2bl evaluate makes them")
    return selected_scores(inputs.scores, where)


def make_tables(
    frame: pl.DataFrame, settings: ReportSettings, *, all_that_apply: bool = False
) -> tuple[list[Table], list[str]]:
    """The table that is asked for; with `all_that_apply` also the others that the scores can fill, and why one of them
    could not be made."""
    name = chosen_table(frame, settings)
    wanted = wanted_of(frame, settings, "main" if settings.against else name)
    tables = [against_paper(frame, wanted) if settings.against == PAPER else TABLES.load(name)(frame, wanted)]
    notes: list[str] = []
    if all_that_apply and settings.table == AUTO and settings.metric is None:
        there = metrics_of(frame.filter(~is_reference()))
        others = [(name, metric) for metric in ACCURACIES if metric in there and name != OPE]
        others += [(OPE, "")] if set(ESTIMATORS) & set(metrics_of(frame)) else []
        for other, metric in others:
            if (other, metric) != (name, wanted.metric) or settings.against:
                more = Wanted(metric, wanted.group_by, settings.significance)
                try:
                    tables.append(TABLES.load(other)(frame, more))
                except S2blError as error:
                    notes.append(f"No table {' of '.join(filter(None, (other, metric)))}: {error}")
    return tables, notes


def wanted_of(frame: pl.DataFrame, settings: ReportSettings, table: str) -> Wanted:
    metric = settings.metric or ("" if table == OPE else default_metric(frame))
    if settings.metric is not None:
        check_metric(frame, settings.metric)
    return Wanted(metric, parsed_group_by(settings.group_by), settings.significance)


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
    if not settings.group_by and has_fixed_known(frame, metric):
        return "missing-ratio"
    if len(methods) > 1 and set(pairs(methods)) == set(methods):
        return "regulariser-only"
    of_metric = learned.filter(pl.col("metric") == metric)
    return "full" if of_metric["model"].n_unique() > 1 else "main"


def make_claims(
    frame: pl.DataFrame, settings: ReportSettings, claims: ClaimSettings, checks: Sequence[str], where: Sequence[str]
) -> list[Verdict]:
    """Of one metric, in the rows of the table."""
    parsed = [parsed_claim(text) for text in checks]
    if not parsed and claims.baseline is None:
        return []
    name = chosen_table(frame, settings)
    if name == OPE:
        if settings.metric is None:
            raise SettingError("--check and --baseline compare one number: pass --metric, such as --metric dr")
        name = "main"
    wanted = wanted_of(frame, settings, name)
    table = TABLES.load(name)(frame, wanted)
    shown = quantity(wanted.metric)
    results = [verdict for claim in parsed for verdict in checked(claim, table, shown)]
    if claims.baseline is not None:
        old_scores, _ = read_scores([claims.baseline])
        old = selected_scores(old_scores, where)
        check_metric(old, wanted.metric)
        results += compared_with_baseline(table, TABLES.load(name)(old, wanted), shown, claims.tolerance)
    return results


def figure_data(inputs: Inputs, frame: pl.DataFrame | None, settings: ReportSettings) -> FigureData:
    metric = settings.metric or (default_metric(frame) if frame is not None else "")
    return FigureData(frame, metric, inputs.history, inputs.logs)


def draw_figure(name: str, data: FigureData, suffix: str) -> tuple[str, bytes]:
    """The figure's name and its file."""
    chosen = _first_that_applies(data) if name == AUTO else name
    figure: Figure = FIGURES.load(chosen)
    lacking = figure.lacks(data)
    if lacking is not None:
        raise SettingError(f"--figure {chosen} is drawn from {lacking}, and there are none here")
    with drawing():
        return chosen, saved(figure.draw(data), suffix)


def _first_that_applies(data: FigureData) -> str:
    """Histories and logs are given to be seen; else the figure that says most about the scores."""
    if data.history is not None:
        return "learning-curves"
    if data.logs:
        return "propensities"
    for name in ("missing-ratio", "known-rows", "estimates"):
        if FIGURES.load(name).lacks(data) is None and (name != "known-rows" or data.metric not in ESTIMATORS):
            return name
    raise SettingError("no figure can be drawn from these files: --figure names what each needs")


def page_figures(data: FigureData, wanted: str) -> tuple[list[DrawnFigure], list[str]]:
    """Every figure that applies, as parts of a page; and what to say where there are none."""
    drawn: list[DrawnFigure] = []
    notes: list[str] = []
    for name in FIGURES.names if wanted == AUTO else (wanted,):
        figure: Figure = FIGURES.load(name)
        if figure.lacks(data) is not None:
            continue
        try:
            with drawing():
                drawn.append(DrawnFigure(name, figure.title, inline_svg(figure.draw(data), name, figure.title)))
        except RunError as error:
            return [], [f"No figures: {error}"]
        except S2blError as error:
            notes.append(f"No figure {name}: {error}")
    return drawn, notes


def make_commands(lineages: Sequence[Step]) -> list[tuple[str, ...]]:
    """The commands that remake each scores file; files made alike are told once."""
    return list(dict.fromkeys(tuple(command_lines(step)) for step in lineages))


def assembled(
    tables: Sequence[Table],
    frame: pl.DataFrame,
    lineages: Sequence[Step],
    claims: Sequence[Verdict],
    figures: Sequence[DrawnFigure] = (),
    notes: Sequence[str] = (),
) -> Report:
    return Report(
        tuple(tables),
        tuple(figures),
        tuple(verdicts(frame)),
        tuple(make_commands(lineages)),
        tuple(claims),
        tuple(notes),
    )
