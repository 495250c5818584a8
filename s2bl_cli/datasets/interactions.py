"""Data of a recommender: users with features, the items each user was shown, and which of them were rewarded.

A user has no single true label, so no logging policy can be fitted. The log is drawn with random scores over the items
that the user was shown (see `logging_policy.random_scores`).
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.datasets.labelled import arrays_sha256


@dataclass(frozen=True)
class Interactions:
    """(user, item) pairs of one split, sorted by user: user u has the pairs start[u] … start[u+1]−1."""

    users: npt.NDArray[np.int64]  # (users,) rows of the feature matrix
    start: npt.NDArray[np.int64]  # (users + 1,)
    item: npt.NDArray[np.int32]  # (pairs,)
    rewarded: npt.NDArray[np.bool_]  # (pairs,)


@dataclass(frozen=True)
class InteractionData:
    """A recommender dataset: users are contexts, items are actions."""

    name: str
    actions: int
    features: npt.NDArray[np.float32]  # (all users, features)
    train: Interactions
    test: Interactions
    notes: tuple[str, ...] = field(default=())
    action_names: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())

    @property
    def context(self) -> ContextSpec:
        return ContextSpec("float32", (self.features.shape[1],))

    @property
    def rows(self) -> int:
        return len(self.train.item) + len(self.test.item)

    def sha256(self) -> str:
        parts = [(part.users, part.start, part.item, part.rewarded) for part in (self.train, self.test)]
        return arrays_sha256(self.features, *(array for part in parts for array in part))
