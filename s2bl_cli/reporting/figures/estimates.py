"""Values estimated from the log with their intervals, and the truth where the scores have it."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import polars as pl

from s2bl_cli.errors import SettingError
from s2bl_cli.reporting.figures.curves import need_scores, panel_title
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.figures.style import REFERENCE_COLOUR, legend_below, panels
from s2bl_cli.reporting.grid import TableRequest, row_keys
from s2bl_cli.reporting.keys import sorted_places
from s2bl_cli.reporting.quantities import ESTIMATORS, TRUE_RISK, short_title
from s2bl_cli.reporting.runs import Arranged, aggregated, arranged
from s2bl_cli.reporting.selection import metrics_of, of_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_PLACE = ("dataset", "tau", "rho")
_COLOUR = "#0072b2"
_TRUTH: dict[str, Any] = {
    "color": REFERENCE_COLOUR,
    "marker": "|",
    "markersize": 14,
    "markeredgewidth": 1.6,
    "linestyle": "",
}
_MOST_LINES = 40  # of a panel that can be read


def lacks(data: FigureData) -> str | None:
    if data.scores is None or data.scores.filter(pl.col("metric").is_in(list(ESTIMATORS))).is_empty():
        return "scores of estimators, such as ips or dr"
    return None


def draw(data: FigureData) -> "Drawing":
    """One panel per estimator with an axis of its own, one line per policy. Over seeds: the means of estimates, of
    ends, and of truths."""
    scores = need_scores(data.scores)
    metrics = [name for name in ESTIMATORS if name in metrics_of(scores)]
    truth = pl.when(pl.col("metric") == TRUE_RISK).then(-pl.col("value")).otherwise("value")
    shown = of_metrics(scores, [*metrics, TRUE_RISK]).with_columns(value=truth)
    table = arranged(shown, row_keys(shown, TableRequest(""), _PLACE))
    cells = cells_by_metric(table)
    places = sorted_places(table.runs, table.keys)
    lines = [(*place, column) for place in reversed(places) for column in reversed(table.titles)]
    lines = [line for line in lines if any(line in cells[metric] for metric in metrics)]
    if len(lines) > _MOST_LINES:
        raise SettingError(
            f"the figure would have {len(lines)} lines per panel, one per policy and log, and {_MOST_LINES} can be "
            f"read: choose with --where"
        )
    figure, axes = panels(len(metrics), height=0.9 + 0.3 * len(lines), what="panels, one per estimator,")
    labels = [_label(table, line, is_alone=len(places) == 1) for line in lines]
    for axis, metric in zip(axes, metrics, strict=True):
        for height, line in enumerate(lines):
            estimate, known_truth = cells[metric].get(line), cells[TRUE_RISK].get(line)
            if estimate is not None:
                _draw_estimate(axis, height, estimate)
            if known_truth is not None:
                axis.plot(known_truth["mean"], height, label="truth (− true risk)", zorder=1, **_TRUTH)
        axis.set_yticks(range(len(lines)), labels)
        axis.set_ylim(-0.6, len(lines) - 0.4)
        axis.set_xlabel("expected reward")
        axis.set_title(short_title(metric))
    legend_below(figure, axes)
    return figure


def cells_by_metric(table: Arranged) -> dict[str, dict[tuple[Any, ...], dict[str, Any]]]:
    """What is drawn on a line: by metric, row and column."""
    names = [*table.keys, "column"]
    cells: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = defaultdict(dict)
    for row in aggregated(table.runs, ["metric", *names]).iter_rows(named=True):
        cells[row["metric"]][tuple(row[name] for name in names)] = row
    return cells


def _draw_estimate(axis: "Axes", height: int, estimate: dict[str, Any]) -> None:
    """A lower bound alone reaches no further than the estimate on the other side."""
    value = estimate["mean"]
    ends = [value if estimate[name] is None else estimate[name] for name in ("low", "high")]
    axis.plot(ends, (height, height), color=_COLOUR, linewidth=2, solid_capstyle="butt")
    axis.plot(value, height, color=_COLOUR, marker="o", linestyle="", label="estimate and interval")


def _label(table: Arranged, line: tuple[Any, ...], *, is_alone: bool) -> str:
    """The policy, and its place where there are several."""
    title = table.titles[line[-1]]
    return title if is_alone else f"{title}\n{panel_title(table.keys, line[:-1])}"


FIGURE = Figure("Values estimated from the log with their intervals, against the truth; means over seeds", lacks, draw)
