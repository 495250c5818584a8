"""Expected rewards, in [0, 1], from models fitted on the known rows. They fill in missing costs (`pseudo`) and provide
reward weights (`cce`).

A reward is the negated cost, scaled by the range of the known costs: 1 for the lowest cost, 0 for the highest.

Rewards are predicted by a reward model or by a calibration of the propensity, which is known for every row. The
calibration is a monotone curve through the known rows (isotonic regression, with the direction taken from the data),
shrunk towards the mean by as much as it fails on unseen rows. If the propensity predicts nothing, the curve is flat.
Reward weights also need a baseline, the expected reward of the context: a logistic regression without the action.

Known rows are predicted by models that were not trained on them. A prediction that contains a row's own reward would be
high for lucky rows, and would favour actions whose rewards vary.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.reward_models.logistic import cross_fit, fit_reward_model
from s2bl_cli.reward_models.reward_model import NO_FOLD, Floats, Ints
from s2bl_cli.reward_models.settings import RewardModelSettings
from s2bl_cli.row_hash import uniform_hash
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import Statistics, TrainRows

_FOLDS, _FOLD_SEED = 5, 0xE5
_LEAST_ROWS = 20  # fewer rows do not show how a model does on unseen ones
_Z_95 = 1.96
_LARGEST_WEIGHT = 20.0  # per row: otherwise rare actions would dominate the others
# A rough model is enough.
_BASELINE = RewardModelSettings(folds=_FOLDS, spread=0.3, intercept_spread=0.3, most_cells=1 << 22)


class KnownRewards(NamedTuple):
    """Rows to learn from; all fields are (rows,)."""

    rows: LogArrays
    reward: Floats
    weight: Floats
    fold: Ints

    @property
    def mean(self) -> float:
        return float(np.average(self.reward, weights=self.weight)) if len(self.reward) else 0.0

    @property
    def is_too_little(self) -> bool:
        return _is_too_little(self.reward, self.fold)


def _is_too_little(reward: Floats, fold: Ints) -> bool:
    """Whether there is too little to learn from. All rows may belong to one cluster, and so to one fold."""
    return len(reward) < _LEAST_ROWS or bool(reward.min() == reward.max()) or bool((fold == fold[0]).all())


class Expectation(NamedTuple):
    """A fitted model of rewards."""

    reward: Callable[[LogArrays, Ints], Floats]  # rows and their folds → rewards; NO_FOLD: not a known row
    trust: float  # in [0, 1]: how well it predicts known rows that it has not seen
    shrink: float = 1.0  # fraction kept of its deviations from the mean, if `reward` is not already shrunk


@dataclass(frozen=True)
class ExpectedRewards:
    """What policies of a fold should expect of rows, including those whose feedback they do not see."""

    fold: Fold
    expectation: Expectation
    baseline: Expectation | None  # by context; None if no reward weights are needed
    mean_reward: float  # of the known rows that the policies learn from
    known_share: float  # fraction of all rows that they learn from
    mean_o: float  # mean o of the known rows that they learn from
    statistics: Statistics
    scale: float = 1.0  # 1/mean weight over the log
    whole: tuple[TrainRows, Floats] | None = None  # the log with its unscaled weights, if it is in memory

    def costs(self, train_rows: TrainRows) -> npt.NDArray[np.float32]:
        """Known costs if the policies may see them, otherwise expected costs: (rows,)."""
        low, high = self.statistics.cost_range
        rows, learned = train_rows.rows, train_rows.learned(self.fold)
        expected = np.clip(self.expectation.reward(rows, np.full(rows.rows, NO_FOLD)), 0, 1)
        rewards = np.where(learned, _reward(rows.cost, self.statistics), expected)
        return (high - rewards * (high - low)).astype(np.float32)

    def weights(self, train_rows: TrainRows) -> Floats:
        """(r̂ − b)₊/(k·p) for all rows, times r/r̂ where the reward r is known, plus (1 − t)(1 − b)·r/(ρ·k·p) for known
        rows, where t is the trust in r̂: (rows,). Linear in r, so that actions whose rewards vary are not preferred."""
        if self.whole is not None and self.whole[0] is train_rows:
            return self.scale * self.whole[1]
        rows, learned = train_rows.rows, train_rows.learned(self.fold)
        fold = np.where(learned, _folds_of(train_rows.number, self.fold), NO_FOLD)
        expected, baseline = self._expected(self.expectation, rows, fold), self._expected(self.baseline, rows, fold)
        reward = np.where(learned, _reward(rows.cost, self.statistics), 0.0)
        advantage = np.maximum(expected - baseline, 0)
        ratio = np.divide(reward, expected, out=np.ones_like(reward), where=learned & (expected > 0))
        o = 1.0 if train_rows.o is None else train_rows.o / self.mean_o
        share = max(self.known_share, 1 / self.statistics.rows)
        weight = advantage * ratio + (1 - self.expectation.trust) * (1 - baseline) * reward * o / share
        # Mean 1 over the log if π₀ has full support: how often π₀ takes an action says nothing about its value.
        actions = len(self.statistics.action_counts)
        weight *= np.minimum(1 / (actions * rows.propensity.astype(np.float64)), _LARGEST_WEIGHT)
        scaled_weight: Floats = weight * self.scale
        return scaled_weight

    def _expected(self, model: Expectation | None, rows: LogArrays, fold: Ints) -> Floats:
        if model is None:
            return np.full(rows.rows, self.mean_reward)
        drawn: Floats = self.mean_reward + model.shrink * (model.reward(rows, fold) - self.mean_reward)
        return np.clip(drawn, 0, 1)


def _folds_of(number: npt.NDArray[np.int64], fold: Fold) -> Ints:
    return (uniform_hash(number, fold.seed ^ _FOLD_SEED) * _FOLDS).astype(np.int64)


def _reward(cost: Floats, statistics: Statistics) -> Floats:
    low, high = statistics.cost_range
    reward: Floats = (high - cost) / (high - low) if high > low else np.zeros(len(cost))
    return reward


def fit_expected_rewards(
    model: Callable[..., Expectation],
    statistics: Statistics,
    fold: Fold,
    device: torch.device,
    *,
    with_baseline: bool = False,
) -> ExpectedRewards:
    """Fit the models on the known rows, or on the sample of them, that the fold's policies learn from."""
    learned = statistics.sample.take(statistics.sample.learned(fold))
    known = KnownRewards(
        learned.rows,
        _reward(learned.rows.cost, statistics),
        np.ones(learned.rows.rows) if learned.o is None else learned.o / statistics.mean_o(fold),
        _folds_of(learned.number, fold),
    )
    actions = len(statistics.action_counts)
    return ExpectedRewards(
        fold,
        model(known, actions=actions, device=device),
        _by_context(known, device) if with_baseline else None,
        known.mean,
        statistics.learned_count(fold) / statistics.rows,
        statistics.mean_o(fold),
        statistics,
    )


