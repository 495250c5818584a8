"""Accuracy against the ratio of missing to known rows, with the known ones held fixed: the paper's Figure 3."""

from typing import TYPE_CHECKING

import polars as pl

from s2bl_cli.reporting.figures.curves import accuracy_curves, need_scores
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.keys import key_text
from s2bl_cli.reporting.runs import what_differs
from s2bl_cli.reporting.selection import is_reference
from s2bl_cli.reporting.tables.missing_ratio import with_ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_PLACE = ("dataset", "tau", "model", "known")


def has_fixed_known(scores: pl.DataFrame, metric: str) -> bool:
    """Whether policies were to learn from equally many known rows and different numbers of missing ones."""
    learned = with_ratio(scores).filter(~is_reference() & (pl.col("metric") == metric))
    varied = learned.filter(pl.col("missing").n_unique().over(_PLACE) > 1)
    return any(name == "rho" or name.startswith("mask.") for name in what_differs(varied, _PLACE))


def lacks(data: FigureData) -> str | None:
    if data.scores is None or not has_fixed_known(data.scores, data.metric):
        return (
            "scores of policies with equally many known and different numbers of missing rows "
            "(s2bl mask --known --missing)"
        )
    return None


def draw(data: FigureData) -> "Drawing":
    def finish(axis: "Axes", ticks: list[float]) -> None:
        if ticks[0] > 0 and ticks[-1] / ticks[0] > 20:
            axis.set_xscale("log")
            axis.set_xticks([], minor=True)
        axis.set_xticks(ticks, [key_text(tick) for tick in ticks])
        axis.set_xlabel("missing rows / known rows")

    return accuracy_curves(with_ratio(need_scores(data.scores)), data.metric, "ratio", _PLACE, finish)


FIGURE = Figure(
    "Accuracy against the ratio of missing to known rows; bars are the standard deviation over seeds", lacks, draw
)
