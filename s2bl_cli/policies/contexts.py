"""Prepares contexts for a network: converts them to tensors, and standardises them by moments, (x − shift)·scale."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.running_moments import RunningMoments

_RARE_PIXEL = 0.1
_RARE = 1 / 30  # nonzero in only a thousandth of the rows

Floats = npt.NDArray[np.float32]
Contexts = npt.NDArray[np.generic] | Tensor  # (rows, *shape)


def context_tensor(context: Contexts, device: torch.device) -> Tensor:
    """Contexts on the device, in the file's dtype. Shares the array's memory if possible. Arrays that Arrow lends are
    read-only, which torch warns about, so they are copied. A tensor on the device is returned as is, so that a batch
    for several models is converted once."""
    if isinstance(context, Tensor):
        return context.to(device)
    whole = np.ascontiguousarray(context)
    return torch.from_numpy(whole if whole.flags.writeable else whole.copy()).to(device)


class ContextMoments:
    """Moments of each feature of contexts that arrive in batches. Memory use does not depend on the number of rows."""

    def __init__(self) -> None:
        self._moments = RunningMoments()
        self._low: Any = np.inf  # (features,)
        self._high: Any = -np.inf
        self._is_image = False

    def add(self, context: npt.NDArray[np.generic]) -> None:
        """Add contexts (rows, *shape)."""
        rows = flattened(context)
        self._moments.add(rows)
        self._is_image = context.ndim > 2
        if not self._is_image and len(rows):
            self._low = np.minimum(self._low, rows.min(axis=0))
            self._high = np.maximum(self._high, rows.max(axis=0))

    @property
    def standardisation(self) -> tuple[Floats, Floats]:
        """Shift and scale, each (features,)."""
        std = np.asarray(self._moments.std)
        std = np.maximum(std, self._smallest_std(std))
        scale = 1 / np.where(std > 0, std, 1)
        scale = np.minimum(scale, np.finfo(np.float32).max)  # contexts below 1e-38 would make it infinite
        return np.asarray(self._moments.mean).astype(np.float32), scale.astype(np.float32)

    def _smallest_std(self, std: npt.NDArray[np.float64]) -> Any:
        """A feature that is almost always 0 has a tiny standard deviation, and dividing by it would let a few rows
        dominate. The pixels of an image share one unit, so a pixel's deviation is compared with those of the other
        pixels. Other features have their own units, so a feature's deviation is compared with its range."""
        return _RARE_PIXEL * np.sqrt(np.mean(std**2)) if self._is_image else _RARE * (self._high - self._low)


def standardisation(context: npt.NDArray[np.generic]) -> tuple[Floats, Floats]:
    """Shift and scale from the moments of these contexts (rows, *shape), each (features,)."""
    moments = ContextMoments()
    moments.add(context)
    return moments.standardisation


def flattened(context: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """(rows, *shape) → (rows, features), also for zero rows."""
    return context.reshape(len(context), math.prod(context.shape[1:]))
