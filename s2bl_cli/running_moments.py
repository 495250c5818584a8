"""Mean and standard deviation of values that arrive in batches; memory does not grow with their number."""

from typing import Any

import numpy as np
import numpy.typing as npt

_ROWS_AT_ONCE = 8192


class RunningMoments:
    """Moments of numbers, or of each feature of rows: Chan, Golub & LeVeque 1983, in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Any = 0.0  # a number or (features,)
        self._squares: Any = 0.0  # of the deviations from the mean

    def add(self, values: npt.NDArray[Any]) -> None:
        """Values (rows,) or (rows, features)."""
        if self.count == 0 and len(values):
            self.mean = np.asarray(values[0], np.float64)  # sums about a value near the mean lose no digits
        for start in range(0, len(values), _ROWS_AT_ONCE):
            part = np.subtract(values[start : start + _ROWS_AT_ONCE], self.mean, dtype=np.float64)
            added, total = len(part), self.count + len(part)
            apart = part.sum(axis=0) / added
            self._squares += np.einsum("i...,i...->...", part, part) - added * apart**2
            self._squares += apart**2 * (self.count * added / total)
            self.mean = self.mean + apart * (added / total)
            self.count = total

    @property
    def std(self) -> Any:
        return np.sqrt(np.maximum(self._squares / max(self.count, 1), 0))