def scaled(
    expected: Sequence[ExpectedRewards], parts: Iterable[TrainRows], *, in_memory: bool = False
) -> list[ExpectedRewards]:
    """The same with weights whose mean over these parts is 1, so that λ means the same on every log. A log in memory is
    one part, and its weights are computed only once."""
    totals, rows = np.zeros(len(expected)), 0
    wholes: list[tuple[TrainRows, Floats] | None] = [None] * len(expected)
    for part in parts:
        weights = [of_fold.weights(part) for of_fold in expected]
        totals += [of_fold.sum(dtype=np.float64) for of_fold in weights]
        rows += part.rows.rows
        if in_memory:
            wholes = [(part, of_fold) for of_fold in weights]
    scales = [rows / total if total > 0 else 0.0 for total in totals]
    return [
        replace(of_fold, scale=scale, whole=whole)
        for of_fold, scale, whole in zip(expected, scales, wholes, strict=True)
    ]


def by_propensity(known: KnownRewards, *, actions: int, device: torch.device) -> Expectation:
    """E[r | p]: a good logging policy is more certain when it is right."""
    curves = calibrate(known.rows.propensity, known.reward, known.fold, known.weight)
    return Expectation(lambda part, fold: curves(part.propensity, fold), curves.trust)


def by_logistic(known: KnownRewards, *, actions: int, device: torch.device) -> Expectation:
    """E[r | x, a], one logistic regression per action: the paper's cost model."""
    return _logistic(known, known.rows.action, actions, RewardModelSettings(folds=_FOLDS), device)


def _by_context(known: KnownRewards, device: torch.device) -> Expectation:
    """E[r | x]."""
    return _logistic(known, np.zeros(len(known.reward), np.int64), 1, _BASELINE, device)


