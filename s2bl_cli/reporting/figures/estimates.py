"""Values estimated from the log with their intervals, and the true values if the scores have them."""

import polars as pl

from s2bl_cli.reporting.figures.curves import panel_title
from s2bl_cli.reporting.figures.figure import (
    REFERENCE_COLOUR,
    Axes,
    Drawing,
    Figure,
    FigureData,
    Look,
    legend_below,
    panels,
)
from s2bl_cli.reporting.quantities import ESTIMATORS, TRUE_RISK, short_title
from s2bl_cli.reporting.runs import aggregated, arranged, row_keys
from s2bl_cli.reporting.selection import has_estimates, metrics_of, of_metrics, with_truth

_COLOUR = "#0072b2"
_TRUTH: Look = {"color": REFERENCE_COLOUR, "marker": "|", "markersize": 14, "markeredgewidth": 1.6}


def draw(data: FigureData) -> Drawing:
    """One panel per estimator with an axis of its own, one line per policy. Over seeds: the means of estimates, of
    ends, and of truths."""
    metrics = [name for name in ESTIMATORS if name in metrics_of(data.scores)]
    shown = with_truth(of_metrics(data.scores, [*metrics, TRUE_RISK]))
    table = arranged(shown, row_keys(shown, (), ("dataset", "tau", "rho")))
    names = [*table.keys, "column"]
    lines = aggregated(table.runs, [*names, "metric"]).partition_by(names, as_dict=True, maintain_order=True)
    has_places = len({line[:-1] for line in lines}) > 1
    labels = [
        ", ".join([table.titles[column], *([panel_title(table.keys, place)] if has_places else [])])
        for *place, column in reversed(lines)
    ]
    figure, axes = panels(len(metrics), height=0.9 + 0.3 * len(lines), what="panels, one per estimator,", sharey=True)
    for axis, metric in zip(axes, metrics, strict=True):
        for height, points in enumerate(reversed(lines.values())):
            for estimate in points.filter(pl.col("metric") == metric).select("mean", "low", "high").iter_rows():
                _draw_estimate(axis, height, *estimate)
            for value in points.filter(pl.col("metric") == TRUE_RISK)["mean"]:
                axis.plot(value, height, linestyle="", label="truth (− true risk)", zorder=1, **_TRUTH)
        axis.set(title=short_title(metric), xlabel="expected reward", ylim=(-0.6, len(lines) - 0.4))
        axis.set_yticks(range(len(lines)), labels)
    legend_below(figure, axes)
    return figure


def _draw_estimate(axis: Axes, height: int, value: float, low: float | None, high: float | None) -> None:
    """An interval that is only a lower bound ends at the estimate."""
    ends = [value if end is None else end for end in (low, high)]
    axis.plot(ends, (height, height), color=_COLOUR, linewidth=2, solid_capstyle="butt")
    axis.plot(value, height, color=_COLOUR, marker="o", linestyle="", label="estimate and interval")


FIGURE = Figure(
    "Values estimated from the log with their intervals, against the truth; means over seeds",
    "scores of estimators, such as ips or dr",
    lambda data: has_estimates(data.scores),
    draw,
)
