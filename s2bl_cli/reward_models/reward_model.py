"""The interface of a reward model: the expected reward E[r | x, a] of every action, from one model or one per fold.

    fold = assign_folds(known, folds=5, seed=0)
    model = cross_fit(context[known], action[known], reward[known], fold[known], actions=10)
    model.predict(context, fold)     # (rows, actions): each row by the model not trained on it

Each kind of model is a module with a `cross_fit` of this form (`logistic.py`).
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.policies.contexts import Contexts

CPU = torch.device("cpu")
NO_FOLD = -1  # for a row that every model may learn from

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


class RewardModel(Protocol):
    """Expected rewards of all actions."""

    def predict(self, context: Contexts, fold: Ints | None = None) -> npt.NDArray[np.float32]:
        """(rows, actions) rewards. With folds, each row is predicted by the model that skipped its fold."""


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
