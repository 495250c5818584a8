"""The interface of a reward model: the expected reward E[r | x, a] of every action, from one model or one per fold.

    fold = assign_folds(known, folds=5, seed=0)
    model = cross_fit(context[known], action[known], reward[known], fold[known], actions=10)
    model.predict(context, fold)     # (rows, actions): each row by the model not trained on it

Each kind of model (`REWARD_MODELS` of the registry) is a module with a `cross_fit` of this form (`CrossFit`). Models do
not depend on the unit and the offset of the rewards, and the mean prediction on a model's training rows equals their
mean reward.

Given the scores of the logged actions, such as their log-probabilities under the logging policy, a model uses them as a
feature. Predictions then need the scores of all actions.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.policies.contexts import Contexts
from s2bl_cli.reward_models.settings import RewardModelSettings

CPU = torch.device("cpu")
NO_FOLD = -1  # for a row that every model may learn from

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


class RewardModel(Protocol):
    """Expected rewards of all actions."""

    def predict(
        self, context: Contexts, fold: Ints | None = None, scores: Tensor | None = None
    ) -> npt.NDArray[np.float32]:
        """(rows, actions) rewards. With folds, each row is predicted by the model that skipped its fold. `scores`:
        (rows, actions), if the model was fitted with scores."""


class CrossFit(Protocol):
    """Fits a kind of model: one per fold, on the rows of the other folds."""

    def __call__(
        self,
        context: npt.NDArray[np.generic],
        action: Ints,
        reward: Floats,
        fold: Ints,
        actions: int,
        settings: RewardModelSettings | None = None,
        device: torch.device = CPU,
        weight: Floats | None = None,
        score: Floats | None = None,
    ) -> RewardModel:
        """All rows have a reward. `weight`: of the rows; None: 1. `score`: of the logged actions; None: no scores."""


def assign_folds(
    known: npt.NDArray[np.bool_], folds: int, seed: int, cluster: Ints | None = None
) -> npt.NDArray[np.int32]:
    """Assign a fold to every row, with known and missing rows each spread evenly; deterministic for a given seed. With
    clusters (numbers from 0), all rows of a cluster get the same fold, and clusters with and without known rows are
    each spread evenly."""
    if cluster is not None:
        has_known = np.bincount(cluster, known) > 0
        return assign_folds(has_known, folds, seed)[cluster]
    fold = np.empty(len(known), np.int32)
    rng = np.random.default_rng([seed, 0])
    for rows in (np.flatnonzero(known), np.flatnonzero(~known)):
        fold[rng.permutation(rows)] = np.arange(len(rows)) % folds
    return fold


def shifts_to_the_mean(
    eta: Tensor, weight: Tensor, mean: npt.NDArray[np.float64], total: npt.NDArray[np.float64], *, logistic: bool
) -> npt.NDArray[np.float64]:
    """What to add to η so that each model's mean prediction equals the mean value of its rows, (models,). A fit comes
    close; this is exact. The models are axis 1 of η and of the rows' weights, whose sums are `total`."""
    eta, weight = (tensor.cpu().double() for tensor in (eta, weight))
    axes = tuple(axis for axis in range(eta.dim()) if axis != 1)
    if not logistic:
        shift: npt.NDArray[np.float64] = mean - (eta * weight).sum(axes).numpy() / total
        return shift
    shift = np.zeros(len(mean))
    for _ in range(50):
        p = (eta + torch.from_numpy(shift).view(1, -1, *(1,) * (eta.dim() - 2))).sigmoid_()
        excess = (p * weight).sum(axes).numpy() / total - mean
        slope = (p * (1 - p) * weight).sum(axes).numpy() / total
        shift -= np.clip(excess / np.maximum(slope, 1e-300), -1, 1)
        if np.abs(excess).max() < 1e-9 * mean.min():
            break
    return shift
