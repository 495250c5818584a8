"""Calibration: what reward to expect of a row, from a score that is known of every row.

A monotone curve through the known rows (isotonic regression, its direction from the data), then drawn towards the
mean by as much as it fails on rows it has not seen: where the score tells nothing, the curve is flat.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_FOLDS = 10
_LEAST_ROWS = 2 * _FOLDS  # fewer say nothing of rows not seen
_Z_95 = 1.96

Floats = npt.NDArray[np.floating[Any]]


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
    """Fit on rows whose reward is known. Cross-fitted: each row is predicted by a curve that has not seen it; the
    slope of the rewards on those predictions is how far the curve is to be trusted."""
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
    through noise has some slope too, and would weigh every row whose feedback is missing."""
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
