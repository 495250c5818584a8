"""What figures of accuracy share: one panel per dataset, τ and model, one line per method, error bars over seeds."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import polars as pl

from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.figures.style import legend_below, looks, panels
from s2bl_cli.reporting.grid import column_titles, words_of
from s2bl_cli.reporting.keys import is_at, key_phrase, sorted_places
from s2bl_cli.reporting.quantities import quantity
from s2bl_cli.reporting.runs import aggregated, arranged
from s2bl_cli.reporting.selection import is_reference, of_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

DODGE = 0.012  # of the axis' width, between neighbours: error bars at one x must not hide each other


def accuracy_curves(
    scores: pl.DataFrame,
    metric: str,
    x: str,
    panel_keys: Sequence[str],
    finish: "Callable[[Axes, list[float]], None]",
) -> "Drawing":
    """`metric` against the column `x`. `finish` labels and scales the x axis of a panel."""
    shown = quantity(metric)
    known = of_metrics(scores, [metric]).filter(is_reference() | pl.col(x).is_not_null())
    table = arranged(known, [*panel_keys, x])
    keys = [key for key in table.keys if key != x]
    points = aggregated(table.runs, [*table.keys, "column"]).sort(x)
    places = sorted_places(points, keys)
    figure, axes = panels(len(places))
    titles = column_titles(table.titles, metric)
    look = looks(table.methods)
    for axis, place in zip(axes, places, strict=True):
        here = points.filter(is_at(keys, place))
        ticks = here[x].unique().sort().to_list()
        for i, (column, own) in enumerate(look.items()):
            line = here.filter(pl.col("column") == column)
            bars = (shown.unit.factor * line["std"].fill_null(0.0)).to_list()
            shift = DODGE * (i - (len(look) - 1) / 2)
            axis.errorbar(
                [_shifted(value, shift, ticks) for value in line[x].to_list()],
                (shown.unit.factor * line["mean"]).to_list(),
                yerr=bars if any(bars) else None,
                label=titles[column],
                **own._asdict(),
            )
        finish(axis, ticks)
        if len(ticks) == 1:
            axis.set_xlim(ticks[0] - 0.5 * max(1.0, abs(ticks[0])), ticks[0] + 0.5 * max(1.0, abs(ticks[0])))
        axis.set_title(panel_title(keys, place))
        axis.set_ylabel(words_of(shown))
    legend_below(figure, axes)
    return figure


def panel_title(keys: Sequence[str], place: Sequence[object]) -> str:
    return one_line(", ".join(key_phrase(k, v) for k, v in zip(keys, place, strict=True) if v is not None), 60)


def _shifted(value: float, shift: float, ticks: Sequence[float]) -> float:
    """Moved by a share of the axis, on a log axis by a factor."""
    if len(ticks) > 1 and ticks[0] > 0:
        return float(value * (ticks[-1] / ticks[0]) ** shift)
    return float(value + shift * (ticks[-1] - ticks[0] if len(ticks) > 1 else max(1.0, abs(value))))


def need_scores(scores: pl.DataFrame | None) -> pl.DataFrame:
    if scores is None:
        raise SettingError("this figure is drawn from scores: give files that s2bl evaluate made")
    return scores
