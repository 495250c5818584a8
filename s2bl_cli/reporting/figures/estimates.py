"""Values estimated from the log with their intervals, and the truth where the scores have it."""

from typing import TYPE_CHECKING

import polars as pl

from s2bl_cli.reporting.figures.curves import need_scores, panel_title
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.figures.style import REFERENCE_COLOUR, legend_below, panels
from s2bl_cli.reporting.grid import cell_of, ordered, title_of
from s2bl_cli.reporting.quantities import ESTIMATORS, PLAIN, TRUE_RISK, short_title
from s2bl_cli.reporting.selection import REFERENCES, check_runs, of_metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_PLACE = ("dataset", "tau", "rho", "log", "method")
_COLOUR = "#0072b2"


def lacks(data: FigureData) -> str | None:
    if data.scores is None or data.scores.filter(pl.col("metric").is_in(list(ESTIMATORS))).is_empty():
        return "scores of estimators, such as ips or dr"
    return None


def draw(data: FigureData) -> "Drawing":
    """One panel a policy and log, one line an estimator: the interval of one run, or the deviation over seeds."""
    scores = need_scores(data.scores)
    there = [name for name in ESTIMATORS if (scores["metric"] == name).any()]
    estimates = scores.filter(pl.col("metric").is_in(there))
    places = estimates.select(_PLACE).unique()
    order = {name: i for i, name in enumerate([*ordered(places["method"].unique().to_list()), *REFERENCES])}
    rows = sorted(places.iter_rows(), key=lambda place: (*map(str, place[:-1]), order[place[-1]]))
    figure, axes = panels(len(rows), height=0.8 + 0.24 * len(there), what="panels, one a policy and log,")
    for axis, place in zip(axes, rows, strict=True):
        here = scores.filter(
            pl.all_horizontal(pl.col(k).eq_missing(pl.lit(v)) for k, v in zip(_PLACE, place, strict=True))
        )
        truth = of_metric(here, TRUE_RISK)["value"].unique().to_list()
        if len(truth) == 1:
            axis.axvline(-truth[0], color=REFERENCE_COLOUR, linestyle="--", linewidth=1.2, label="truth (− true risk)")
        own = [name for name in reversed(there) if (here["metric"] == name).any()]
        for height, metric in enumerate(own):
            runs = of_metric(here, metric)
            check_runs(runs, _PLACE[:-1])
            cell = cell_of(runs, PLAIN)
            assert cell.mean is not None
            low, high = runs["low"][0], runs["high"][0]
            if cell.std is not None:
                low, high = cell.mean - cell.std, cell.mean + cell.std
            # A lower bound alone reaches no further than the estimate on the other side.
            ends = (cell.mean if low is None else low, cell.mean if high is None else high)
            axis.plot(ends, (height, height), color=_COLOUR, linewidth=2, solid_capstyle="butt")
            axis.plot(cell.mean, height, color=_COLOUR, marker="o", linestyle="")
        axis.set_yticks(range(len(own)), [short_title(name) for name in own])
        axis.set_ylim(-0.6, len(own) - 0.4)
        axis.set_xlabel("expected reward")
        axis.set_title(f"{title_of(place[-1])}\n{panel_title(_PLACE[:-1], place[:-1])}")
    legend_below(figure, axes)
    return figure


FIGURE = Figure(
    "Values estimated from the log, with intervals (over seeds: the deviation), against the truth", lacks, draw
)
