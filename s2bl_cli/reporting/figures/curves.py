"""Accuracy curves: one line per method, one panel per dataset, τ and model, and error bars over seeds.

The x-axis is the number of known rows (the paper's Figures 1 and 2), or ρ if the scores lack that number. With a fixed
number of known rows, it is the ratio of missing to known rows (Figure 3).
"""

import math
from collections.abc import Sequence

import polars as pl

from s2bl_cli.errors import one_line
from s2bl_cli.reporting.figures.figure import Drawing, Figure, FigureData, legend_below, looks, panels
from s2bl_cli.reporting.quantities import quantity, words_of
from s2bl_cli.reporting.runs import aggregated, arranged, what_differs
from s2bl_cli.reporting.selection import is_reference, of_metrics
from s2bl_cli.reporting.table import key_phrase, key_text
from s2bl_cli.reporting.tables.grid import with_ratio

_PANEL = ("dataset", "tau", "model")
_LABELS = {
    "known": "rows with known feedback",
    "rho": "share of rows with known feedback, ρ",
    "ratio": "missing rows / known rows",
}
DODGE = 0.012  # of the width of the axis, between points at the same x, so that error bars do not overlap
_LABEL_WIDTH = 0.08  # of the axis
_LOG_SCALE = 10  # an axis that reaches this many times its first value is logarithmic


def _draw(scores: pl.DataFrame, metric: str, panel_keys: Sequence[str], x: str) -> Drawing:
    """Draw `metric` against the column `x`."""
    shown = quantity(metric)
    known = of_metrics(scores, [metric]).filter(is_reference() | pl.col(x).is_not_null())
    table = arranged(known, [*panel_keys, x])
    keys = [key for key in table.keys if key != x]
    points = aggregated(table.runs, [*table.keys, "column"]).partition_by(keys, as_dict=True, maintain_order=True)
    figure, axes = panels(len(points))
    lines = looks(table.methods)
    for axis, (place, here) in zip(axes, points.items(), strict=True):
        ticks = here[x].unique().sort().to_list()
        is_log = ticks[0] > 0 and ticks[-1] >= _LOG_SCALE * ticks[0]
        width = ticks[-1] - ticks[0] if len(ticks) > 1 else max(1.0, abs(ticks[0]))
        for i, (column, look) in enumerate(lines.items()):
            line = here.filter(pl.col("column") == column)
            bars = (shown.unit.factor * line["std"].fill_null(0.0)).to_list()
            shift = DODGE * (i - (len(lines) - 1) / 2)
            moved = line[x] * (ticks[-1] / ticks[0]) ** shift if is_log else line[x] + shift * width
            means = (shown.unit.factor * line["mean"]).to_list()
            yerr = bars if any(bars) else None
            axis.errorbar(moved.to_list(), means, yerr=yerr, label=table.titles[column], **look)
        axis.set(
            title=panel_title(keys, place),
            xlabel=_LABELS[x],
            xscale="log" if is_log else "linear",
            ylabel=words_of(shown),
        )
        axis.set_xticks(ticks, tick_labels(ticks, is_log=is_log))
        axis.set_xticks([], minor=True)
        if len(ticks) == 1:
            axis.set_xlim(ticks[0] - width / 2, ticks[0] + width / 2)
    legend_below(figure, axes)
    return figure


def tick_labels(ticks: Sequence[float], *, is_log: bool) -> list[str]:
    """The labels of the ticks. Those that would overlap the label before them are empty."""
    places = [math.log(tick) if is_log else tick for tick in ticks]
    labels: list[str] = []
    last = -math.inf  # the place of the last label
    for place, tick in zip(places, ticks, strict=True):
        is_free = place - last >= _LABEL_WIDTH * (places[-1] - places[0])
        labels.append(key_text(tick) if is_free else "")
        last = place if is_free else last
    return labels


def panel_title(keys: Sequence[str], place: Sequence[object]) -> str:
    return one_line(", ".join(key_phrase(k, v) for k, v in zip(keys, place, strict=True) if v is not None), 60)


def has_fixed_known(data: FigureData) -> bool:
    """Whether policies were trained on equally many known rows and on different numbers of missing rows."""
    panel = [*_PANEL, "known"]
    varied = with_ratio(_learned(data)).filter(pl.col("missing").n_unique().over(panel) > 1)
    return any(name == "rho" or name.startswith("mask.") for name in what_differs(varied, panel))


def _has_several_points(data: FigureData) -> bool:
    """Whether some method has more than one point."""
    learned = _learned(data)
    return bool((learned.select(pl.col(_x(learned)).n_unique().over(*_PANEL, "method")) > 1).to_series().any())


def _has_known_rows(data: FigureData) -> bool:
    learned = _learned(data)
    return learned["known"].count() + learned["rho"].count() > 0 and not has_fixed_known(data)


def _learned(data: FigureData) -> pl.DataFrame:
    return data.scores.filter(~is_reference() & (pl.col("metric") == data.metric))


def _x(learned: pl.DataFrame) -> str:
    return "known" if learned["known"].null_count() == 0 else "rho"


KNOWN_ROWS = Figure(
    "Accuracy against the number of rows with known feedback; bars are the standard deviation over seeds",
    "scores of policies that s2bl train made with all of a log's rows (for a fixed number of known rows, "
    "--figure missing-ratio)",
    _has_known_rows,
    lambda data: _draw(data.scores, data.metric, _PANEL, _x(_learned(data))),
    _has_several_points,
)
MISSING_RATIO = Figure(
    "Accuracy against the ratio of missing to known rows; bars are the standard deviation over seeds",
    "scores of policies with equally many known and different numbers of missing rows (s2bl mask --known --missing)",
    has_fixed_known,
    lambda data: _draw(with_ratio(data.scores), data.metric, (*_PANEL, "known"), "ratio"),
)
