"""Ridge logistic regression of a value in [0, 1] on context and action, one linear map an action.

    logit(x, a) = (W_a + W_·)·x̃ + b_a + b,    x̃ the standardised context

W_· is shared by the actions, W_a is an action's own: what the actions have in common is learned from all rows.
Fitted by Adam on the cross-entropy of the logged actions' values plus Gaussian priors under which a logit has the
standard deviation `spread`. The second half of the iterates is averaged, so that the noise of the batches goes.

All folds are fitted at once, by one wide product a step: model j skips the rows of fold j.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from s2bl_cli.policies.contexts import context_tensor, feature_moments, standardisation
from s2bl_cli.policies.optimizers import Adam
from s2bl_cli.reward_models.settings import RewardModelSettings

NO_FOLD = -1  # of a row that every model may learn from

_FEW_ACTIONS = 64  # up to so many, the logits of all actions cost less than gathering the logged ones' weights

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


class Standardisation:
    """(x − shift)·scale, with moments from the rows that are fitted."""

    def __init__(self, context: npt.NDArray[np.generic]) -> None:
        shift, scale = standardisation(feature_moments([context]))
        self.shift, self.scale = torch.from_numpy(shift), torch.from_numpy(scale)

    def to(self, device: torch.device) -> "Standardisation":
        self.shift, self.scale = self.shift.to(device), self.scale.to(device)
        return self

    def __call__(self, context: Tensor) -> Tensor:
        return (context.flatten(1).to(torch.float32) - self.shift) * self.scale  # (rows, features)


class ActionLogits:
    """The fitted maps of all folds."""

    def __init__(self, standardise: Standardisation, weight: Tensor, bias: Tensor) -> None:
        self._standardise = standardise
        self._weight = weight  # (folds, actions, features)
        self._bias = bias  # (folds, actions)

    @property
    def folds(self) -> int:
        return len(self._bias)

    @torch.no_grad()
    def probabilities(self, context: Tensor, fold: int = 0) -> Tensor:
        """Of every action, by one fold's model: (rows, actions)."""
        x = self._standardise(context)
        return torch.addmm(self._bias[fold], x, self._weight[fold].T).sigmoid_()


def fit_action_logits(
    context: npt.NDArray[np.generic],
    action: Ints,
    value: Floats,
    fold: Ints,
    actions: int,
    folds: int,
    settings: RewardModelSettings,
    device: torch.device,
) -> ActionLogits:
    """Fit `folds` models; model j learns from the rows whose fold is not j. Values are in [0, 1]."""
    standardise = Standardisation(context).to(device)
    x = context_tensor(context, device)  # (rows, *shape), the file's dtype
    a = torch.from_numpy(np.asarray(action, np.int64)).to(device)
    v = torch.from_numpy(np.asarray(value, np.float32)).to(device)
    learns = torch.from_numpy(np.asarray(fold)[:, None] != np.arange(folds)).to(device, torch.float32)  # (rows, folds)
    learned_rows = learns.sum(dim=0).clamp(min=1)  # (folds,)
    rows, features = len(v), standardise.shift.numel()
    start = ((learns * v[:, None]).sum(dim=0) / learned_rows).clamp(0.01, 0.99).logit()  # (folds,)
    # The last map is the one that the actions share.
    weight = nn.Parameter(torch.zeros(folds, actions + 1, features, device=device))
    bias = nn.Parameter(torch.zeros(folds, actions + 1, device=device))
    optimizer = Adam([weight, bias])
    steps, size = settings.steps(rows), min(settings.batch_size, rows)
    order = _order(rows, steps * size, settings.seed).to(device)
    weight_ridge = features / (2 * settings.spread**2) / learned_rows  # (folds,)
    bias_ridge = 1 / (2 * settings.spread**2) / learned_rows
    mean_weight, mean_bias = torch.zeros_like(weight.data), torch.zeros_like(bias.data)
    averaged = 0
    for step in range(steps):
        index = order[step * size : (step + 1) * size]
        batch, logged = standardise(x[index]), a[index]
        logits = start + _logged_logits(batch, logged, weight.data, bias.data)  # (batch, folds)
        # Each fold's mean is over the rows it learns from: a batch has size/rows of them in expectation.
        errors = (logits.sigmoid() - v[index, None]) * learns[index] * (rows / size / learned_rows)  # (batch, folds)
        weight.grad, bias.grad = _gradients(batch, logged, errors, actions + 1)
        weight.grad += 2 * weight_ridge[:, None, None] * weight.data
        bias.grad += 2 * bias_ridge[:, None] * bias.data
        optimizer.step(settings.lr)
        if step >= steps // 2:
            mean_weight += weight.data
            mean_bias += bias.data
            averaged += 1
    mean_weight /= averaged
    mean_bias /= averaged
    whole_weight = mean_weight[:, :-1] + mean_weight[:, -1:]
    whole_bias = mean_bias[:, :-1] + mean_bias[:, -1:] + start[:, None]
    return ActionLogits(standardise, whole_weight, whole_bias)


def _logged_logits(x: Tensor, action: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The logged actions' logits by every fold's model: (batch, folds)."""
    folds, outputs, features = weight.shape
    if outputs <= _FEW_ACTIONS + 1:
        logits = (x @ weight.reshape(-1, features).T).view(-1, folds, outputs) + bias
        own = logits.gather(2, action[:, None, None].expand(-1, folds, 1)).squeeze(2)
        return own + logits[:, :, -1]
    own_weight = weight[:, action] + weight[:, -1:]  # (folds, batch, features)
    return ((own_weight * x).sum(dim=2) + bias[:, action] + bias[:, -1:]).T


def _gradients(x: Tensor, action: Tensor, errors: Tensor, outputs: int) -> tuple[Tensor, Tensor]:
    """Of Σ cross-entropy with respect to weight and bias, from its derivatives by the logits, `errors`: (batch, folds).

    Written out: what autograd does beside the products costs more than the products of a small problem.
    """
    folds = errors.shape[1]
    if outputs <= _FEW_ACTIONS + 1:
        by_output = errors.new_zeros(len(x), folds, outputs)
        by_output.scatter_(2, action[:, None, None].expand(-1, folds, 1), errors[:, :, None])
        by_output[:, :, -1] = errors
        return (by_output.flatten(1).T @ x).view(folds, outputs, -1), by_output.sum(dim=0)
    weight = errors.new_zeros(folds, outputs, x.shape[1])
    weight.index_add_(1, action, errors.T[:, :, None] * x)
    weight[:, -1] = errors.T @ x
    bias = errors.new_zeros(folds, outputs)
    bias.index_add_(1, action, errors.T)
    bias[:, -1] = errors.sum(dim=0)
    return weight, bias


def _order(rows: int, needed: int, seed: int) -> Tensor:
    """Rows in the order they are seen: one shuffle, gone round and round."""
    shuffled = np.random.default_rng([seed, 1]).permutation(rows)
    return torch.from_numpy(np.resize(shuffled, needed))
