"""Accuracy against the number of known rows, one line per method: the paper's Figures 1 and 2.

Where the scores do not say how many rows were known, against ρ.
"""

import polars as pl

from s2bl_cli.reporting.figures.curves import accuracy_curves
from s2bl_cli.reporting.figures.figure import Drawing, Figure, FigureData
from s2bl_cli.reporting.figures.missing_ratio import has_fixed_known
from s2bl_cli.reporting.selection import is_reference

_PANEL = ("dataset", "tau", "model")
_LABELS = {"known": "rows with known feedback", "rho": "share of rows with known feedback, ρ"}


def lacks(data: FigureData) -> str | None:
    learned = _learned(data)
    if learned.filter(pl.col("known").is_not_null() | pl.col("rho").is_not_null()).is_empty():
        return f"scores of {data.metric or 'an accuracy'} of policies that s2bl train made"
    if has_fixed_known(data.scores, data.metric):
        return "scores of policies with all of a log's rows (for a fixed number of known rows, --figure missing-ratio)"
    return None


def has_several_points(data: FigureData) -> bool:
    """Whether some method has a line, and not a point."""
    learned = _learned(data)
    return bool((learned.select(pl.col(_x(learned)).n_unique().over(*_PANEL, "method")) > 1).to_series().any())


def _learned(data: FigureData) -> pl.DataFrame:
    return data.scores.filter(~is_reference() & (pl.col("metric") == data.metric))


def _x(learned: pl.DataFrame) -> str:
    return "known" if learned["known"].null_count() == 0 else "rho"


def draw(data: FigureData) -> Drawing:
    x = _x(_learned(data))
    return accuracy_curves(data.scores, data.metric, x, _LABELS[x], _PANEL)


FIGURE = Figure(
    "Accuracy against the number of rows with known feedback; bars are the standard deviation over seeds", lacks, draw
)
