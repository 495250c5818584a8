"""What a reward model is: the expected reward E[r | x, a] of every action, from one model or from one per fold.

    fold = assign_folds(known, folds=5, seed=0)
    model = cross_fit(context[known], action[known], reward[known], fold[known], actions=10)
    model.predict(context, fold)     # (rows, actions): each row by the model that has not learned from it

Each kind of model is a file with a `cross_fit` of this form (`logistic.py`).
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.policies.contexts import Contexts

CPU = torch.device("cpu")
NO_FOLD = -1  # of a row that every model may learn from

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


class RewardModel(Protocol):
    """Expected rewards of all actions."""

    def predict(self, context: Contexts, fold: Ints | None = None) -> npt.NDArray[np.float32]:
        """(rows, actions) rewards. With folds, each row by the model that skipped the row's fold."""


def assign_folds(
    known: npt.NDArray[np.bool_], folds: int, seed: int, cluster: Ints | None = None
) -> npt.NDArray[np.int32]:
    """A fold for every row, known rows and missing ones each spread evenly; the same for the same seed. With clusters
    (numbers from 0), every row of a cluster has the same fold, and clusters with and without known rows are spread."""
    if cluster is not None:
        has_known = np.bincount(cluster, known) > 0
        return assign_folds(has_known, folds, seed)[cluster]
    fold = np.empty(len(known), np.int32)
    rng = np.random.default_rng([seed, 0])
    for rows in (np.flatnonzero(known), np.flatnonzero(~known)):
        fold[rng.permutation(rows)] = np.arange(len(rows)) % folds
    return fold
