"""Reward models that are linear in the context: one linear map per action, plus one that all actions share.

    η(x, a) = (W_a + W_·)·x̃ + b_a + b + s·f̃(x, a),    x̃ the standardised context

f are given scores of the actions, such as the log-probabilities of the logging policy; s is the same for all actions.
`logistic.py` and `ridge.py` say how rewards are scaled and how they follow from η. Under the prior, W·x̃ and b_a each
have the standard deviation `spread`, unless the settings have another one for W_a or b_a. b and s have no prior, so
that the mean prediction on a model's training rows equals their mean reward.

All folds are fitted at once: model j skips the rows of fold j. Inputs and outputs are arrays; torch computes on the
given device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.policies.contexts import Contexts, context_tensor
from s2bl_cli.reward_models.linear_maps import CHUNK_CELLS, Rows, Standardisation
from s2bl_cli.reward_models.newton import Limits, minimise
from s2bl_cli.reward_models.reward_model import CPU, Floats, Ints, shifts_to_the_mean
from s2bl_cli.reward_models.settings import RewardModelSettings

_LEAST = 1e-7  # a mean value of 0 would have the logit −∞
_TOLERANCE = 1e-3
_SELECTION_GROUPS = 5  # of folds; the strength for a group is chosen without its rows
_SELECTION_ROWS, _SELECTION_CELLS = 20_000, 1 << 21  # rows, and rows × features
_SELECTION_MAPS = 1 << 26  # actions × features × regressions, 256 MB


@dataclass(frozen=True)
class Link:
    """How rewards follow from η: reward = low + scale·v, where v is η, or 1/(1 + exp(−η))."""

    logistic: bool
    low: float
    scale: float

    def values(self, reward: Floats) -> npt.NDArray[np.float64]:
        """v of rewards; 0 if all rewards are equal."""
        values: npt.NDArray[np.float64] = np.zeros(len(reward))
        if self.scale > 0:
            values = (np.asarray(reward, np.float64) - self.low) / self.scale
        return values

    def rewards(self, eta: Tensor) -> npt.NDArray[np.float32]:
        rewards: npt.NDArray[np.float32] = (eta.sigmoid() if self.logistic else eta).cpu().numpy()
        rewards = rewards * np.float32(self.scale)
        rewards += np.float32(self.low)
        return rewards


class Scores(NamedTuple):
    """The standardisation of scores by the logged scores. Others are limited to their range, because nothing is known
    about rewards beyond it."""

    shift: float
    scale: float  # 0 if the logged scores are equal
    low: float
    high: float

    @classmethod
    def of(cls, logged: Floats) -> "Scores":
        std = float(np.std(logged))
        scale = 1 / std if std > _LEAST else 0.0
        return cls(float(np.mean(logged)), scale, float(np.min(logged)), float(np.max(logged)))

    def standardised(self, scores: Tensor) -> Tensor:
        return (scores.clamp(self.low, self.high) - self.shift) * self.scale


@dataclass(frozen=True)
class LinearModel:
    """A single model, or one model per fold."""

    standardise: Standardisation
    weight: Tensor  # (folds, actions, features)
    bias: Tensor  # (folds, actions)
    slope: Tensor  # (folds,) s; 0 without scores
    link: Link
    scores: Scores | None

    def predict(
        self, context: Contexts, fold: Ints | None = None, scores: Tensor | None = None
    ) -> npt.NDArray[np.float32]:
        """(rows, actions) rewards. With folds, each row is predicted by the model that skipped its fold."""
        x = context_tensor(context, self.bias.device)
        folds, actions = self.bias.shape
        if fold is None or folds == 1:
            return self._rewards(x, 0, scores)
        rewards = np.empty((len(context), actions), np.float32)
        for j in range(folds):
            rows = np.flatnonzero(fold == j)
            chosen = torch.from_numpy(rows).to(x.device)
            rewards[rows] = self._rewards(x[chosen], j, None if scores is None else scores[chosen])
        return rewards

    @torch.no_grad()
    def _rewards(self, x: Tensor, fold: int, scores: Tensor | None) -> npt.NDArray[np.float32]:
        at_once = max(1, CHUNK_CELLS // max(1, self.weight.shape[2]))
        parts = [
            torch.addmm(self.bias[fold], self.standardise(part), self.weight[fold].T)
            for part in torch.split(x, at_once)
        ]
        eta = torch.cat(parts)
        if self.scores is not None:
            assert scores is not None, "a model that was fitted with scores needs those of all actions"
            eta += self.slope[fold] * self.scores.standardised(scores.to(eta))
        return self.link.rewards(eta)


class Training(NamedTuple):
    """The rows that models are fitted on. Models differ in the weights that they give to the rows."""

    context: npt.NDArray[np.generic]
    action: Ints
    value: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]  # (rows,)
    fold: Ints
    score: Floats | None  # (rows,) of the logged actions

    def take(self, chosen: Ints | slice) -> "Training":
        context, action, value, weight, fold, score = self
        score = None if score is None else score[chosen]
        return Training(context[chosen], action[chosen], value[chosen], weight[chosen], fold[chosen], score)

    def without_folds(self, folds: int) -> npt.NDArray[np.float64]:
        """The weights in one model per fold, (rows, folds)."""
        learned: npt.NDArray[np.float64] = (self.fold[:, None] != np.arange(folds)) * self.weight[:, None]
        return learned


def cross_fit_linear(
    context: npt.NDArray[np.generic],
    action: Ints,
    reward: Floats,
    fold: Ints,
    actions: int,
    link: Link,
    settings: RewardModelSettings,
    spreads: Sequence[float],
    device: torch.device = CPU,
    weight: Floats | None = None,
    score: Floats | None = None,
) -> LinearModel:
    """One model per fold, each fitted on the rows of the other folds. `spreads`: to choose from, for each fold on the
    other folds alone."""
    rows = Training(
        context,
        np.asarray(action),
        link.values(reward),
        np.ones(len(action)) if weight is None else np.asarray(weight, np.float64),
        np.asarray(fold),
        score,
    ).take(sampled_rows(context, settings.most_cells, settings.seed, 1))
    spread = _selected(rows, link, settings, spreads, device)
    scores = None if rows.score is None else Scores.of(rows.score)
    design = Rows(rows.context, rows.action, device, _standardised(rows.score, scores))
    maps = _fit(design, rows.value, rows.without_folds(settings.folds), spread, link, settings)[0]
    whole = maps[-1].repeat(actions, 1, 1)  # (actions, folds, inputs)
    whole[torch.from_numpy(design.actions).to(device)] += maps[:-1]
    by_fold = whole.transpose(0, 1)
    features = design.features
    slope = maps[-1, :, features] if scores is not None else torch.zeros_like(maps[-1, :, 0])
    weights, bias = by_fold[..., :features].contiguous(), by_fold[..., -1].contiguous()
    return LinearModel(design.standardise, weights, bias, slope.clone(), link, scores)


def sampled_rows(context: npt.NDArray[np.generic], cells: int, seed: int, stream: int) -> Ints | slice:
    """The rows to fit on: all of them, or a sample if there are very many."""
    most = max(1000, cells // max(1, int(np.prod(context.shape[1:]))))
    if len(context) <= most:
        return slice(None)
    return np.sort(np.random.default_rng([seed, stream]).choice(len(context), most, replace=False))


def _standardised(score: Floats | None, scores: Scores | None) -> npt.NDArray[np.float32] | None:
    if score is None or scores is None:
        return None
    return scores.standardised(torch.from_numpy(np.asarray(score, np.float64))).numpy().astype(np.float32)


def _selected(
    rows: Training, link: Link, settings: RewardModelSettings, spreads: Sequence[float], device: torch.device
) -> npt.NDArray[np.float64]:
    """The spread for each fold, (folds,).

    Folds are arranged in groups. For each pair of groups, models are fitted on the rows of neither. The spread for the
    folds of a group is the one whose models, fitted without the group, best predict the others. No row of a fold,
    therefore, has a part in the choice for that fold. Fewer than three groups leave nothing to choose on: the first
    spread is taken."""
    groups = min(settings.folds, _SELECTION_GROUPS)
    if len(spreads) == 1 or groups < 3:
        return np.full(settings.folds, spreads[0])
    cells = min(_SELECTION_CELLS, _SELECTION_ROWS * int(np.prod(rows.context.shape[1:])))
    rows = rows.take(sampled_rows(rows.context, cells, settings.seed, 4))
    group_of_fold = np.arange(settings.folds) * groups // settings.folds
    group = group_of_fold[rows.fold]
    pairs = np.array([(one, other) for one in range(groups) for other in range(one)])  # (pairs, 2)
    in_pair = (group[:, None, None] == pairs).any(axis=2)  # (rows, pairs)
    learned = np.where(in_pair, 0.0, rows.weight[:, None])
    scores = None if rows.score is None else Scores.of(rows.score)
    design = Rows(rows.context, rows.action, device, _standardised(rows.score, scores))
    at_once = max(1, _SELECTION_MAPS // (design.maps * design.inputs * len(pairs)))
    losses = np.empty((groups, len(spreads)))  # of the others, without the group
    for first in range(0, len(spreads), at_once):
        some = np.asarray(spreads[first : first + at_once])
        weights, spread = np.tile(learned, len(some)), np.repeat(some, len(pairs))
        eta = design.gathered(_fit(design, rows.value, weights, spread, link, settings)[1])  # (rows, regressions)
        expected = (eta.sigmoid() if link.logistic else eta).cpu().numpy().astype(np.float64)
        errors = (expected.reshape(len(group), len(some), -1) - rows.value[:, None, None]) ** 2 * rows.weight[
            :, None, None
        ]
        for number in range(groups):
            others = [
                errors[group == pair[pair != number][0], :, index].sum(axis=0)
                for index, pair in enumerate(pairs)
                if number in pair
            ]
            losses[number, first : first + at_once] = np.sum(others, axis=0)
    chosen: npt.NDArray[np.float64] = np.asarray(spreads)[losses.argmin(axis=1)][group_of_fold]
    return chosen


def _fit(
    design: Rows,
    value: npt.NDArray[np.float64],
    learned: npt.NDArray[np.float64],
    spread: npt.NDArray[np.float64],
    link: Link,
    settings: RewardModelSettings,
) -> tuple[Tensor, Tensor]:
    """The maps of several models, and their η. `learned`: the weight of each row in each model, (rows, models);
    `spread`: (models,)."""
    total = np.maximum(learned.sum(axis=0), _LEAST)  # (models,)
    mean, square = value @ learned / total, value**2 @ learned / total
    variance = np.ones(len(total))
    if link.logistic:
        mean = np.clip(mean, _LEAST, 1 - _LEAST)
        variance = np.clip((square - mean**2) / (mean * (1 - mean)), 1e-6, 1)  # quasi-likelihood
    weight, v = design.spread(learned.astype(np.float32)), design.spread(value[:, None].astype(np.float32))
    ridge = weight.new_tensor(variance / spread**2).unsqueeze(1).expand(design.maps, -1, design.inputs).clone()
    ridge[..., : design.features] *= design.features
    if settings.action_spread is not None:
        ridge[:-1, :, : design.features] *= ridge.new_tensor((spread / settings.action_spread) ** 2).unsqueeze(1)
    if settings.intercept_spread is not None:
        ridge[:-1, :, -1] = ridge.new_tensor(variance / settings.intercept_spread**2)
    ridge[-1, :, design.features :] = 0.0  # s and b
    maps = torch.zeros_like(ridge)
    maps[-1, :, -1] = weight.new_tensor(np.log(mean / (1 - mean)) if link.logistic else mean)
    limits = Limits(settings.newton_steps, settings.gradient_steps, _TOLERANCE)
    maps, eta = minimise(design, v, weight, ridge, maps, logistic=link.logistic, limits=limits)
    shift = shifts_to_the_mean(eta, weight, mean, total, logistic=link.logistic)
    maps[-1, :, -1] += maps.new_tensor(shift)
    return maps, eta + eta.new_tensor(shift).unsqueeze(1)
