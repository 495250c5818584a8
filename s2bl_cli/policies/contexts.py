"""Contexts on their way into a network: as tensors, and standardised by the moments of rows, (x − shift)·scale."""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.running_moments import RunningMoments

_RARE = 0.1

Floats = npt.NDArray[np.float32]
Contexts = npt.NDArray[np.generic] | Tensor  # (rows, *shape)


def context_tensor(context: Contexts, device: torch.device) -> Tensor:
    """On the device, in the file's dtype. Shares the array's memory where it can. What Arrow lends is read-only, which
    torch warns of: that is copied. A tensor on the device is returned as it is, so that a batch for several models is
    converted once."""
    if isinstance(context, Tensor):
        return context.to(device)
    whole = np.ascontiguousarray(context)
    return torch.from_numpy(whole if whole.flags.writeable else whole.copy()).to(device)


def feature_moments(context: npt.NDArray[np.generic]) -> RunningMoments:
    """Of contexts (rows, *shape)."""
    moments = RunningMoments()
    moments.add(flattened(context))
    return moments


def flattened(context: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """(rows, *shape) → (rows, features), of no rows too."""
    return context.reshape(len(context), math.prod(context.shape[1:]))


def standardisation(moments: RunningMoments) -> tuple[Floats, Floats]:
    """Shift and scale: (features,) each."""
    std = np.asarray(moments.std)
    # A pixel that is almost always 0 has a tiny deviation; dividing by it would let a few rows dominate.
    floor = _RARE * float(np.sqrt(np.mean(std**2)))
    scale = 1 / np.maximum(std, floor) if floor > 0 else np.ones_like(std)
    scale = np.minimum(scale, np.finfo(np.float32).max)  # contexts below 1e-38 would make it infinite
    return np.asarray(moments.mean).astype(np.float32), scale.astype(np.float32)
