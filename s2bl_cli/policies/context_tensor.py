"""Contexts as numpy has them, on the device: in the file's dtype."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def context_tensor(context: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """Shares the array's memory where it can. What Arrow lends is read-only, which torch warns of: that is copied."""
    whole = np.ascontiguousarray(context)
    return torch.from_numpy(whole if whole.flags.writeable else whole.copy()).to(device)
