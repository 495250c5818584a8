"""How far a policy is from the log: a histogram of its weights π/p, one below the other over one log axis.

The bars are the shares that scores hold, bin by bin. Over seeds, they are means.
"""

import math

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.reporting.figures.curves import panel_title
from s2bl_cli.reporting.figures.figure import (
    REFERENCE_COLOUR,
    Axes,
    Drawing,
    Figure,
    FigureData,
    Look,
    legend_below,
    log_axis,
    panels,
)
from s2bl_cli.reporting.quantities import WEIGHT_MAX, WEIGHT_SHARE
from s2bl_cli.reporting.runs import aggregated, arranged
from s2bl_cli.reporting.selection import metrics_of, of_metrics

_PANEL = ("dataset", "tau", "log", "split", "log_sha256")
_TITLE = 3  # number of these that are in the title
_BAR: Look = {"color": "#a6cee3", "edgecolor": "#1f4e66", "linewidth": 0.7}
_BEHIND: Look = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # white, so that no line crosses a number
_TALLEST = 0.6  # of the height per policy; the space above is for the share of the tallest bar
_NAME = 0.15  # position of the name
_LEAST = 1e-9  # smaller edges do not fit on the axis
_OPEN = 2.2  # width of an open bin as a factor, about that of the others


def draw(data: FigureData) -> Drawing:
    """One panel per log, one histogram per column of a table."""
    scores = of_metrics(data.scores, [WEIGHT_SHARE, WEIGHT_MAX])
    others = scores.filter(pl.col("method") != LOGGING_POLICY)
    table = arranged(
        scores if others.is_empty() else others, _PANEL
    )  # the weights of a logging policy on its own log are 1
    weights = aggregated(table.runs, [*_PANEL, "column", "metric", "label"])
    has_shares = (pl.col("metric") == WEIGHT_SHARE).any().over(_PANEL)
    logs = weights.filter(has_shares).partition_by(_PANEL, as_dict=True, maintain_order=True)
    most = max(here["column"].n_unique() for here in logs.values())
    figure, axes = panels(len(logs), width=6.5, height=1.0 + 0.8 * most, what="logs")
    for axis, (place, here) in zip(axes, logs.items(), strict=True):
        shares = here.filter(pl.col("metric") == WEIGHT_SHARE)
        columns = [column for column in reversed(table.titles) if column in shares["column"]]
        scale = _TALLEST / max(*shares["mean"], _LEAST)  # the same for all policies, so that bars can be compared
        ends: list[float] = []
        for bottom, column in enumerate(columns):
            ends += _draw_histogram(axis, bottom, here.filter(pl.col("column") == column), scale)
        log_axis(axis)
        axis.axvline(1, color=REFERENCE_COLOUR, linewidth=0.8, linestyle=":", zorder=0)
        axis.grid(False, axis="y")
        axis.tick_params(axis="y", length=0)
        axis.set_yticks([bottom + _NAME for bottom in range(len(columns))], [table.titles[name] for name in columns])
        axis.set(
            axisbelow=True,
            title=panel_title(_PANEL[:_TITLE], place[:_TITLE]),
            xlabel="weight π/p of a known row (1 on average); the first bar begins at 0",
            xlim=(min(ends), max(ends) * 1.15),
            ylim=(-0.35, len(columns) - 0.1),
        )
    legend_below(figure, axes)
    return figure


def _draw_histogram(axis: Axes, bottom: int, weights: pl.DataFrame, scale: float) -> list[float]:
    """Draw bars on the line `bottom`; the last one ends at the largest weight. Return the visible range."""
    bars = weights.filter(pl.col("metric") == WEIGHT_SHARE).sort("label")
    largest = weights.filter(pl.col("metric") == WEIGHT_MAX)["mean"].max()
    low = pl.col("low").fill_null(0.0)
    # A bin without an upper edge ends at the largest weight. A bin from 0 starts one factor below its end.
    end = pl.coalesce("high", pl.max_horizontal(low * _OPEN, pl.lit(largest))).clip(_LEAST)
    start = pl.when((low > 0) & (low < end)).then(low).otherwise(end / _OPEN)
    lows, highs = (bars.select(edge).to_series().to_numpy() for edge in (start, end))
    heights = scale * bars["mean"].to_numpy()
    axis.bar(lows, heights, highs - lows, bottom, align="edge", label="share of the known rows", **_BAR)
    axis.plot((lows[0], highs[-1]), (bottom, bottom), color=_BAR["edgecolor"], linewidth=0.7)
    at = int(heights.argmax())
    middle, top = math.sqrt(lows[at] * highs[at]), bottom + heights[at] + 0.04
    text = f"{100 * bars['mean'][at]:.0f} %"
    axis.text(middle, top, text, ha="center", va="bottom", fontsize=8, bbox=_BEHIND)
    return [lows[0], max(1.0, *highs[heights > 0])]


FIGURE = Figure(
    "Weights of the policies on the log; means over seeds",
    f"scores of {WEIGHT_SHARE} (s2bl evaluate on a log)",
    lambda data: WEIGHT_SHARE in metrics_of(data.scores),
    draw,
)
