"""Candidates: the policies that a run trains, one per seed, fold and grid point; and the names of their files."""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from s2bl_cli.errors import SettingError
from s2bl_cli.objectives.hyperparameters import Costs, Values
from s2bl_cli.row_hash import uniform_hash
from s2bl_cli.settings import number_text
from s2bl_cli.training.settings import TrainSettings

SEED = "{seed}"  # placeholder for the seed in the name of a log
_SUFFIX = ".safetensors"

Point = dict[str, float | str | None]  # a grid point; words stand for numbers that are computed from the known costs


class Fold(NamedTuple):
    """The known rows that policies of a seed must not learn from: those whose number hashes into [start, stop).

    It depends only on the seed and the number, which is that of the row in the log or of its cluster. It is therefore
    the same for every policy with that seed, in memory or streamed, and in a resumed run.
    """

    seed: int
    start: float = 0.0
    stop: float = 0.0

    def holds_out(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """A mask of the known rows, given by their numbers, that are held out."""
        if self.start == self.stop:  # none; hashing a large log would also take a lot of memory
            return np.zeros(len(numbers), bool)
        hashed = uniform_hash(numbers, self.seed)
        return (self.start <= hashed) & (hashed < self.stop)


@dataclass(frozen=True)
class Candidate:
    """A policy to train."""

    fold: Fold
    number: int  # its position in the grid, the same in every fold
    hyperparameters: Values

    @property
    def key(self) -> str:
        """Its name in a checkpoint."""
        return f"{self.fold.seed},{self.fold.start:g},{self.number}"


def folds_of(settings: TrainSettings) -> list[Fold]:
    """By seed: all folds of a cross-validation, or the single fold of --holdout."""
    if settings.folds is None:
        return [Fold(seed, 0.0, settings.held_share) for seed in settings.seed_list]
    ends = [(k / settings.folds, (k + 1) / settings.folds) for k in range(settings.folds)]
    return [Fold(seed, start, stop) for seed in settings.seed_list for start, stop in ends]


def grid(settings: TrainSettings) -> list[Point]:
    """The product of all given values."""
    points = settings.points
    return [dict(zip(points, values, strict=True)) for values in itertools.product(*points.values())]


def candidates_of(settings: TrainSettings, fold: Fold, costs: Costs, weights: Costs) -> list[Candidate]:
    """The grid as numbers. `costs`: the known costs that policies of the fold may see, and their weights."""
    declared = settings.declared
    values = [
        dict(zip(point, numbers, strict=True))
        for point in grid(settings)
        for numbers in itertools.product(
            *(declared[name].numbers(value, costs, weights) for name, value in point.items())
        )
    ]
    return [Candidate(fold, number, numbers) for number, numbers in enumerate(values)]


def runs_of(settings: TrainSettings, logs: Sequence[str]) -> list[tuple[TrainSettings, list[str]]]:
    """The settings and logs of each run. A name with {seed} stands for one log per seed, used only by the policies with
    that seed. Otherwise a single run trains the policies of all seeds."""
    if not any(SEED in name for name in logs):
        return [(settings, list(logs))]
    return [
        (replace(settings, seed=seed, seeds=None), [name.replace(SEED, str(seed)) for name in logs])
        for seed in settings.seed_list
    ]


def targets_of(
    settings: TrainSettings, output: str | None, log_stem: str, run: TrainSettings | None = None
) -> list[str]:
    """One file per policy, by seed and then by grid point. Without -o, files are named after the log; with a folder,
    they are in it. `run`: return only the files of this run out of several, with names that distinguish them from the
    others."""
    points = grid(settings) if settings.select is None else [{}]  # the selected point is not known yet
    number = len(settings.seed_list) * len(points)
    parts = [_part(settings, seed, point) for seed in (run or settings).seed_list for point in points]
    if output is None or output.endswith(("/", os.sep)) or (number > 1 and os.path.isdir(output)):
        return [os.path.join(output or "", f"{log_stem}-{settings.name}-{part}{_SUFFIX}") for part in parts]
    if number == 1:
        return [output]
    if output == "-":
        raise SettingError(f"-o - is for one policy, but these settings train {number}: give a folder")
    stem = output.removesuffix(_SUFFIX)
    return [f"{stem}-{part}{_SUFFIX}" for part in parts]


def _part(settings: TrainSettings, seed: int, point: Point) -> str:
    """`lam0.1-seed0`: the values that differ between the files."""
    differing = [name for name in point if len(settings.points[name]) > 1]
    return "-".join([*(f"{name}{_short(point[name])}" for name in differing), f"seed{seed}"])


def _short(value: float | str | None) -> str:
    return number_text(value) if isinstance(value, float | int) else str(value)
