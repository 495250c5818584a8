"""A model of the expected reward E[r | x, a] of every action.

    model = fit_reward_model(context, action, reward, actions=10)
    model.predict(context)            # (rows, actions) expected rewards

    fold = assign_folds(known, folds=5, seed=0)
    models = cross_fit(context[known], action[known], reward[known], fold[known], actions=10)
    models.predict(context, fold)     # each row by the model that has not learned from it

Rewards are scaled from their range to [0, 1], so predictions lie inside the range of the known ones. They are fitted by
a ridge logistic regression, one linear map per action:

    logit(x, a) = (W_a + W_·)·x̃ + b_a + b,    x̃ the standardised context

W_· is shared by the actions, W_a is the action's alone: what the actions have in common is learned from all rows.
Fitted by Adam on the cross-entropy of the logged actions' values plus Gaussian priors under which a logit has the
standard deviation `spread`. The second half of the iterates is averaged, so that the noise of the batches goes.

All folds are fitted at once, by one wide product per step: model j skips the rows of fold j. Arrays in, arrays out;
torch computes on the device that is given.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from s2bl_cli.policies.contexts import Contexts, context_tensor, feature_moments, standardisation
from s2bl_cli.policies.optimizers import Adam
from s2bl_cli.reward_models.settings import RewardModelSettings

CPU = torch.device("cpu")

_NO_FOLD = -1  # of a row that every model may learn from

_FEW_ACTIONS = 64  # up to so many, the logits of all actions cost less than gathering the logged ones' weights

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


class Standardisation:
    """(x − shift)·scale, with moments from the rows that are fitted."""

    def __init__(self, context: npt.NDArray[np.generic], device: torch.device = CPU) -> None:
        moments = standardisation(feature_moments(context))
        self.shift, self.scale = (torch.from_numpy(values).to(device) for values in moments)

    def __call__(self, context: Tensor) -> Tensor:
        return (context.flatten(1).to(torch.float32) - self.shift) * self.scale  # (rows, features)


@dataclass(frozen=True)
class RewardModel:
    """Expected rewards of all actions; of one model, or of one per fold."""

    standardise: Standardisation
    weight: Tensor  # (folds, actions, features)
    bias: Tensor  # (folds, actions)
    low: float  # the smallest known reward
    high: float  # the largest

    def predict(self, context: Contexts, fold: Ints | None = None) -> npt.NDArray[np.float32]:
        """(rows, actions) rewards. With folds, each row by the model that skipped the row's fold."""
        x = context_tensor(context, self.bias.device)
        folds, actions = self.bias.shape
        if fold is None or folds == 1:
            return self._rewards(x, 0)
        rewards = np.empty((len(context), actions), np.float32)
        for j in range(folds):
            rows = np.flatnonzero(fold == j)
            rewards[rows] = self._rewards(x[torch.from_numpy(rows).to(x.device)], j)
        return rewards

    @torch.no_grad()
    def _rewards(self, x: Tensor, fold: int) -> npt.NDArray[np.float32]:
        logits = torch.addmm(self.bias[fold], self.standardise(x), self.weight[fold].T)
        scaled: npt.NDArray[np.float32] = logits.sigmoid_().cpu().numpy()
        scaled *= np.float32(self.high - self.low)
        scaled += np.float32(self.low)
        return scaled


def fit_reward_model(
    context: npt.NDArray[np.generic],
    action: Ints,
    reward: Floats,
    actions: int,
    settings: RewardModelSettings | None = None,
    device: torch.device = CPU,
) -> RewardModel:
    """One model, learned from all of the rows (whose rewards are known)."""
    alone = replace(settings or RewardModelSettings(), folds=1)
    return cross_fit(context, action, reward, np.full(len(action), _NO_FOLD), actions, alone, device)


def cross_fit(
    context: npt.NDArray[np.generic],
    action: Ints,
    reward: Floats,
    fold: Ints,
    actions: int,
    settings: RewardModelSettings | None = None,
    device: torch.device = CPU,
) -> RewardModel:
    """One model per fold, each learned from the rows of the other folds."""
    low, high = float(np.min(reward)), float(np.max(reward))
    scaled = (np.asarray(reward, np.float64) - low) / (high - low) if high > low else np.zeros(len(reward))
    fitted = _fit_logits(context, action, scaled, fold, actions, settings or RewardModelSettings(), device)
    return RewardModel(*fitted, low, high)


def assign_folds(known: npt.NDArray[np.bool_], folds: int, seed: int) -> npt.NDArray[np.int32]:
    """A fold for every row, known rows and missing ones each spread evenly; the same for the same seed."""
    fold = np.empty(len(known), np.int32)
    rng = np.random.default_rng([seed, 0])
    for rows in (np.flatnonzero(known), np.flatnonzero(~known)):
        fold[rng.permutation(rows)] = np.arange(len(rows)) % folds
    return fold


def _fit_logits(
    context: npt.NDArray[np.generic],
    action: Ints,
    value: Floats,
    fold: Ints,
    actions: int,
    settings: RewardModelSettings,
    device: torch.device,
) -> tuple[Standardisation, Tensor, Tensor]:
    """Weight (folds, actions, features) and bias (folds, actions) of the logits on standardised contexts. Model j
    learns from the rows whose fold is not j. Values are in [0, 1]."""
    standardise, folds = Standardisation(context, device), settings.folds
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
    shuffled = np.random.default_rng([settings.seed, 1]).permutation(rows)
    order = torch.from_numpy(np.resize(shuffled, steps * size)).to(device)  # one shuffle, gone round and round
    weight_ridge = features / (2 * settings.spread**2) / learned_rows  # (folds,)
    bias_ridge = 1 / (2 * settings.spread**2) / learned_rows
    mean_weight, mean_bias = torch.zeros_like(weight.data), torch.zeros_like(bias.data)  # over the second half
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
    mean_weight /= steps - steps // 2
    mean_bias /= steps - steps // 2
    whole_weight = mean_weight[:, :-1] + mean_weight[:, -1:]
    whole_bias = mean_bias[:, :-1] + mean_bias[:, -1:] + start[:, None]
    return standardise, whole_weight, whole_bias


def _logged_logits(x: Tensor, action: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The logged actions' logits by every fold's model: (batch, folds)."""
    folds, outputs, features = weight.shape
    if outputs <= _FEW_ACTIONS + 1:
        logits = (x @ weight.reshape(-1, features).T).view(-1, folds, outputs) + bias
        logged = logits.gather(2, action[:, None, None].expand(-1, folds, 1)).squeeze(2)
        return logged + logits[:, :, -1]
    logged_weight = weight[:, action] + weight[:, -1:]  # (folds, batch, features)
    return ((logged_weight * x).sum(dim=2) + bias[:, action] + bias[:, -1:]).T


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
