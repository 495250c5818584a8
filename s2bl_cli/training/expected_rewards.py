"""Expected rewards of rows whose feedback is missing, in [0, 1], from models fitted on the known rows.

A reward is the cost with its sign changed, scaled by the range of the known costs: 1 for the lowest, 0 for the highest.
They fill in costs (`pseudo`) and make reward weights (`cce`).

Rewards are expected by a reward model, or by a calibration of the propensity, which is known of every row: a monotone
curve through the known rows (isotonic regression, its direction from the data), drawn towards the mean by as much as it
fails on rows it has not seen. If the propensity predicts nothing, the curve is flat.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.reward_models.logistic import cross_fit, fit_reward_model
from s2bl_cli.reward_models.reward_model import Floats, assign_folds
from s2bl_cli.reward_models.settings import RewardModelSettings
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import Statistics, TrainRows

_FOLDS = 10  # of a calibration
_LEAST_ROWS = 2 * _FOLDS  # fewer say nothing of rows not seen
_Z_95 = 1.96
_LARGEST_WEIGHT = 20.0  # of a row: rarer actions would drown the others


class Expectation(NamedTuple):
    """A fitted model of missing rewards."""

    reward: Callable[[LogArrays], Floats]  # rows → rewards: (rows,)
    trust: float  # in [0, 1]: how well it does on known rows that it has not seen
    needs_contexts: bool


@dataclass(frozen=True)
class ExpectedRewards:
    """What policies of a fold are to expect of rows whose feedback they do not see."""

    fold: Fold
    expectation: Expectation
    mean_reward: float  # of the known rows that the policies learn from
    known_share: float  # of all rows, those they learn from
    statistics: Statistics
    scale: float = 1.0  # 1/mean weight over the log

    def costs(self, train_rows: TrainRows) -> npt.NDArray[np.float32]:
        """Known costs where the policies may see them, else expected ones: (rows,)."""
        low, high = self.statistics.cost_range
        rewards = self._rewards(train_rows.rows, train_rows.learned(self.fold))
        return (high - rewards * (high - low)).astype(np.float32)

    def weights(self, train_rows: TrainRows) -> Floats:
        """(r − r̄)₊/(k·p), known rows weighted up by as much as the expectation is not to be trusted: (rows,)."""
        rows, learned = train_rows.rows, train_rows.learned(self.fold)
        weight = np.maximum(self._rewards(rows, learned) - self.mean_reward, 0)
        # Of mean 1 over the log where π₀ has full support: how often π₀ takes an action says nothing of its worth.
        actions = len(self.statistics.action_counts)
        weight *= np.minimum(1 / (actions * rows.propensity.astype(np.float64)), _LARGEST_WEIGHT)
        trust, share = self.expectation.trust, self.known_share
        weight *= np.where(learned, (1 - trust * (1 - share)) / share if share else 0.0, trust)
        scaled_weight: Floats = weight * self.scale
        return scaled_weight

    def _rewards(self, rows: LogArrays, learned: npt.NDArray[np.bool_]) -> Floats:
        expected = np.clip(self.expectation.reward(rows), 0, 1)
        return np.where(learned, _reward(rows.cost, self.statistics), expected)


def _reward(cost: Floats, statistics: Statistics) -> Floats:
    low, high = statistics.cost_range
    reward: Floats = (high - cost) / (high - low) if high > low else np.zeros(len(cost))
    return reward


def fit_expected_rewards(
    model: Callable[..., Expectation], statistics: Statistics, fold: Fold, device: torch.device
) -> ExpectedRewards:
    """Fit the model on the known rows, or the sample of them, that the fold's policies learn from."""
    sample = statistics.sample
    rows = sample.rows.take(sample.learned(fold))
    reward = _reward(rows.cost, statistics)
    expectation = model(rows, reward, seed=fold.seed, actions=len(statistics.action_counts), device=device)
    known_share = statistics.learned_count(fold) / statistics.rows
    return ExpectedRewards(fold, expectation, float(reward.mean()) if rows.rows else 0.0, known_share, statistics)


def scaled(expected: Sequence[ExpectedRewards], parts: Iterable[TrainRows]) -> list[ExpectedRewards]:
    """With weights of mean 1 over these parts: λ then means the same on every log."""
    totals, rows = np.zeros(len(expected)), 0
    for part in parts:
        totals += [of_fold.weights(part).sum(dtype=np.float64) for of_fold in expected]
        rows += part.rows.rows
    scales = [rows / total if total > 0 else 0.0 for total in totals]
    return [replace(of_fold, scale=scale) for of_fold, scale in zip(expected, scales, strict=True)]


