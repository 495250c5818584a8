"""How far a policy is from the log: a histogram of its weights π/p, one below the other over one log axis.

The bars are the shares that scores hold, bin by bin. Under them stand the median, the mean, the 99 % point and the
largest of the weights, where the scores have them.
"""

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.reporting.figures.curves import need_scores, panel_title
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.figures.style import REFERENCE_COLOUR, legend_below, log_axis, panels
from s2bl_cli.reporting.keys import is_at, sorted_places
from s2bl_cli.reporting.quantities import WEIGHT_SHARE, WEIGHTS, quantity
from s2bl_cli.reporting.runs import aggregated, arranged
from s2bl_cli.reporting.selection import of_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_PLACE = ("dataset", "tau", "log", "split", "log_sha256")
_TITLE = 3  # of these, so many are in the title
_MARKS: dict[str, dict[str, Any]] = {
    "mean-weight": {"marker": "o", "color": "#000000"},
    "weight-p99": {"marker": "^", "color": "#e69f00"},
    "weight-max": {"marker": "X", "color": "#d55e00"},
    # Last and longer than the mean's: where both are the same, both are seen.
    "weight-p50": {"marker": "|", "color": "#0072b2", "markersize": 12, "markeredgewidth": 2.2},
}
_BAR: dict[str, Any] = {"color": "#a6cee3", "edgecolor": "#1f4e66", "linewidth": 0.7}
_BEHIND: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # no line through a number
_TALLEST = 0.6  # of the height that a policy has: its share stands above the bar
_BELOW = -0.13  # where the marks are, under the bars
_NAME = 0.15  # where the name is
_LEAST = 1e-9  # an edge below has no place on the axis
_OPEN = 2.2  # an open bin is drawn as wide as this factor: about as the others are


def lacks(data: FigureData) -> str | None:
    if data.scores is None or data.scores.filter(pl.col("metric") == WEIGHT_SHARE).is_empty():
        return f"scores of {WEIGHT_SHARE} (s2bl evaluate on a log)"
    return None


def draw(data: FigureData) -> "Drawing":
    """One panel per log, one histogram per column of a table. Over seeds: the means of shares and marks."""
    scores = of_metrics(need_scores(data.scores), [WEIGHT_SHARE, *WEIGHTS])
    others = scores.filter(pl.col("method") != LOGGING_POLICY)
    table = arranged(
        scores if others.is_empty() else others, _PLACE
    )  # on its own log, a logging policy's weights are 1
    bars = aggregated(table.runs, ["metric", *_PLACE, "column", "label"]).sort("label")
    places = sorted_places(table.runs, _PLACE)
    shares = bars.filter(pl.col("metric") == WEIGHT_SHARE)
    most = max(shares.group_by(_PLACE).agg(pl.col("column").n_unique())["column"].to_list())
    figure, axes = panels(len(places), width=6.5, height=1.0 + 0.8 * most, what="logs")
    for axis, place in zip(axes, places, strict=True):
        here, marks = (part.filter(is_at(_PLACE, place)) for part in (shares, bars.filter(pl.col("label").is_null())))
        columns = [column for column in reversed(table.titles) if (here["column"] == column).any()]
        tallest = max(here["mean"].to_list())
        scale = _TALLEST / tallest if tallest > 0 else 1.0  # one for all policies: bars can be compared
        ends: list[float] = []
        for bottom, column in enumerate(columns):
            weights = dict(marks.filter(pl.col("column") == column).select("metric", "mean").rows())
            ends += _histogram(axis, bottom, here.filter(pl.col("column") == column), scale, weights)
        _finish_axis(axis, min(ends), max(ends))
        axis.set_ylim(-0.35, len(columns) - 0.1)
        axis.set_yticks([bottom + _NAME for bottom in range(len(columns))], [table.titles[name] for name in columns])
        axis.set_title(panel_title(_PLACE[:_TITLE], place[:_TITLE]))
    legend_below(figure, axes)
    return figure


def _histogram(axis: "Axes", bottom: int, shares: pl.DataFrame, scale: float, marks: dict[str, float]) -> list[float]:
    """Bars that stand on `bottom`, and the marks under them. The ends of what there is to see."""
    bins = [_drawn_edges(row["low"], row["high"], marks.get("weight-max")) for row in shares.iter_rows(named=True)]
    heights = [scale * share for share in shares["mean"].to_list()]
    least, largest = min(low for low, _ in bins), max(high for _, high in bins)
    lows, widths = [low for low, _ in bins], [high - low for low, high in bins]
    axis.bar(lows, heights, widths, bottom, align="edge", label="share of the known rows", **_BAR)
    axis.plot((least, largest), (bottom, bottom), color=_BAR["edgecolor"], linewidth=0.7)
    tallest = heights.index(max(heights))
    low, high = bins[tallest]
    text = f"{100 * shares['mean'][tallest]:.0f} %"
    top = bottom + heights[tallest] + 0.04
    axis.text(math.sqrt(low * high), top, text, ha="center", va="bottom", fontsize=8, bbox=_BEHIND)
    for name, look in _MARKS.items():
        if name in marks:
            weight = min(max(marks[name], least * 1.1), largest)
            axis.plot(weight, bottom + _BELOW, linestyle="", label=quantity(name).title, **look)
    filled = [high for (_, high), height in zip(bins, heights, strict=True) if height]
    return [least, max((1.0, *filled, *(min(weight, largest) for weight in marks.values())))]


def _drawn_edges(low: float | None, high: float | None, largest: float | None) -> tuple[float, float]:
    """On a log axis: a bin from 0 has a start, and one without an end reaches to the largest weight."""
    start, end = low or 0.0, high
    if end is None:
        start = start if start > 0 else 1.0
        return start, max(start * _OPEN, largest or 0.0)
    end = max(end, _LEAST)
    return (start if 0 < start < end else end / _OPEN), end


def _finish_axis(axis: "Axes", least: float, largest: float) -> None:
    log_axis(axis)
    axis.set_xlim(least, largest * 1.15)
    axis.axvline(1, color=REFERENCE_COLOUR, linewidth=0.8, linestyle=":", zorder=0)
    axis.grid(False, axis="y")
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("weight π/p of a known row (1 on average); the first bar begins at 0")


FIGURE = Figure("Weights of the policies on the log; means over seeds", lacks, draw)
