"""A logistic reward model: one linear map of the context per action.

Rewards are scaled from their range to values v in [0, 1], so predictions lie within the range of the known rewards:

    E[v | x, a] = 1/(1 + exp(−z)),    z = (W_a + W_·)·x̃ + b_a + b,    x̃ the standardised context

W_· is shared by all actions, and W_a belongs to one action: what the actions have in common is learned from all rows.
The model is fitted by Newton's method on the cross-entropy plus Gaussian priors, under which a logit has the standard
deviation `spread` from W_·, `action_spread` from W_a and `intercept_spread` from b_a. b has no prior, so that the mean
prediction on a model's training rows equals their mean reward. Values between 0 and 1 vary less than draws of 0 or 1
with the same mean would, by a factor φ; the prior is weakened by the same factor (quasi-likelihood, McCullagh & Nelder
1989).

All folds are fitted at once: model j skips the rows of fold j. Inputs and outputs are arrays; torch computes on the
given device.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

from s2bl_cli.policies.contexts import Contexts, context_tensor
from s2bl_cli.reward_models.linear_maps import Rows, Standardisation, solve
from s2bl_cli.reward_models.reward_model import CPU, NO_FOLD, Floats, Ints
from s2bl_cli.reward_models.settings import RewardModelSettings

_LEAST = 1e-7  # a mean value of 0 would have the logit −∞
_ENOUGH = 1e-7  # stop after a Newton step that gains less than this per row
_HALVINGS = 10


@dataclass(frozen=True)
class LogisticModel:
    """A single model, or one model per fold."""

    standardise: Standardisation
    weight: Tensor  # (folds, actions, features)
    bias: Tensor  # (folds, actions)
    low: float  # the smallest known reward
    high: float  # the largest

    def predict(self, context: Contexts, fold: Ints | None = None) -> npt.NDArray[np.float32]:
        """(rows, actions) rewards. With folds, each row is predicted by the model that skipped its fold."""
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
    weight: Floats | None = None,
) -> LogisticModel:
    """One model, fitted on all of the rows (whose rewards are known)."""
    alone = replace(settings or RewardModelSettings(), folds=1)
    return cross_fit(context, action, reward, np.full(len(action), NO_FOLD), actions, alone, device, weight)


def cross_fit(
    context: npt.NDArray[np.generic],
    action: Ints,
    reward: Floats,
    fold: Ints,
    actions: int,
    settings: RewardModelSettings | None = None,
    device: torch.device = CPU,
    weight: Floats | None = None,
) -> LogisticModel:
    """One model per fold, each fitted on the rows of the other folds. `weight`: of the rows; None: 1."""
    settings = settings or RewardModelSettings()
    low, high = float(np.min(reward)), float(np.max(reward))
    value = (np.asarray(reward, np.float64) - low) / (high - low) if high > low else np.zeros(len(reward))
    learned = (np.asarray(fold)[:, None] != np.arange(settings.folds)).astype(np.float64)  # (rows, folds)
    if weight is not None:
        learned *= np.asarray(weight, np.float64)[:, None]
    chosen = _chosen(context, settings)
    rows = Rows(context[chosen], np.asarray(action)[chosen], device)
    maps = _newton(rows, value[chosen], learned[chosen], settings)
    whole = maps[-1].repeat(actions, 1, 1)  # (actions, folds, features + 1)
    whole[torch.from_numpy(rows.actions).to(device)] += maps[:-1]
    by_fold = whole.transpose(0, 1)
    return LogisticModel(rows.standardise, by_fold[..., :-1].contiguous(), by_fold[..., -1].contiguous(), low, high)


def _chosen(context: npt.NDArray[np.generic], settings: RewardModelSettings) -> Ints | slice:
    """The rows to fit on: all of them, or a sample if there are very many."""
    most = max(1000, settings.most_cells // max(1, int(np.prod(context.shape[1:]))))
    if len(context) <= most:
        return slice(None)
    return np.sort(np.random.default_rng([settings.seed, 1]).choice(len(context), most, replace=False))


def _newton(rows: Rows, value: Floats, learned: Floats, settings: RewardModelSettings) -> Tensor:
    """The maps of the logits. `learned`: the weight of each row in each fold's model, (rows, folds)."""
    total = np.maximum(learned.sum(axis=0), _LEAST)  # (folds,)
    mean = np.clip(value @ learned / total, _LEAST, 1 - _LEAST)
    dispersion = np.clip((value**2 @ learned / total - mean**2) / (mean * (1 - mean)), 1e-6, 1)
    weight, v = rows.spread(learned.astype(np.float32)), rows.spread(value[:, None].astype(np.float32))
    ridge = weight.new_empty(rows.maps, len(mean), rows.features + 1)
    of_actions = settings.spread if settings.action_spread is None else settings.action_spread
    ridge[:-1, :, :-1] = weight.new_tensor(dispersion * rows.features / of_actions**2).unsqueeze(1)
    ridge[-1, :, :-1] = weight.new_tensor(dispersion * rows.features / settings.spread**2).unsqueeze(1)
    ridge[..., -1] = weight.new_tensor(dispersion / settings.intercept_spread**2)
    ridge[-1, :, -1] = 0.0
    maps = torch.zeros_like(ridge)
    maps[-1, :, -1] = weight.new_tensor(np.log(mean / (1 - mean)))
    z = maps[-1, :, -1:].expand_as(weight).clone()  # (blocks, folds, rows)

    def loss(z: Tensor, maps: Tensor) -> Tensor:
        return ((softplus(z) - v * z) * weight).sum((0, 2)) + (ridge * maps**2).sum((0, 2)) / 2  # (folds,)

    before, gain = loss(z, maps), weight.new_full((len(mean),), np.inf)
    for _ in range(settings.newton_steps):
        p = z.sigmoid()
        slope = rows.gradient((p - v) * weight) + ridge * maps
        step, along = solve(rows, p * (1 - p) * weight, ridge, -slope, settings.gradient_steps)
        length = (gain > _ENOUGH).to(z.dtype).unsqueeze(1)
        for _ in range(_HALVINGS):  # a step that overshoots is halved
            after = loss(z + length * along, maps + length * step)
            if not bool((after > before).any()):
                break
            length = torch.where((after > before).unsqueeze(1), length / 2, length)
        maps += length * step
        z += length * along
        gain, before = (before - after) / weight.new_tensor(total), after
        if not bool((gain > _ENOUGH).any()):
            break
    maps[-1, :, -1] += z.new_tensor(_intercepts(z, weight, mean, total))
    return maps


def _intercepts(z: Tensor, weight: Tensor, mean: Floats, total: Floats) -> Floats:
    """The intercepts that make each fold's mean prediction equal its mean value. The steps above come close; this is
    exact."""
    logits, weights = (tensor.cpu().double() for tensor in (z, weight))
    shift = np.zeros(len(mean))
    for _ in range(50):
        p = (logits + torch.from_numpy(shift).unsqueeze(1)).sigmoid_()
        excess = (p * weights).sum((0, 2)).numpy() / total - mean
        slope = (p * (1 - p) * weights).sum((0, 2)).numpy() / total
        shift -= np.clip(excess / np.maximum(slope, 1e-300), -1, 1)
        if np.abs(excess).max() < 1e-9 * mean.min():
            break
    return shift
