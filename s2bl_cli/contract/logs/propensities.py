"""The distribution of propensities, from one pass, in memory that does not grow.

The bits of a positive float32, read as a whole number, grow with the float. Their upper bits are
therefore the bin of a histogram whose bins are everywhere at most 2⁻¹⁰ of their value wide: a log scale
without a logarithm. Each bin remembers the largest value it met, so a quantile is a value of the log: exact
where a log has few different propensities, at most 0.1 % too large elsewhere.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

MAX_BARS = 12

_SHIFT = np.uint32(13)  # leaves 10 of the mantissa's 23 bits
_BINS = int(np.float32(1).view(np.uint32) >> _SHIFT) + 1  # the bin of 1 is the last
_LADDERS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))  # a decade's steps, from fine to coarse
_LOWEST_DECADE = -46  # below the smallest float32


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


class PropensityTally:
    """Takes propensities batch by batch. They must be in (0, 1], as the reader's batches are."""

    def __init__(self) -> None:
        self._rows = np.zeros(_BINS, np.int64)
        self._largest = np.zeros(_BINS, np.float32)
        self._smallest = np.float32(np.inf)

    def add(self, propensity: Floats) -> None:
        bins = np.ascontiguousarray(propensity).view(np.uint32) >> _SHIFT
        np.add.at(self._rows, bins, 1)
        np.maximum.at(self._largest, bins, propensity)
        self._smallest = np.minimum(self._smallest, propensity.min(initial=np.inf))

    def quantiles(self) -> Quantiles | None:
        """None where there are no rows."""
        below = np.cumsum(self._rows)
        rows = int(below[-1])
        if rows == 0:
            return None

        def at(percent: int) -> float:
            rank = max(1, -(-rows * percent // 100))  # whole numbers: no rounding decides a rank
            return as_decimal(self._largest[np.searchsorted(below, rank)])

        return Quantiles(as_decimal(self._smallest), at(1), at(10), at(50), at(90), at(99), at(100))

    def bars(self) -> list[Bar]:
        """A histogram of at most MAX_BARS bars between round numbers."""
        used = np.flatnonzero(self._rows)
        if not len(used):
            return []
        edges = _edges(float(self._smallest), float(self._largest[used[-1]]))
        # By its largest value, not by its bounds: a bin that holds nothing but 0.1 belongs above the edge 0.1.
        bar = np.searchsorted(_float32(edges), self._largest[used], side="right") - 1
        rows = np.bincount(np.clip(bar, 0, len(edges) - 2), self._rows[used], minlength=len(edges) - 1)
        return [Bar(low, high, int(n)) for low, high, n in zip(edges, edges[1:], rows, strict=False)]


def _edges(smallest: float, largest: float) -> list[float]:
    """Round numbers around the values: the finest ladder that needs few enough bars."""
    edges: list[float] = []
    for ladder in _LADDERS:
        steps = [float(f"{step}e{decade}") for decade in range(_LOWEST_DECADE, 0) for step in ladder] + [1.0]
        values = _float32(steps)
        first = min(int(np.searchsorted(values, smallest, side="right")) - 1, len(steps) - 2)
        last = min(int(np.searchsorted(values, largest, side="right")), len(steps) - 1)
        edges = steps[max(0, first) : last + 1]
        if len(edges) - 1 <= MAX_BARS:
            return edges
    return [edges[0], *edges[-MAX_BARS:]]  # the lowest decades share a bar


def _float32(values: list[float]) -> npt.NDArray[np.float32]:
    return np.array(values, np.float64).astype(np.float32)


def as_decimal(value: np.float32) -> float:
    """A float32 as people write it: 0.1, not 0.10000000149011612."""
    return float(str(value)) + 0.0  # a reward of 0 is a cost of -0.0, which the sum makes 0
