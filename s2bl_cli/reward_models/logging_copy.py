"""A copy of the logging policy, for its log-probabilities of all actions, if the log has only those of the logged ones.

    log π̂₀(a|x) = log softmax(W·(x̃, 1))_a,    minimise Σ (log π̂₀(aᵢ|xᵢ) − log pᵢ)² + α‖W‖²

x̃ is the standardised context. A propensity is a label without noise, so a few thousand rows are enough. Fitted by
Gauss-Newton steps, each a linear regression (`newton.py`). A copy is used only if it predicts the propensities of rows
that it was not fitted on: a poor one would be another feature of the logged actions than of the others.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from s2bl_cli.policies.contexts import Contexts, context_tensor
from s2bl_cli.reward_models.linear_maps import Standardisation
from s2bl_cli.reward_models.newton import Limits, minimise
from s2bl_cli.reward_models.reward_model import CPU, Ints

_MOST_ROWS = 20_000
_PRODUCTS = 1 << 25  # rows × features × actions
_LEAST_ROWS = 200
_HELD_OUT = 5  # every fifth row
_LEAST_EXPLAINED = 0.5  # of the variance of log p in held-out rows
_PENALTY = 0.01
_STEPS, _HALVINGS = 12, 6
_ENOUGH = 1e-3  # stop after a step that lowers the loss by less than this share
_LIMITS = Limits(newton_steps=1, gradient_steps=15)

Propensities = npt.NDArray[np.floating[Any]]


def rows_to_copy(features: int, actions: int) -> int:
    """The number of rows to fit on: 0 if the copy would take too long."""
    rows = min(_MOST_ROWS, _PRODUCTS // (features * actions))
    return rows if rows >= _LEAST_ROWS else 0


@dataclass(frozen=True)
class LoggingCopy:
    """A fitted copy."""

    standardise: Standardisation
    weight: Tensor  # (actions, features + 1)

    @torch.no_grad()
    def log_probabilities(self, context: Contexts) -> Tensor:
        """(rows, actions)"""
        x = self.standardise(context_tensor(context, self.weight.device))
        return torch.log_softmax(torch.addmm(self.weight[:, -1], x, self.weight[:, :-1].T), dim=1)


@torch.no_grad()
def fit_logging_copy(
    context: npt.NDArray[np.generic], action: Ints, propensity: Propensities, actions: int, device: torch.device = CPU
) -> LoggingCopy | None:
    """None if the copy does not predict held-out propensities. A uniform logging policy has nothing to copy."""
    log_p = torch.from_numpy(np.log(np.asarray(propensity, np.float64))).to(device, torch.float32)
    held_out = torch.arange(len(log_p), device=device) % _HELD_OUT == 0
    if len(log_p) < _LEAST_ROWS or float(log_p.std()) < 1e-6:
        return None
    standardise = Standardisation(context, device)
    x = standardise(context_tensor(context, device))
    taken = torch.from_numpy(np.asarray(action).astype(np.int64)).to(device)
    x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    weight = _matched(x[~held_out], taken[~held_out], log_p[~held_out], actions)
    copy = LoggingCopy(standardise, weight)
    errors = log_p[held_out] - _logged(x[held_out], taken[held_out], weight)
    return copy if float(errors.var()) < (1 - _LEAST_EXPLAINED) * float(log_p[held_out].var()) else None


def _logged(x: Tensor, action: Tensor, weight: Tensor) -> Tensor:
    return torch.log_softmax(x @ weight.T, dim=1).gather(1, action[:, None]).squeeze(1)


def _matched(x: Tensor, action: Tensor, log_p: Tensor, actions: int) -> Tensor:
    """(actions, features + 1)"""
    weight = x.new_zeros(actions, 1, x.shape[1])
    ridge = torch.full_like(weight, _PENALTY)
    ones = x.new_ones(len(x), 1)

    def loss(weight: Tensor) -> float:
        errors = log_p - _logged(x, action, weight[:, 0])
        return float((errors**2).sum() + (ridge * weight**2).sum())

    before = loss(weight)
    for _ in range(_STEPS):
        design = _Tangent(x, action, torch.softmax(x @ weight[:, 0].T, dim=1))
        errors = (log_p - _logged(x, action, weight[:, 0])).unsqueeze(1)
        goal, _ = minimise(design, errors + design.predict(weight), ones, ridge, weight, logistic=False, limits=_LIMITS)
        length = 1.0
        for _ in range(_HALVINGS):
            moved = weight + length * (goal - weight)
            after = loss(moved)
            if after < before:
                break
            length /= 2
        else:
            break
        weight, gain, before = moved, before - after, after
        if gain < _ENOUGH * before:
            break
    return weight[:, 0]


class _Tangent:
    """The derivative of log softmax(W·x)_a in W, (actions, 1, features), at the probabilities π of all actions."""

    def __init__(self, x: Tensor, action: Tensor, pi: Tensor) -> None:
        self._x = x
        self._difference = one_hot(action, pi.shape[1]).to(pi) - pi  # (rows, actions)

    def predict(self, parameters: Tensor) -> Tensor:
        return (self._difference * (self._x @ parameters[:, 0].T)).sum(1, keepdim=True)

    def transposed(self, errors: Tensor) -> Tensor:
        return ((self._difference * errors).T @ self._x).unsqueeze(1)

    def curved(self, parameters: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
        eta = self.predict(parameters)
        return eta, self.transposed(curvature * eta)

    def diagonal(self, curvature: Tensor) -> Tensor:
        """Features have a variance of about 1."""
        return (self._difference**2 * curvature).sum(0).view(-1, 1, 1)
