"""Policies that see the same rows in the same order: a group has a seed, and the known rows it must not learn from.

Which rows are held out is a function of the seed and the row's number in the log alone: it is the same for every
policy of the group, whether the log is in memory or streamed, and after a resumption.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.logs.reading import LogArrays

_GOLDEN = 0x9E3779B97F4A7C15


class TrainRows(NamedTuple):
    """Rows of the train split, and their numbers in the log."""

    rows: LogArrays
    number: npt.NDArray[np.int64]

    def take(self, chosen: npt.NDArray[np.bool_]) -> "TrainRows":
        return TrainRows(self.rows.take(chosen), self.number[chosen])


@dataclass(frozen=True)
class Group:
    """One seed; with folds, one fold of it."""

    seed: int
    held_from: float = 0.0  # known rows whose number hashes into [from, to) are held out
    held_to: float = 0.0

    def holds_out(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Of rows by their numbers in the log, those to choose by (if their feedback is known)."""
        if self.held_from == self.held_to:  # none, and of a large log the hashes would take much memory
            return np.zeros(len(numbers), bool)
        place = uniform_hash(numbers, self.seed)
        return (self.held_from <= place) & (place < self.held_to)

    def learns_from(self, rows: LogArrays, number: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """The rows whose feedback the group may see."""
        return rows.known & ~self.holds_out(number)


def holdout_groups(seeds: tuple[int, ...], share: float) -> list[Group]:
    return [Group(seed, 0.0, share) for seed in seeds]


def fold_groups(seeds: tuple[int, ...], folds: int) -> list[Group]:
    """All folds of the first seed, then of the next."""
    return [Group(seed, fold / folds, (fold + 1) / folds) for seed in seeds for fold in range(folds)]


def uniform_hash(numbers: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each row number, as good as random (the mixing of splitmix64)."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) + np.uint64(((seed + 1) * _GOLDEN) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
