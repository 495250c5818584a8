"""Contexts as numpy has them, on the device: in the file's dtype."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Contexts = npt.NDArray[np.generic] | Tensor  # (rows, *shape)


def context_tensor(context: Contexts, device: torch.device) -> Tensor:
    """Shares the array's memory where it can. What Arrow lends is read-only, which torch warns of: that is copied.
    A tensor on the device is returned as it is, so that a batch for several models is converted once."""
    if isinstance(context, Tensor):
        return context.to(device)
    whole = np.ascontiguousarray(context)
    return torch.from_numpy(whole if whole.flags.writeable else whole.copy()).to(device)
