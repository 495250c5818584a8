"""How far a policy is from the log: the median, the mean, the 99 % point and the largest of its weights π/p.

Scores hold these four numbers of the weights and not each row's, so this is a range a policy, no histogram.
"""

from typing import TYPE_CHECKING

import polars as pl

from s2bl_cli.reporting.figures.curves import need_scores, panel_title
from s2bl_cli.reporting.figures.figure import Figure, FigureData
from s2bl_cli.reporting.figures.style import legend_below, log_axis, panels
from s2bl_cli.reporting.grid import ordered, title_of
from s2bl_cli.reporting.quantities import WEIGHTS, quantity
from s2bl_cli.reporting.selection import REFERENCES, key_text, of_metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_PLACE = ("dataset", "tau", "log")
_POLICY = ("method", "rho", "lam", "seed")
_LOOKS = {
    "weight-p50": ("|", "#0072b2"),
    "mean-weight": ("o", "#000000"),
    "weight-p99": ("^", "#e69f00"),
    "weight-max": ("X", "#d55e00"),
}


def lacks(data: FigureData) -> str | None:
    if data.scores is None or data.scores.filter(pl.col("metric") == "weight-max").is_empty():
        return "scores of the weights, such as weight-max (s2bl evaluate on a log)"
    return None


def draw(data: FigureData) -> "Drawing":
    scores = need_scores(data.scores)
    held = pl.concat([of_metric(scores, name) for name in WEIGHTS])
    places = sorted(held.select(_PLACE).unique().iter_rows(), key=str)
    order = [*ordered(held["method"].unique().to_list()), *REFERENCES]
    most = max(held.group_by(_PLACE).agg(n=pl.struct(_POLICY).n_unique())["n"].to_list())
    figure, axes = panels(len(places), width=6.5, height=1.2 + 0.28 * most, what="logs")
    for axis, place in zip(axes, places, strict=True):
        here = held.filter(
            pl.all_horizontal(pl.col(k).eq_missing(pl.lit(v)) for k, v in zip(_PLACE, place, strict=True))
        )
        policies = sorted(
            here.select(_POLICY).unique().iter_rows(), key=lambda row: (order.index(row[0]), *map(str, row[1:]))
        )
        for height, policy in enumerate(reversed(policies)):
            mine = here.filter(
                pl.all_horizontal(pl.col(k).eq_missing(pl.lit(v)) for k, v in zip(_POLICY, policy, strict=True))
            )
            values = {row["metric"]: max(row["value"], 1e-6) for row in mine.iter_rows(named=True)}
            axis.plot((min(values.values()), max(values.values())), (height, height), color="#999999", linewidth=1)
            for name, (marker, color) in _LOOKS.items():
                if name in values:
                    label = quantity(name).title.removesuffix(" are below")
                    axis.plot(values[name], height, marker=marker, color=color, linestyle="", markersize=8, label=label)
        log_axis(axis)
        axis.axvline(1, color="#555555", linewidth=0.8)
        axis.set_ylim(-0.6, len(policies) - 0.4)
        axis.set_yticks(range(len(policies)), [_label(policy) for policy in reversed(policies)])
        axis.set_xlabel("weight π/p of a known row (1 on average)")
        axis.set_title(panel_title(_PLACE, place))
    legend_below(figure, axes)
    return figure


def _label(policy: tuple[object, ...]) -> str:
    method, rho, lam, seed = policy
    told = [
        f"{sign} {key_text(value)}" for sign, value in (("ρ", rho), ("λ", lam), ("seed", seed)) if value is not None
    ]
    return ", ".join([title_of(str(method)), *told])


FIGURE = Figure("Weights of the policies on the log: median, mean, 99 % point and largest", lacks, draw)
