"""The distribution of propensities, from one pass in constant memory: a histogram on a log scale.

A bin is at most 0.1 % of its value wide, and stores the largest value in it. So a quantile is a value of the log. It is
exact if the log has few different propensities, and otherwise at most 0.1 % too large.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

MAX_BARS = 12

_DECADES = 46  # the smallest float32 is about 1e-45
_BINS_PER_DECADE = 2500
_STEPS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))  # edges of the bars within a decade, from fine to coarse


@dataclass(frozen=True)
class Quantiles:
    """The q % quantile is the smallest propensity that q % of the rows do not exceed."""

    min: float
    q01: float
    q10: float
    q50: float
    q90: float
    q99: float
    max: float


@dataclass(frozen=True)
class Bar:
    """The number of rows with low ≤ propensity < high (≤ high if high is 1)."""

    low: float
    high: float
    rows: int


class PropensityHistogram:
    """Counts propensities batch by batch. They must be in (0, 1], which the reader checks."""

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
        """None if there are no rows."""
        rows = int(self._rows.sum())
        if rows == 0:
            return None
        ranks = [
            -(-rows * percent // 100) for percent in (1, 10, 50, 90, 99, 100)
        ]  # in integers, so ranks have no rounding errors
        values = self._largest[np.searchsorted(np.cumsum(self._rows), ranks)]
        return Quantiles(as_decimal(self._smallest), *map(as_decimal, values))

    def bars(self) -> list[Bar]:
        """A histogram of at most MAX_BARS bars with round edges."""
        used = np.flatnonzero(self._rows)
        if not len(used):
            return []
        # Assign bins by their largest value: a bin that contains only 0.1 belongs above the edge 0.1.
        values = self._largest[used]
        edges = _edges(float(self._smallest), float(values[-1]))
        counts, _ = np.histogram(values, np.array(edges, np.float32), weights=self._rows[used])
        return [Bar(low, high, int(rows)) for low, high, rows in zip(edges, edges[1:], counts, strict=False)]


def _edges(smallest: float, largest: float) -> list[float]:
    """Round numbers around the values, as fine as MAX_BARS allows."""
    edges: list[float] = []
    for steps in _STEPS:
        edges = [float(f"{step}e{decade}") for decade in range(-_DECADES, 0) for step in steps] + [1.0]
        below = np.searchsorted(np.array(edges[:-1], np.float32), [smallest, largest], side="right")
        edges = edges[max(0, below[0] - 1) : below[1] + 1]
        if len(edges) - 1 <= MAX_BARS:
            return edges
    return [edges[0], *edges[-MAX_BARS:]]  # the lowest decades share a bar


def as_decimal(value: np.float32) -> float:
    """The shortest decimal of a float32: 0.1, not 0.10000000149011612."""
    return float(str(value)) + 0.0  # + 0.0 turns -0.0, the cost of a reward of 0, into 0
