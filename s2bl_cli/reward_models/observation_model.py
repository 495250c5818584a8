"""A model of the probability that a row's feedback is known, given its context and action.

It is fitted like a reward model, but on whether the reward is known instead of on the reward. It is linear in one of
four kinds of features: the context x; x and |x|; these and random features; or x and steps, which are whether a feature
exceeds each of its quantiles. Each has two priors. Of the eight models, the one that best predicts which rows of other
folds are known is used. A linear map of random features is a network with one
hidden layer whose first layer is drawn at random and not trained, so anything that fits linear maps can fit it (Rahimi
& Recht 2007; Huang et al. 2006). Steps can follow any function of one feature.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.policies.contexts import Contexts, context_tensor, flattened
from s2bl_cli.reward_models.linear_maps import Standardisation
from s2bl_cli.reward_models.logistic import cross_fit
from s2bl_cli.reward_models.reward_model import CPU, Ints, RewardModel
from s2bl_cli.reward_models.settings import RewardModelSettings

LEAST_PROBABILITY = 1e-3  # below this, one row would stand for thousands
_HIDDEN = 64  # random features: 256 overfit 20,000 rows
_MOST_STEPS, _LEAST_STEPS = 15, 3  # per feature
_MOST_COLUMNS = 960  # of steps; contexts so wide that fewer than _LEAST_STEPS per feature would fit have none
_MOST_ROWS = 100_000  # to fit on
_ROWS_AT_ONCE = 8192

# Prior standard deviations of a logit, from the weights that all actions share and from those of one action. The small
# ones of x alone suit many features with few rows. Shared weights of steps or |x| are not shrunk as much: this would
# predict a little better, but would leave the bias that the weights have to remove. Intercepts of actions are shrunk
# less for the same reason. The weights of one action are many, and their noise would become large weights of rows.
_OF_CONTEXT, _OF_MANY = ((3.0, 3.0), (0.3, 0.3)), ((3.0, 3.0), (3.0, 0.7))
_LEAST_INTERCEPT_SPREAD = 1.0

Floats = npt.NDArray[np.float64]
Known = npt.NDArray[np.bool_]
Features = Callable[[Contexts], npt.NDArray[np.float32]]


class RandomFeatures:
    """The standardised context x, together with |x| and, if `hidden` is above 0, max(0, B x + b). The moments are those
    of the given contexts; B and b are drawn at random, not learned."""

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


class Steps:
    """The context x, together with whether x > t for up to 15 quantiles t of each feature."""

    def __init__(self, context: npt.NDArray[np.generic], device: torch.device) -> None:
        rows = flattened(context)
        width = max(1, rows.shape[1])
        count = min(_MOST_STEPS, _MOST_COLUMNS // width)
        self._device = device
        columns, thresholds = [np.empty(0, np.int64)], [np.empty(0)]
        for column in range(width if count >= _LEAST_STEPS else 0):
            x = np.asarray(rows[:, column], np.float32)
            quantiles = np.quantile(x, np.arange(1, count + 1) / (count + 1), method="lower")
            cuts = np.unique(quantiles[quantiles < x.max()])
            if len(cuts) > 1 or len(np.unique(x)) > 2:  # one step of two values is the feature itself
                columns.append(np.full(len(cuts), column))
                thresholds.append(cuts)
        self._columns = torch.from_numpy(np.concatenate(columns)).to(device)
        self._thresholds = torch.from_numpy(np.concatenate(thresholds).astype(np.float32)).to(device)

    def __len__(self) -> int:
        return len(self._thresholds)

    @torch.no_grad()
    def __call__(self, context: Contexts) -> npt.NDArray[np.float32]:
        """(rows, features + steps)"""
        x = context_tensor(context, self._device).flatten(1).to(torch.float32)
        is_above = (x[:, self._columns] > self._thresholds).to(torch.float32)
        features: npt.NDArray[np.float32] = torch.cat([x, is_above], dim=1).cpu().numpy()
        return features


@dataclass(frozen=True)
class ObservationModel:
    """P(known | x, a), with one model per fold."""

    model: RewardModel
    features: Features | None  # None: the context itself

    def probability(self, context: Contexts, action: Ints, fold: Ints) -> npt.NDArray[np.float32]:
        """The probabilities for the logged actions, at least LEAST_PROBABILITY: (rows,)."""
        seen = context if self.features is None else self.features(context)
        return _of_logged(self.model, seen, action, fold)


def cross_fit_observation(
    context: npt.NDArray[np.generic],
    action: Ints,
    known: Known,
    fold: Ints,
    actions: int,
    settings: RewardModelSettings | None = None,
    device: torch.device = CPU,
) -> ObservationModel:
    """Takes rows with and without feedback, and samples them if there are very many; returns the model with the highest
    held-out likelihood."""
    settings = settings or RewardModelSettings()
    if len(context) > _MOST_ROWS:
        rng = np.random.default_rng([settings.seed, 5])
        chosen = np.sort(rng.choice(len(context), _MOST_ROWS, replace=False))
        context, action, known, fold = context[chosen], action[chosen], known[chosen], fold[chosen]
    best, highest = None, -np.inf
    for features, spreads in _candidates(context, settings.seed, device):
        seen = context if features is None else features(context)
        for spread, action_spread in spreads:
            priors = replace(
                settings,
                spread=spread,
                action_spread=action_spread,
                intercept_spread=max(spread, _LEAST_INTERCEPT_SPREAD),
            )
            fitted = cross_fit(seen, action, known.astype(np.float32), fold, actions, priors, device)
            likelihood = log_likelihood(_of_logged(fitted, seen, action, fold), known).sum()
            if best is None or likelihood > highest:
                best, highest = ObservationModel(fitted, features), likelihood
    assert best is not None
    return best


def _candidates(
    context: npt.NDArray[np.generic], seed: int, device: torch.device
) -> Iterator[tuple[Features | None, tuple[tuple[float, float], ...]]]:
    """Features with the priors to try."""
    yield None, _OF_CONTEXT
    yield RandomFeatures(context, 0, seed, device), _OF_MANY
    yield RandomFeatures(context, _HIDDEN, seed, device), _OF_MANY
    steps = Steps(context, device)
    if len(steps):
        yield steps, _OF_MANY


def _of_logged(model: RewardModel, seen: Contexts, action: Ints, fold: Ints) -> npt.NDArray[np.float32]:
    """The predictions for the logged actions: (rows,). The array of all actions is never whole in memory."""
    probabilities = np.empty(len(action), np.float32)
    for start in range(0, len(action), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        chosen = action[part]
        probabilities[part] = model.predict(seen[part], fold[part])[np.arange(len(chosen)), chosen]
    return np.maximum(probabilities, np.float32(LEAST_PROBABILITY))


def log_likelihood(probability: npt.NDArray[np.floating[Any]], known: Known) -> Floats:
    """The log-likelihood of each row."""
    e = np.clip(probability.astype(np.float64), 1e-6, 1 - 1e-6)
    return np.where(known, np.log(e), np.log(1 - e))