def _logistic(
    known: KnownRewards, action: Ints, actions: int, settings: RewardModelSettings, device: torch.device
) -> Expectation:
    mean = known.mean
    if known.is_too_little:
        return Expectation(lambda part, fold: np.full(part.rows, mean), 0.0, 0.0)
    context, reward, weight = known.rows.context, known.reward, known.weight
    of_folds = cross_fit(context, action, reward, known.fold, actions, settings, device, weight)
    whole = fit_reward_model(context, action, reward, actions, settings, device, weight)

    def predicted(part: LogArrays, fold: Ints) -> Floats:
        logged = part.action if actions > 1 else np.zeros(part.rows, np.int64)
        rewards, has_fold = np.empty(part.rows, np.float32), fold != NO_FOLD
        for chosen, model in ((has_fold, of_folds), (~has_fold, whole)):
            if chosen.any():
                of_actions = model.predict(part.context[chosen], fold[chosen])
                rewards[chosen] = of_actions[np.arange(len(of_actions)), logged[chosen]]
        return rewards

    unseen = predicted(known.rows, known.fold)
    trust = trust_in(unseen - mean, reward - mean, weight)
    return Expectation(predicted, trust, trust)


@dataclass(frozen=True)
class Calibration:
    """score ↦ expected reward; monotone, and constant beyond the scores it was fitted on. One curve per fold, fitted
    without the fold's rows, and one on all rows."""

    curves: Sequence[
        tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
    ]  # increasing knots, and rewards; NO_FOLD last
    mean: float  # of the rewards that the curves were fitted on
    trust: float  # in [0, 1]: how much of a curve's deviation from the mean is kept

    def __call__(self, score: Floats, fold: Ints | None = None) -> npt.NDArray[np.float64]:
        rewards = np.interp(score, *self.curves[NO_FOLD])
        for number, curve in enumerate(self.curves[:-1]):
            chosen = np.zeros(len(score), bool) if fold is None else fold == number
            rewards[chosen] = np.interp(score[chosen], *curve)
        return self.mean + self.trust * (rewards - self.mean)


def calibrate(score: Floats, reward: Floats, fold: Ints, weight: Floats | None = None) -> Calibration:
    """Fit on rows whose reward is known. Cross-fitted: each row is predicted by a curve that has not seen it. The slope
    of the rewards on these predictions measures how much of the curve generalises."""
    score, reward = np.asarray(score, np.float64), np.asarray(reward, np.float64)
    weight = np.ones(len(reward)) if weight is None else np.asarray(weight, np.float64)
    mean = float(np.average(reward, weights=weight)) if len(reward) else 0.0
    if _is_too_little(reward, fold) or score.min() == score.max():
        return Calibration([(np.zeros(1), np.full(1, mean))], mean, 0.0)
    unseen = np.empty(len(score))
    curves = []
    for k in range(_FOLDS):
        others = fold != k
        curves.append(_curve(score[others], reward[others], weight[others]))
        # Centred on the mean of the other folds: it is lower if a row's own reward is high, which would otherwise look
        # like a negative slope.
        centre = np.average(reward[others], weights=weight[others])
        unseen[~others] = np.interp(score[~others], *curves[-1]) - centre
    whole = _curve(score, reward, weight)
    return Calibration([*curves, whole], mean, trust_in(unseen, reward - mean, weight))


def trust_in(predicted: Floats, truth: Floats, weight: Floats | None = None) -> float:
    """The slope of the truth on the predictions, in [0, 1]. It is the lower end of the 95 % interval, because a curve
    through noise also has some slope, and would give weight to every row whose feedback is missing."""
    o = np.ones(len(truth)) if weight is None else weight
    spread = float(o @ predicted**2)
    if spread == 0:
        return 0.0
    slope = float((o * truth) @ predicted) / spread
    error = float(np.sqrt(((o * (truth - slope * predicted) * predicted) ** 2).sum())) / spread
    return float(np.clip(slope - _Z_95 * error, 0, 1))


def _curve(score: Floats, reward: Floats, weight: Floats) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The isotonic curve, increasing or decreasing, whichever fits the rewards better: its knots and their rewards."""
    from scipy.optimize import isotonic_regression

    knots, knot_of = np.unique(np.asarray(score, np.float64), return_inverse=True)
    total = np.bincount(knot_of, weight)
    mean = np.bincount(knot_of, weight * reward) / total
    rising, falling = (
        isotonic_regression(mean, weights=total, increasing=increasing).x for increasing in (True, False)
    )
    errors = [float(total @ (mean - curve) ** 2) for curve in (rising, falling)]
    return knots, rising if errors[0] <= errors[1] else falling
