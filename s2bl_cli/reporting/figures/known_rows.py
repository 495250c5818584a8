"""Accuracy against the number of known rows, one line per method: the paper's Figures 1 and 2.

Where the scores do not say how many rows were known, against ρ.
"""

from typing import TYPE_CHECKING

import polars as pl

from s2bl_cli.reporting.figures.curves import accuracy_curves, need_scores
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.figures.missing_ratio import has_fixed_known
from s2bl_cli.reporting.keys import key_text
from s2bl_cli.reporting.selection import is_reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_PANEL = ("dataset", "tau", "model")


def lacks(data: FigureData) -> str | None:
    if data.scores is None:
        return "scores"
    learned = _learned(data)
    if learned.filter(pl.col("known").is_not_null() | pl.col("rho").is_not_null()).is_empty():
        return f"scores of {data.metric} of policies that s2bl train made"
    if has_fixed_known(data.scores, data.metric):
        return "scores of policies with all of a log's rows (for a fixed number of known rows, --figure missing-ratio)"
    return None


def has_several_points(data: FigureData) -> bool:
    """Whether some method has a line, and not a point."""
    learned = _learned(data)
    counts = learned.group_by(*_PANEL, "method").agg(points=pl.col(_x(learned)).n_unique())
    return not counts.filter(pl.col("points") > 1).is_empty()


def _learned(data: FigureData) -> pl.DataFrame:
    return need_scores(data.scores).filter(~is_reference() & (pl.col("metric") == data.metric))


def _x(learned: pl.DataFrame) -> str:
    return "known" if learned["known"].null_count() == 0 else "rho"


def draw(data: FigureData) -> "Drawing":
    x = _x(_learned(data))
    label = "rows with known feedback" if x == "known" else "share of rows with known feedback, ρ"

    def finish(axis: "Axes", ticks: list[float]) -> None:
        if ticks[0] > 0 and len(ticks) > 1:
            axis.set_xscale("log")
        axis.set_xticks(ticks, [key_text(tick) for tick in ticks])
        axis.set_xticks([], minor=True)
        axis.set_xlabel(label)

    return accuracy_curves(need_scores(data.scores), data.metric, x, _PANEL, finish)


FIGURE = Figure(
    "Accuracy against the number of rows with known feedback; bars are the standard deviation over seeds", lacks, draw
)