def by_propensity(rows: LogArrays, reward: Floats, *, seed: int, actions: int, device: torch.device) -> Expectation:
    """E[r | p]: a good logging policy is surer where it is right."""
    curve = calibrate(rows.propensity, reward, seed)
    return Expectation(lambda part: curve(part.propensity), curve.trust, needs_contexts=False)


def by_logistic(rows: LogArrays, reward: Floats, *, seed: int, actions: int, device: torch.device) -> Expectation:
    """E[r | x, a], one logistic regression per action: the paper's cost model."""
    settings = RewardModelSettings(seed=seed)
    if rows.rows < 2 * settings.folds or reward.min() == reward.max():
        level = float(reward.mean()) if rows.rows else 0.0
        return Expectation(lambda part: np.full(part.rows, level), 0.0, needs_contexts=False)
    fold = assign_folds(np.ones(rows.rows, bool), settings.folds, seed)
    logged = np.arange(rows.rows), rows.action
    unseen = cross_fit(rows.context, rows.action, reward, fold, actions, settings, device).predict(rows.context, fold)
    model = fit_reward_model(rows.context, rows.action, reward, actions, settings, device)
    return Expectation(
        lambda part: model.predict(part.context)[np.arange(part.rows), part.action],
        trust_in(unseen[logged] - reward.mean(), reward - reward.mean()),
        needs_contexts=True,
    )


@dataclass(frozen=True)
class Calibration:
    """score ↦ expected reward; monotone, constant beyond the scores it was fitted on."""

    knots: npt.NDArray[np.float64]  # scores, rising
    rewards: npt.NDArray[np.float64]  # at the knots
    mean: float  # of the rewards it was fitted on
    trust: float  # in [0, 1]: how much of the curve's departure from the mean is kept

    def __call__(self, score: Floats) -> npt.NDArray[np.float64]:
        return self.mean + self.trust * (np.interp(score, self.knots, self.rewards) - self.mean)


def calibrate(score: Floats, reward: Floats, seed: int) -> Calibration:
    """Fit on rows whose reward is known. Cross-fitted: each row is predicted by a curve that has not seen it. The slope
    of the rewards on these predictions measures how much of the curve generalises."""
    score, reward = np.asarray(score, np.float64), np.asarray(reward, np.float64)
    mean = float(reward.mean()) if len(reward) else 0.0
    if len(reward) < _LEAST_ROWS or reward.min() == reward.max() or score.min() == score.max():
        return Calibration(np.zeros(1), np.full(1, mean), mean, 0.0)
    fold = np.random.default_rng(seed).permutation(len(score)) % _FOLDS
    unseen = np.empty(len(score))
    for k in range(_FOLDS):
        knots, rewards = _curve(score[fold != k], reward[fold != k])
        # About the mean of the other folds: a row's own reward lowers it, which would look like a negative slope.
        unseen[fold == k] = np.interp(score[fold == k], knots, rewards) - reward[fold != k].mean()
    return Calibration(*_curve(score, reward), mean, trust_in(unseen, reward - mean))


def trust_in(predicted: Floats, truth: Floats) -> float:
    """The slope of the truth on what was predicted, in [0, 1]: the low end of its 95 % interval, because a curve
    through noise has some slope too, and would give a weight to every row whose feedback is missing."""
    spread = float(predicted @ predicted)
    if spread == 0:
        return 0.0
    slope = float(truth @ predicted) / spread
    error = float(np.sqrt(((truth - slope * predicted) ** 2 * predicted**2).sum())) / spread
    return float(np.clip(slope - _Z_95 * error, 0, 1))


def _curve(score: Floats, reward: Floats) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The isotonic curve, rising or falling, whichever is nearer to the rewards: knots and rewards there."""
    from scipy.optimize import isotonic_regression

    knots, knot_of, count = np.unique(np.asarray(score, np.float64), return_inverse=True, return_counts=True)
    mean = np.bincount(knot_of, reward) / count
    rising, falling = (
        isotonic_regression(mean, weights=count.astype(np.float64), increasing=increasing).x
        for increasing in (True, False)
    )
    errors = [float(count @ (mean - curve) ** 2) for curve in (rising, falling)]
    return knots, rising if errors[0] <= errors[1] else falling
