"""Learning curves from history files: one panel per quantity, one line per method, and a band over its seeds."""

import polars as pl

from s2bl_cli.errors import ContractError, one_line
from s2bl_cli.reporting.figures.figure import Drawing, Figure, FigureData, legend_below, looks, panels
from s2bl_cli.reporting.runs import aggregated, with_columns

_FIRST = ("loss", "risk", "regulariser")
_MARKS = 8  # per line, evenly spaced; a marker at every epoch would hide the line
_NO_NOISE = dict.fromkeys(("stderr", "low", "high"), pl.lit(None, pl.Float64))


def draw(data: FigureData) -> Drawing:
    from matplotlib.ticker import MaxNLocator

    history = data.history.unique(maintain_order=True)  # without duplicates, if a file was given twice
    _check_finite(history)
    lines = with_columns(history.with_columns(**_NO_NOISE), ["quantity", "epoch"], most=history.height)
    points = aggregated(lines.runs, ["quantity", "epoch", "column"]).sort("epoch")
    names = history["quantity"].unique(maintain_order=True)
    quantities = sorted(names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    figure, axes = panels(len(quantities), what="quantities")
    for axis, name in zip(axes, quantities, strict=True):
        for column, look in looks(lines.methods).items():
            curve = points.filter((pl.col("quantity") == name) & (pl.col("column") == column))
            epochs, means, least, largest = curve.select("epoch", "mean", "least", "largest").get_columns()
            every = max(1, len(epochs) // _MARKS)
            axis.plot(epochs, means, label=lines.titles[column], markevery=every, **look)
            if (curve["runs"] > 1).any():
                axis.fill_between(epochs, least, largest, color=look["color"], alpha=0.15, lw=0)
        axis.set(title=one_line(name, 40), xlabel="epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, axes)
    return figure


def _check_finite(history: pl.DataFrame) -> None:
    for odd in history.filter(~pl.col("value").is_finite()).head(1).iter_rows(named=True):
        raise ContractError(
            f"{one_line(odd['policy'], 60)}: its {one_line(odd['quantity'], 40)} is {odd['value']} at epoch "
            f"{odd['epoch']}, which no curve can show: train it again with a lower --lr"
        )


FIGURE = Figure(
    "Learning curves; bands show the range over seeds",
    "a history file (s2bl train --history)",
    lambda data: not data.history.is_empty(),
    draw,
)
