"""A model of the probability that a row's feedback is known, given its context and action.

Fitted as a reward model is, on whether the reward is known instead of on the reward. Linear in the context, or, where
that predicts the known rows of other folds better, linear in random features of it too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.policies.context_tensor import Contexts
from s2bl_cli.reward_models.random_features import RandomFeatures
from s2bl_cli.reward_models.reward_model import CPU, RewardModel, cross_fit
from s2bl_cli.reward_models.settings import RewardModelSettings

LEAST_PROBABILITY = 1e-3  # below, one row would stand for thousands
_HIDDEN = 64  # random features: with 256, 20,000 rows are overfitted

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]
Known = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ObservationModel:
    """P(known | x, a), of one model per fold."""

    model: RewardModel
    features: RandomFeatures | None  # None: the context as it is

    def probability(self, context: Contexts, action: Ints, fold: Ints) -> npt.NDArray[np.float32]:
        """Of the logged actions, at least LEAST_PROBABILITY: (rows,)."""
        seen = context if self.features is None else self.features(context)
        probabilities = self.model.predict(seen, fold)  # (rows, actions)
        return np.maximum(probabilities[np.arange(len(action)), action], np.float32(LEAST_PROBABILITY))


def cross_fit_observation(
    context: npt.NDArray[np.generic],
    action: Ints,
    known: Known,
    fold: Ints,
    actions: int,
    settings: RewardModelSettings | None = None,
    device: torch.device = CPU,
    *,
    nonlinear: bool = False,
) -> ObservationModel:
    """Rows with and without feedback in. With `nonlinear`, the better of two models, by held-out likelihood."""
    settings = settings or RewardModelSettings()
    value = known.astype(np.float32)
    linear = ObservationModel(cross_fit(context, action, value, fold, actions, settings, device), None)
    if not nonlinear:
        return linear
    features = RandomFeatures(context, _HIDDEN, settings.seed, device)
    nonlinear_model = ObservationModel(
        cross_fit(features(context), action, value, fold, actions, settings, device), features
    )
    likelihoods = [
        log_likelihood(one.probability(context, action, fold), known).sum() for one in (linear, nonlinear_model)
    ]
    return nonlinear_model if likelihoods[1] > likelihoods[0] else linear


def log_likelihood(probability: npt.NDArray[np.floating[Any]], known: Known) -> Floats:
    """Of each row."""
    e = np.clip(probability.astype(np.float64), 1e-6, 1 - 1e-6)
    return np.where(known, np.log(e), np.log(1 - e))
