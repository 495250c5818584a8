"""Histogram of a log's propensities, separately for known and missing rows."""

from typing import Any

import numpy as np

from s2bl_cli.errors import one_line
from s2bl_cli.reporting.figures.figure import Drawing, Figure, FigureData, legend_below, log_axis, panels

BINS = 40


def draw(data: FigureData) -> Drawing:
    figure, axes = panels(len(data.logs), what="logs")
    for axis, log in zip(axes, data.logs, strict=True):
        low = min(float(log.propensity.min()), 0.5)
        edges = np.geomspace(low, 1.0, BINS + 1)
        edges[-1] = 1.0 + 1e-6  # 1 itself belongs to the last bin
        looks: tuple[tuple[Any, str, dict[str, Any]], ...] = (
            (log.known, "known feedback", {"color": "#0072b2", "alpha": 0.55}),
            (~log.known, "missing feedback", {"color": "#d55e00", "histtype": "step", "linewidth": 1.6}),
        )
        for chosen, label, style in looks:
            if chosen.any():
                values = log.propensity[chosen]
                share = np.full(len(values), 100 / len(log.propensity))
                axis.hist(values, bins=edges.tolist(), weights=share, label=label, **style)
        log_axis(axis)
        axis.set(
            title=one_line(log.name, 50),
            xlabel="propensity of the logged action",
            ylabel="share of train rows in %",
        )
    legend_below(figure, axes)
    return figure


FIGURE = Figure("Propensities of the logged actions, in the train rows", "a log", lambda data: bool(data.logs), draw)
