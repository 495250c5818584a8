"""What a figure is made from, and what a figure is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from s2bl_cli.reporting.selection import no_scores

if TYPE_CHECKING:
    from matplotlib import axes, figure

    Axes = axes.Axes
    Drawing = figure.Figure
else:
    Axes = Drawing = Any  # matplotlib is imported when a figure is drawn, not before


@dataclass(frozen=True)
class LogPropensities:
    """The train rows of a log: how likely the logged action was, and whether its feedback is known."""

    name: str
    propensity: npt.NDArray[np.float32]
    known: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FigureData:
    """What was given. No scores, no histories or no logs are empty."""

    scores: pl.DataFrame = field(default_factory=no_scores)
    metric: str = ""
    history: pl.DataFrame | None = None
    logs: tuple[LogPropensities, ...] = ()


@dataclass(frozen=True)
class Figure:
    title: str
    needs: str  # in words
    can_be_drawn: Callable[[FigureData], bool]
    draw: Callable[[FigureData], Drawing]
