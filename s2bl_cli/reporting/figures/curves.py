"""What figures of accuracy share: one panel a dataset, τ and model, one line a method, error bars over seeds."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.figures.style import REFERENCE_COLOUR, legend_below, looks, panels
from s2bl_cli.reporting.grid import DRAWN, cells_by, ordered, title_of
from s2bl_cli.reporting.quantities import ACCURACIES, quantity
from s2bl_cli.reporting.selection import check_runs, is_at, is_reference, key_text, of_metric, places

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
    learned = of_metric(scores, metric).filter(~is_reference() & pl.col(x).is_not_null())
    check_runs(learned, [*panel_keys, x])
    found = places(learned, panel_keys)
    figure, axes = panels(len(found))
    look = looks({name: name for name in ordered(learned["method"].unique().to_list())})
    for axis, place in zip(axes, found, strict=True):
        here = learned.filter(is_at(panel_keys, place))
        ticks = sorted(here[x].unique().to_list())
        for i, (method, its) in enumerate(look.items()):
            cells = cells_by(here.filter(pl.col("method") == method), [x], shown.unit)
            points = sorted((values[0], cell) for values, cell in cells.items())
            if not points:
                continue
            heights = [shown.unit.factor * (cell.mean or 0.0) for _, cell in points]
            bars = [shown.unit.factor * (cell.std or 0.0) for _, cell in points]
            shift = DODGE * (i - (len(look) - 1) / 2)
            axis.errorbar(
                [_shifted(value, shift, ticks) for value, _ in points],
                heights,
                yerr=bars if any(bars) else None,
                label=title_of(method),
                color=its.color,
                marker=its.marker,
                linestyle=its.linestyle,
            )
        _reference_line(axis, scores, metric, dict(zip(panel_keys, place, strict=True)))
        finish(axis, ticks)
        if len(ticks) == 1:
            axis.set_xlim(ticks[0] - 0.5 * max(1.0, abs(ticks[0])), ticks[0] + 0.5 * max(1.0, abs(ticks[0])))
        axis.set_title(panel_title(panel_keys, place))
        axis.set_ylabel(" ".join(filter(None, (shown.title, shown.unit.words))))
    legend_below(figure, axes)
    return figure


_WORDS = {"tau": "τ = {}", "rho": "ρ = {}", "known": "{} known rows"}


def panel_title(keys: Sequence[str], place: Sequence[object]) -> str:
    parts = [_WORDS.get(k, "{}").format(key_text(v)) for k, v in zip(keys, place, strict=True) if v is not None]
    return one_line(", ".join(parts), 60)


def _shifted(value: float, shift: float, ticks: Sequence[float]) -> float:
    """Moved by a share of the axis, on a log axis by a factor."""
    if len(ticks) > 1 and ticks[0] > 0:
        return float(value * (ticks[-1] / ticks[0]) ** shift)
    return float(value + shift * (ticks[-1] - ticks[0] if len(ticks) > 1 else max(1.0, abs(value))))


def _reference_line(axis: "Axes", scores: pl.DataFrame, metric: str, place: dict[str, object]) -> None:
    """The logging policy, whose accuracy is that of its draws, as one line across."""
    held = of_metric(scores.filter(pl.col("method") == LOGGING_POLICY), DRAWN if metric in ACCURACIES else metric)
    held = held.filter(
        pl.all_horizontal(pl.col(k).eq_missing(pl.lit(place[k])) for k in ("dataset", "tau") if k in place)
    )
    values = held["value"].unique().to_list()
    if len(values) == 1:
        label = "Logging policy (drawn)" if metric in ACCURACIES else "Logging policy"
        axis.axhline(
            quantity(metric).unit.factor * values[0],
            color=REFERENCE_COLOUR,
            linestyle=(0, (1, 2)),
            linewidth=1.2,
            label=label,
        )


def need_scores(scores: pl.DataFrame | None) -> pl.DataFrame:
    if scores is None:
        raise SettingError("this figure is drawn from scores: give files that s2bl evaluate made")
    return scores
