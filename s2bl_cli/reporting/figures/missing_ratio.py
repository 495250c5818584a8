"""Accuracy against the ratio of missing to known rows, with the known ones held fixed: the paper's Figure 3."""

import polars as pl

from s2bl_cli.reporting.figures.curves import accuracy_curves
from s2bl_cli.reporting.figures.figure import Drawing, Figure, FigureData
from s2bl_cli.reporting.runs import what_differs
from s2bl_cli.reporting.selection import is_reference
from s2bl_cli.reporting.tables.missing_ratio import with_ratio

_PANEL = ("dataset", "tau", "model", "known")


def has_fixed_known(scores: pl.DataFrame, metric: str) -> bool:
    """Whether policies were to learn from equally many known rows and different numbers of missing ones."""
    learned = with_ratio(scores).filter(~is_reference() & (pl.col("metric") == metric))
    varied = learned.filter(pl.col("missing").n_unique().over(_PANEL) > 1)
    return any(name == "rho" or name.startswith("mask.") for name in what_differs(varied, _PANEL))


def lacks(data: FigureData) -> str | None:
    if has_fixed_known(data.scores, data.metric):
        return None
    return (
        "scores of policies with equally many known and different numbers of missing rows (s2bl mask --known --missing)"
    )


def draw(data: FigureData) -> Drawing:
    return accuracy_curves(with_ratio(data.scores), data.metric, "ratio", "missing rows / known rows", _PANEL)


FIGURE = Figure(
    "Accuracy against the ratio of missing to known rows; bars are the standard deviation over seeds", lacks, draw
)
