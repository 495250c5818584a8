"""What a figure is made from, and what a figure is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class LogPropensities:
    """The train rows of a log: how likely the logged action was, and whether its feedback is known."""

    name: str
    propensity: npt.NDArray[np.float32]
    known: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FigureData:
    """What was given. No scores, no histories or no logs are None or empty."""

    scores: pl.DataFrame | None = None
    metric: str = ""
    history: pl.DataFrame | None = None
    logs: tuple[LogPropensities, ...] = ()


@dataclass(frozen=True)
class Figure:
    """`lacks` says what is not there to draw it, or nothing."""

    title: str
    lacks: Callable[[FigureData], str | None]
    draw: Callable[[FigureData], "Drawing"]
