"""How far a policy is from the log: a histogram of its weights π/p, one below the other over one log axis.

The bars are the shares that scores hold, bin by bin. Under them stand the median, the mean, the 99 % point and the
largest of the weights, where the scores have them.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import one_line
from s2bl_cli.reporting.figures.curves import need_scores, panel_title
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.figures.style import REFERENCE_COLOUR, legend_below, log_axis, panels
from s2bl_cli.reporting.grid import finite, ordered, title_of
from s2bl_cli.reporting.quantities import WEIGHT_SHARE, WEIGHTS, quantity
from s2bl_cli.reporting.selection import REFERENCES, differing_hyperparameters, is_at, key_text, key_title, of_metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_PLACE = ("dataset", "tau", "log", "split", "log_sha256")
_TITLE = 3  # of these, so many are told
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
    scores = need_scores(data.scores)
    shares, marks = of_metric(scores, WEIGHT_SHARE), pl.concat([of_metric(scores, name) for name in WEIGHTS])
    others = shares.filter(pl.col("method") != LOGGING_POLICY)
    shares = shares if others.is_empty() else others  # on its own log, its weights are 1
    places = sorted(shares.select(_PLACE).unique().iter_rows(), key=str)
    order = [*ordered(shares["method"].unique().to_list()), *REFERENCES]
    names = ("method", "rho", *differing_hyperparameters(shares), "seed", "policy")
    most = max(shares.group_by(_PLACE).agg(n=pl.struct(names).n_unique())["n"].to_list())
    figure, axes = panels(len(places), width=6.5, height=1.0 + 0.8 * most, what="logs")
    for axis, place in zip(axes, places, strict=True):
        here, marks_here = shares.filter(is_at(_PLACE, place)), marks.filter(is_at(_PLACE, place))
        policies = sorted(
            here.select(names).unique().iter_rows(), key=lambda row: (order.index(row[0]), *map(str, row[1:]))
        )[::-1]
        tallest = max(here["value"].to_list())
        scale = _TALLEST / tallest if tallest > 0 else 1.0  # one for all policies: bars can be compared
        drawn: list[float] = []
        for bottom, policy in enumerate(policies):
            own = is_at(names, policy)
            named = {row["metric"]: row["value"] for row in marks_here.filter(own).iter_rows(named=True)}
            drawn += _histogram(axis, bottom, here.filter(own), scale, named)
        _finish_axis(axis, min(drawn), max(drawn))
        axis.set_ylim(-0.35, len(policies) - 0.1)
        axis.set_yticks([bottom + _NAME for bottom in range(len(policies))], _labels(names, policies))
        axis.set_title(panel_title(_PLACE[:_TITLE], place[:_TITLE]))
    legend_below(figure, axes)
    return figure


def _histogram(axis: "Axes", bottom: int, shares: pl.DataFrame, scale: float, marks: dict[str, float]) -> list[float]:
    """Bars that stand on `bottom`, and the marks under them. The ends of what there is to see."""
    bins = [_drawn_edges(row["low"], row["high"], marks.get("weight-max")) for row in shares.iter_rows(named=True)]
    heights = [scale * share for share in shares["value"].to_list()]
    least, largest = min(low for low, _ in bins), max(high for _, high in bins)
    lows, widths = [low for low, _ in bins], [high - low for low, high in bins]
    axis.bar(lows, heights, widths, bottom, align="edge", label="share of the known rows", **_BAR)
    axis.plot((least, largest), (bottom, bottom), color=_BAR["edgecolor"], linewidth=0.7)
    tallest = heights.index(max(heights))
    low, high = bins[tallest]
    text = f"{100 * shares['value'][tallest]:.0f} %"
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
    start, end = finite(low) or 0.0, finite(high)
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


def _labels(names: Sequence[str], policies: Sequence[tuple[object, ...]]) -> list[str]:
    """With the file's name where two policies would be called alike."""
    told = [_label(names, policy) for policy in policies]
    often = Counter(told)
    return [
        f"{label}\n{one_line(policy[-1], 40)}" if often[label] > 1 else label
        for label, policy in zip(told, policies, strict=True)
    ]


def _label(names: Sequence[str], policy: tuple[object, ...]) -> str:
    """The method, and what it was trained with; the policy's own name, the last, is left to `_labels`."""
    trained = zip(names[1:-1], policy[1:-1], strict=True)
    told = [f"{key_title(name)} {key_text(value)}" for name, value in trained if value is not None]
    return "\n".join(filter(None, (title_of(str(policy[0])), ", ".join(told))))


FIGURE = Figure("Weights of the policies on the log", lacks, draw)
