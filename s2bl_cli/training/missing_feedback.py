"""Feedback whose absence depends on context and action: the test that `train` runs, and the weights of known rows.

Known rows are weighted by o = 1/P(known | x, a), so that a mean over them estimates the mean over all rows. The model
of P is fitted once per run, on a sample of the rows with feedback and a sample of those without, and sees no costs. If
q is the model's probability in the sample, the odds in the whole log are those in the sample times (sampled share of
the missing rows)/(sampled share of the known rows). Every row is predicted by a model that was not trained on it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.metrics.dependence import dependence
from s2bl_cli.metrics.missing_feedback import one_sided_rewards
from s2bl_cli.reward_models.observation_model import ObservationModel, cross_fit_observation
from s2bl_cli.reward_models.settings import RewardModelSettings
from s2bl_cli.row_hash import uniform_hash
from s2bl_cli.training.data import Contrast, Statistics, TrainRows

TESTED_ROWS = 5_000  # with feedback, and as many without
_LARGEST_WEIGHT = 20.0  # relative to that of a row whose probability is the overall share of known rows
_FOLDS, _FOLD_SEED, _TEST_SEED = 5, 0xF0, 0xF1
_ROWS_AT_ONCE = 8192
_LEAST_KNOWN = 30

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class FeedbackWeights:
    """1/P(known | x, a) for known rows, 1 for others."""

    model: ObservationModel
    odds: float  # of a row in the log, relative to the odds in the sample
    least: float  # lower limit of P

    def __call__(self, train_rows: TrainRows) -> Floats:
        rows = train_rows.rows
        o = np.ones(rows.rows, np.float32)
        known = np.flatnonzero(rows.known)
        for start in range(0, len(known), _ROWS_AT_ONCE):
            part = known[start : start + _ROWS_AT_ONCE]
            fold = _fold_of(train_rows.number[part])
            q = self.model.probability(rows.context[part], rows.action[part], fold).astype(np.float64)
            q = np.minimum(q, 1 - 1e-6)
            odds = q / (1 - q) * self.odds
            o[part] = 1 / np.maximum(odds / (1 + odds), self.least)
        return o


def fit_feedback_weights(contrast: Contrast, statistics: Statistics, device: torch.device) -> FeedbackWeights:
    rows = contrast.rows.rows
    settings = RewardModelSettings(folds=_FOLDS)
    fold = _fold_of(contrast.rows.number)
    actions = len(statistics.action_counts)
    model = cross_fit_observation(rows.context, rows.action, rows.known, fold, actions, settings, device)
    share = len(statistics.known.c) / statistics.rows
    return FeedbackWeights(model, contrast.missing_share / contrast.known_share, share / _LARGEST_WEIGHT)


def missingness_warning(
    contrast: Contrast, *, has_clusters: bool, weights: FeedbackWeights | None = None
) -> str | None:
    """A warning with a remedy, if the presence of feedback depends on context or action; with weights, if it does in a
    way that their model does not predict."""
    share = 2 * TESTED_ROWS / contrast.rows.rows.rows
    tested = contrast.rows.take(uniform_hash(contrast.rows.number, _TEST_SEED) < share)
    rows, number = tested.rows, tested.number
    cluster = np.unique(number, return_inverse=True)[1].reshape(-1) if has_clusters else None
    probability = None if weights is None else weights.model.probability(rows.context, rows.action, _fold_of(number))
    fault = dependence(rows.context, rows.action, rows.known, cluster, probability=probability)
    if fault is None:
        return None
    if weights is not None:
        return f"{fault}: policies may still prefer actions with more feedback"
    return f"{fault}: policies may prefer actions with more feedback; use --missing-model"


def one_sided_warning(statistics: Statistics, declared_range: tuple[float, float] | None) -> str | None:
    """A warning with a remedy, if the known rewards are all above 0, or all below."""
    lowest, highest = statistics.cost_range
    known = len(statistics.known.c)
    if known < _LEAST_KNOWN or lowest == highest:  # too few to tell, or nothing to learn
        return None
    fault = one_sided_rewards((-highest, -lowest), known, statistics.rows - known, declared_range)
    if fault is None:
        return None
    return (
        f"{fault}: if a missing reward means 0, policies prefer actions whose rare rewards are large; write 0 where "
        f"nothing happened, or declare by --reward-range that 0 is impossible"
    )


def _fold_of(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (uniform_hash(numbers, _FOLD_SEED) * _FOLDS).astype(np.int64)
