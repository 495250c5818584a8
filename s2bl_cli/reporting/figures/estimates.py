"""Values estimated from the log with their intervals, and the truth where the scores have it."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import polars as pl

from s2bl_cli.reporting.figures.curves import need_scores, panel_title
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.figures.style import REFERENCE_COLOUR, legend_below, panels
from s2bl_cli.reporting.grid import ordered, title_of
from s2bl_cli.reporting.quantities import ESTIMATORS, TRUE_RISK, short_title
from s2bl_cli.reporting.selection import REFERENCES, check_runs, is_at, of_metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_PLACE = ("dataset", "tau", "rho", "log", "method")
_COLOUR = "#0072b2"


def lacks(data: FigureData) -> str | None:
    if data.scores is None or data.scores.filter(pl.col("metric").is_in(list(ESTIMATORS))).is_empty():
        return "scores of estimators, such as ips or dr"
    return None


def draw(data: FigureData) -> "Drawing":
    """One panel a method and log, one line an estimator. Over seeds: the means of estimates, of ends, and of truths."""
    scores = need_scores(data.scores)
    there = [name for name in ESTIMATORS if (scores["metric"] == name).any()]
    estimates = scores.filter(pl.col("metric").is_in(there))
    places = estimates.select(_PLACE).unique()
    order = {name: i for i, name in enumerate([*ordered(places["method"].unique().to_list()), *REFERENCES])}
    rows = sorted(places.iter_rows(), key=lambda place: (*map(str, place[:-1]), order[place[-1]]))
    figure, axes = panels(len(rows), height=0.8 + 0.24 * len(there), what="panels, one a policy and log,")
    told = 4 if places["log"].n_unique() > 1 else 3  # a log that is the only one needs no name
    for axis, place in zip(axes, rows, strict=True):
        here = scores.filter(is_at(_PLACE, place))
        truth = of_metric(here, TRUE_RISK)["value"].to_list()
        if truth:
            axis.axvline(
                -fmean(truth), color=REFERENCE_COLOUR, linestyle="--", linewidth=1.2, label="truth (− true risk)"
            )
        own = [name for name in reversed(there) if (here["metric"] == name).any()]
        for height, metric in enumerate(own):
            runs = of_metric(here, metric)
            check_runs(runs, _PLACE[:-1])
            value, low, high = (_mean(runs[name].to_list()) for name in ("value", "low", "high"))
            assert value is not None
            # A lower bound alone reaches no further than the estimate on the other side.
            ends = (value if low is None else low, value if high is None else high)
            axis.plot(ends, (height, height), color=_COLOUR, linewidth=2, solid_capstyle="butt")
            axis.plot(value, height, color=_COLOUR, marker="o", linestyle="")
        axis.set_yticks(range(len(own)), [short_title(name) for name in own])
        axis.set_ylim(-0.6, len(own) - 0.4)
        axis.set_xlabel("expected reward")
        axis.set_title(f"{title_of(place[-1])}\n{panel_title(_PLACE[:told], place[:told])}")
    legend_below(figure, axes)
    return figure


def _mean(values: Sequence[float | None]) -> float | None:
    """None where a run has none: an end that some runs lack is no end of their mean."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(known) if known and len(known) == len(values) else None


FIGURE = Figure("Values estimated from the log with their intervals, against the truth; means over seeds", lacks, draw)
