"""Nonlinear features of a context: the standardised context beside max(0, B x + b) with B and b drawn, not learned.

A linear map of them is a network of one hidden layer whose first layer stays as it was drawn, so whatever fits
linear maps fits it. Source: Rahimi & Recht 2007; Huang et al. 2006.
"""

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.policies.context_tensor import Contexts, context_tensor
from s2bl_cli.reward_models.action_logits import Standardisation


class RandomFeatures:
    """Moments are those of the contexts given here; B and b follow the seed."""

    def __init__(self, context: npt.NDArray[np.generic], hidden: int, seed: int, device: torch.device) -> None:
        rng = np.random.default_rng([seed, 3])
        self._device = device
        self._standardise = Standardisation(context).to(device)
        size = self._standardise.shift.numel()
        drawn = rng.standard_normal((size, hidden)) / np.sqrt(size)
        self._weight = torch.from_numpy(drawn.astype(np.float32)).to(device)  # (features, hidden)
        self._bias = torch.from_numpy((0.5 * rng.standard_normal(hidden)).astype(np.float32)).to(device)

    @torch.no_grad()
    def __call__(self, context: Contexts) -> npt.NDArray[np.float32]:
        """(rows, features + hidden)"""
        x = self._standardise(context_tensor(context, self._device))
        hidden = torch.addmm(self._bias, x, self._weight).relu_()
        features: npt.NDArray[np.float32] = torch.cat([x, hidden], dim=1).cpu().numpy()
        return features
