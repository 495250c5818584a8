"""A model of the probability that a row's feedback is known, given its context and action.

It is fitted like a reward model, but on whether the reward is known instead of on the reward. It is linear in the
context, or also in |x| and random features of it, each with a weak or a strong prior. Of the four models, the one that
best predicts which rows of other folds are known is used. A linear map of random features is a network with one hidden
layer whose first layer is drawn at random and not trained, so anything that fits linear maps can fit it (Rahimi & Recht
2007; Huang et al. 2006).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.policies.contexts import Contexts, context_tensor
from s2bl_cli.reward_models.linear_maps import Standardisation
from s2bl_cli.reward_models.logistic import cross_fit
from s2bl_cli.reward_models.reward_model import CPU, Ints, RewardModel
from s2bl_cli.reward_models.settings import RewardModelSettings

LEAST_PROBABILITY = 1e-3  # below this, one row would stand for thousands
_HIDDEN = 64  # random features: 256 overfit 20,000 rows
_SPREADS = (3.0, 0.3)  # prior standard deviations of a logit; the small one suits many features with few rows

Floats = npt.NDArray[np.float64]
Known = npt.NDArray[np.bool_]


class RandomFeatures:
    """The standardised context x, together with |x| and max(0, B x + b). The moments are those of the given contexts; B
    and b are drawn at random, not learned."""

    def __init__(self, context: npt.NDArray[np.generic], hidden: int, seed: int, device: torch.device) -> None:
        rng = np.random.default_rng([seed, 3])
        self._device = device
        self._standardise = Standardisation(context, device)
        size = self._standardise.shift.numel()
        drawn = rng.standard_normal((size, hidden)) / np.sqrt(size)
        self._weight = torch.from_numpy(drawn.astype(np.float32)).to(device)  # (features, hidden)
        self._bias = torch.from_numpy((0.5 * rng.standard_normal(hidden)).astype(np.float32)).to(device)

    @torch.no_grad()
    def __call__(self, context: Contexts) -> npt.NDArray[np.float32]:
        """(rows, 2·features + hidden)"""
        x = self._standardise(context_tensor(context, self._device))
        hidden = torch.addmm(self._bias, x, self._weight).relu_()
        features: npt.NDArray[np.float32] = torch.cat([x, x.abs(), hidden], dim=1).cpu().numpy()
        return features


@dataclass(frozen=True)
class ObservationModel:
    """P(known | x, a), with one model per fold."""

    model: RewardModel
    features: RandomFeatures | None  # None: the context itself

    def probability(self, context: Contexts, action: Ints, fold: Ints) -> npt.NDArray[np.float32]:
        """The probabilities for the logged actions, at least LEAST_PROBABILITY: (rows,)."""
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
) -> ObservationModel:
    """Takes rows with and without feedback; returns the model with the highest held-out likelihood."""
    settings = settings or RewardModelSettings()
    best, highest = None, -np.inf
    for features in (None, RandomFeatures(context, _HIDDEN, settings.seed, device)):
        seen = context if features is None else features(context)
        for spread in _SPREADS:
            fitted = cross_fit(
                seen, action, known.astype(np.float32), fold, actions, replace(settings, spread=spread), device
            )
            model = ObservationModel(fitted, features)
            likelihood = log_likelihood(model.probability(context, action, fold), known).sum()
            if best is None or likelihood > highest:
                best, highest = model, likelihood
    assert best is not None
    return best


def log_likelihood(probability: npt.NDArray[np.floating[Any]], known: Known) -> Floats:
    """The log-likelihood of each row."""
    e = np.clip(probability.astype(np.float64), 1e-6, 1 - 1e-6)
    return np.where(known, np.log(e), np.log(1 - e))
