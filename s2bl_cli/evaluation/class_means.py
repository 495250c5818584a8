"""A mean and its standard error for every class, of values that arrive in batches."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt


class RunningClassMeans:
    """A mean and its standard error for every class: values in [0, 1], so plain sums of squares keep their digits."""

    def __init__(self, classes: int) -> None:
        self._counts = np.zeros(classes, np.int64)
        self._sums = np.zeros(classes)
        self._squares = np.zeros(classes)

    def add(self, values: npt.NDArray[np.floating[Any]], label: npt.NDArray[np.integer[Any]]) -> None:
        classes = len(self._counts)
        self._counts += np.bincount(label, minlength=classes)
        self._sums += np.bincount(label, values, minlength=classes)
        self._squares += np.bincount(label, np.square(values), minlength=classes)

    def means(self) -> list[tuple[int, int, float, float | None]]:
        """Of the classes that have rows: class, rows, mean, standard error."""
        found = []
        for label in np.flatnonzero(self._counts):
            count = int(self._counts[label])
            mean = float(self._sums[label] / count)
            variance = max(0.0, float(self._squares[label]) - count * mean**2) / (count - 1) if count > 1 else None
            found.append((int(label), count, mean, None if variance is None else math.sqrt(variance / count)))
        return found
