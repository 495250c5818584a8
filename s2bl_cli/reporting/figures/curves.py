"""What figures of accuracy share: one panel per dataset, τ and model, one line per method, error bars over seeds."""

from collections.abc import Sequence

import polars as pl

from s2bl_cli.errors import one_line
from s2bl_cli.reporting.figures.figure import Drawing
from s2bl_cli.reporting.figures.style import legend_below, looks, panels
from s2bl_cli.reporting.grid import column_titles, words_of
from s2bl_cli.reporting.keys import is_at, key_phrase, key_text, sorted_places
from s2bl_cli.reporting.quantities import quantity
from s2bl_cli.reporting.runs import aggregated, arranged
from s2bl_cli.reporting.selection import is_reference, of_metrics

DODGE = 0.012  # of the axis' width, between neighbours: error bars at one x must not hide each other
_LOG_SCALE = 10  # from so many times the first value on


def accuracy_curves(scores: pl.DataFrame, metric: str, x: str, label: str, panel_keys: Sequence[str]) -> Drawing:
    """`metric` against the column `x`."""
    shown = quantity(metric)
    known = of_metrics(scores, [metric]).filter(is_reference() | pl.col(x).is_not_null())
    table = arranged(known, [*panel_keys, x])
    keys = [key for key in table.keys if key != x]
    points = aggregated(table.runs, [*table.keys, "column"]).sort(x)
    places = sorted_places(points, keys)
    figure, axes = panels(len(places))
    titles = column_titles(table.titles, metric)
    lines = looks(table.methods)
    for axis, place in zip(axes, places, strict=True):
        here = points.filter(is_at(keys, place))
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
            axis.errorbar(moved.to_list(), means, yerr=yerr, label=titles[column], **look)
        axis.set(title=panel_title(keys, place), ylabel=words_of(shown), xlabel=label)
        axis.set(xscale="log" if is_log else "linear")
        axis.set_xticks(ticks, [key_text(tick) for tick in ticks])
        axis.set_xticks([], minor=True)
        if len(ticks) == 1:
            axis.set_xlim(ticks[0] - width / 2, ticks[0] + width / 2)
    legend_below(figure, axes)
    return figure


def panel_title(keys: Sequence[str], place: Sequence[object]) -> str:
    return one_line(", ".join(key_phrase(k, v) for k, v in zip(keys, place, strict=True) if v is not None), 60)
