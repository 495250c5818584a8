"""Mean and standard error of values that arrive in batches; memory does not grow with their number."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt


class RunningMean:
    """Chan's parallel update of mean and sum of squares, in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, values: npt.NDArray[np.floating[Any]]) -> None:
        if not len(values):
            return
        mean, count = float(values.mean(dtype=np.float64)), len(values)
        squares = float(np.square(np.subtract(values, mean, dtype=np.float64)).sum())
        delta, total = mean - self.mean, self.count + count
        self._squares += squares + delta**2 * self.count * count / total
        self.mean += delta * count / total
        self.count = total

    @property
    def standard_error(self) -> float | None:
        """Of the mean; None where fewer than two values leave it unknown."""
        if self.count < 2:
            return None
        return math.sqrt(self._squares / (self.count - 1) / self.count)
