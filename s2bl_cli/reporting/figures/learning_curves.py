"""Learning curves from history files: a panel a quantity, a line a method, a band over its seeds."""

from typing import TYPE_CHECKING

import polars as pl

from s2bl_cli.errors import ContractError, one_line
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.figures.style import legend_below, looks, panels
from s2bl_cli.reporting.grid import ordered, title_of
from s2bl_cli.reporting.selection import differing_hyperparameters, key_text, key_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_FIRST = ("loss", "risk", "regulariser")
_MARKS = 8  # to a line: a marker at every epoch would be a caterpillar


def lacks(data: FigureData) -> str | None:
    return "a history file (s2bl train --history)" if data.history is None else None


def draw(data: FigureData) -> "Drawing":
    from matplotlib.ticker import MaxNLocator

    history = data.history
    assert history is not None
    _check_finite(history)
    found = history["quantity"].unique(maintain_order=True).to_list()
    quantities = [*(name for name in _FIRST if name in found), *(name for name in found if name not in _FIRST)]
    lines = _lines(history)
    look = looks({label: run["method"][0] for label, run in lines.items()})
    figure, axes = panels(len(quantities), what="quantities")
    for axis, name in zip(axes, quantities, strict=True):
        for label, run in lines.items():
            here = run.filter(pl.col("quantity") == name)
            curve = here.group_by("epoch").agg(
                mean=pl.col("value").mean(), low=pl.col("value").min(), high=pl.col("value").max()
            )
            curve = curve.sort("epoch")
            if curve.is_empty():
                continue
            color, marker, linestyle = look[label]
            epochs = curve["epoch"].to_list()
            axis.plot(
                epochs,
                curve["mean"].to_list(),
                label=label,
                color=color,
                marker=marker,
                linestyle=linestyle,
                markevery=max(1, len(epochs) // _MARKS),
            )
            if here.height > curve.height:
                axis.fill_between(
                    epochs, curve["low"].to_list(), curve["high"].to_list(), color=color, alpha=0.15, lw=0
                )
        axis.set_title(one_line(name, 40))
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, axes)
    return figure


def _lines(history: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """One line per method and hyperparameters; one is named where some method has several values of it."""
    telling = differing_hyperparameters(history)
    lines = {}
    for method in ordered(history["method"].unique().to_list()):
        runs = history.filter(pl.col("method") == method)
        for values, run in runs.group_by(telling, maintain_order=True) if telling else [((), runs)]:
            told = [f"{key_title(k)} = {key_text(v)}" for k, v in zip(telling, values, strict=True) if v is not None]
            lines[", ".join([title_of(method), *told])] = run
    return lines


def _check_finite(history: pl.DataFrame) -> None:
    for odd in history.filter(~pl.col("value").is_finite()).head(1).iter_rows(named=True):
        raise ContractError(
            f"{one_line(odd['policy'], 60)}: its {one_line(odd['quantity'], 40)} is {odd['value']} at epoch "
            f"{odd['epoch']}, which no curve can show: train it again with a lower --lr"
        )


FIGURE = Figure("Learning curves; a band is from the least to the largest over seeds", lacks, draw)
