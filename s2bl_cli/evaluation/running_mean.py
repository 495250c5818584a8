"""Mean, standard error and interval of values that arrive in batches; memory does not grow with their number."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Z_95 = 1.959963984540054  # the normal distribution's 97.5 % quantile


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

    def interval(self) -> tuple[float, float] | tuple[None, None]:
        """The normal 95 % interval."""
        error = self.standard_error
        if error is None:
            return None, None
        return self.mean - Z_95 * error, self.mean + Z_95 * error
