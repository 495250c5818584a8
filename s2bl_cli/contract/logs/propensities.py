"""The distribution of propensities, from one pass, in memory that does not grow: a histogram on a log scale.

A bin is at most 0.1 % of its value wide, and remembers the largest value it met. So a quantile is a value of the log:
exact where a log has few different propensities, at most 0.1 % too large elsewhere.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

MAX_BARS = 12

_DECADES = 46  # float32 begins at 1e-45
_BINS_PER_DECADE = 2500
_STEPS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))  # edges of bars in a decade, from fine to coarse


@dataclass(frozen=True)
class Quantiles:
    """A quantile is the smallest propensity that so many percent of the rows do not exceed."""

    min: float
    q01: float
    q10: float
    q50: float
    q90: float
    q99: float
    max: float


@dataclass(frozen=True)
class Bar:
    """The rows with low ≤ propensity < high (≤ high where high is 1)."""

    low: float
    high: float
    rows: int


class PropensityHistogram:
    """Takes propensities batch by batch. They must be in (0, 1], as the reader's batches are."""

    def __init__(self) -> None:
        self._rows = np.zeros(_DECADES * _BINS_PER_DECADE + 1, np.int64)
        self._largest = np.zeros(len(self._rows), np.float32)
        self._smallest = np.float32(1)

    def add(self, propensity: Floats) -> None:
        bins = ((np.log10(propensity, dtype=np.float64) + _DECADES) * _BINS_PER_DECADE).astype(np.int64)
        self._rows += np.bincount(bins, minlength=len(self._rows))
        np.maximum.at(self._largest, bins, propensity)
        self._smallest = propensity.min(initial=self._smallest)

    def quantiles(self) -> Quantiles | None:
        """None where there are no rows."""
        rows = int(self._rows.sum())
        if rows == 0:
            return None
        ranks = [-(-rows * percent // 100) for percent in (1, 10, 50, 90, 99, 100)]  # whole: no rounding decides a rank
        values = self._largest[np.searchsorted(np.cumsum(self._rows), ranks)]
        return Quantiles(as_decimal(self._smallest), *map(as_decimal, values))

    def bars(self) -> list[Bar]:
        """A histogram of at most MAX_BARS bars between round numbers."""
        used = np.flatnonzero(self._rows)
        if not len(used):
            return []
        # By its largest value: a bin that has nothing but 0.1 belongs above the edge 0.1.
        values = self._largest[used]
        edges = _edges(float(self._smallest), float(values[-1]))
        counts, _ = np.histogram(values, np.array(edges, np.float32), weights=self._rows[used])
        return [Bar(low, high, int(rows)) for low, high, rows in zip(edges, edges[1:], counts, strict=False)]


def _edges(smallest: float, largest: float) -> list[float]:
    """Round numbers around the values: the finest steps that need few enough bars."""
    edges: list[float] = []
    for steps in _STEPS:
        edges = [float(f"{step}e{decade}") for decade in range(-_DECADES, 0) for step in steps] + [1.0]
        below = np.searchsorted(np.array(edges[:-1], np.float32), [smallest, largest], side="right")
        edges = edges[max(0, below[0] - 1) : below[1] + 1]
        if len(edges) - 1 <= MAX_BARS:
            return edges
    return [edges[0], *edges[-MAX_BARS:]]  # the lowest decades share a bar


def as_decimal(value: np.float32) -> float:
    """A float32 as people write it: 0.1, not 0.10000000149011612."""
    return float(str(value)) + 0.0  # a reward of 0 is a cost of -0.0, which the sum makes 0
