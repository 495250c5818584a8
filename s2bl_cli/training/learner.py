"""The interface of a learner, which takes candidates and returns results; and the run with its checkpoint.

`gradient_learner.py` implements it. A closed-form learner can implement it too.
"""

import math
import os
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from s2bl_cli.console import Console
from s2bl_cli.contract.checkpoints import (
    Progress,
    Result,
    damaged_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.policies import LoadedPolicy, NetworkSpec
from s2bl_cli.contract.tensor_files import Layout, layout_of
from s2bl_cli.training.candidates import Candidate
from s2bl_cli.training.data import TrainingData
from s2bl_cli.training.settings import TrainSettings


class Learner(Protocol):
    """Created by a method (`Method.learner`)."""

    networks: tuple[NetworkSpec, ...]  # first that of its policies, then others whose tensors a checkpoint may contain

    def __init__(self, settings: TrainSettings, spec: NetworkSpec) -> None: ...

    def fit(
        self, data: TrainingData, candidates: Sequence[Candidate], run: "Run"
    ) -> Iterator[tuple[Candidate, Result]]:
        """Return a result for each of `run.unfinished(candidates)`, in any order.

        A candidate must not learn from the known rows that its fold holds out; its result contains predictions for
        them.
        Raises Interrupted if `run.should_stop()`.
        """


class Checkpoint:
    """The progress of a run: finished candidates, and the state of those in training.

    A resumed run takes the same steps as one that never stopped, bit for bit. The order of the rows depends only on
    seed and epoch, so it is enough to save the policies, the optimizer and the number of the next step. Without a path,
    nothing is saved.
    """

    def __init__(
        self, path: str | None = None, *, every_epochs: int | None = None, every_minutes: float = math.inf
    ) -> None:
        self.path = path
        self._every_epochs, self._every_minutes = every_epochs, every_minutes
        self._written_at = time.monotonic()
        self._run: Callable[[], Step] | None = None
        self.progress = Progress()

    def resume(self, run: Callable[[], Step]) -> bool:
        """Continue from the file; False if there is none."""
        if self.path is None or not os.path.exists(self.path):
            return False
        self.progress = read_checkpoint(self.path, run())
        return True

    def start(self, run: Callable[[], Step], *, streamed: bool, layouts: Sequence[Layout]) -> None:
        """`run`: what a checkpoint must have in common with the run that resumes from it. Calling it reads the log.

        `layouts`: of the networks' tensors.
        """
        self._run = run
        self.progress.streamed = streamed
        current = self.progress.current
        saved = [*self.progress.finished.values(), {} if current is None else current.results]
        self.expect(
            all(layout_of(result.tensors) in ({}, *layouts) for results in saved for result in results.values())
        )

    def expect(self, condition: bool) -> None:
        """Treat the file as damaged if it comes from this run but does not fit it."""
        if not condition:
            raise damaged_checkpoint(str(self.path))

    def is_due(self, epoch: int) -> bool:
        minutes = (time.monotonic() - self._written_at) / 60
        by_epochs = self._every_epochs is not None and epoch % self._every_epochs == 0
        return self.path is not None and (by_epochs or minutes >= self._every_minutes)

    def write(self) -> None:
        if self.path is not None and self._run is not None:
            write_checkpoint(self._run(), self.progress.model_dump(), self.path)
            self._written_at = time.monotonic()

    def remove(self) -> None:
        """Delete the file: the run is done, so there is nothing to resume."""
        if self.path is not None and os.path.exists(self.path):
            os.unlink(self.path)


@dataclass(frozen=True)
class Run:
    """One stage of a training run: what a learner receives in addition to data and candidates."""

    device: torch.device
    stage: str = "training"
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    should_stop: Callable[[], bool] = lambda: False  # checked between two steps; if true, raise Interrupted
    console: Console = field(default_factory=lambda: Console(quiet=True))
    compiled: bool = False
    prior: LoadedPolicy | None = None
    keeps_tensors: bool = True  # if false, results are used for selection only
    shared: dict[Hashable, Any] = field(default_factory=dict)  # what several learners would compute alike, by key

    def fit(self, learner: Learner, data: TrainingData, candidates: Sequence[Candidate]) -> list[Result]:
        """Fit the unfinished candidates; return the results of all candidates, in order."""
        finished = self.checkpoint.progress.finished.setdefault(self.stage, {})
        self.checkpoint.expect(all(bool(result.tensors) == self.keeps_tensors for result in finished.values()))
        for candidate, result in learner.fit(data, candidates, self):
            result.tensors = result.tensors if self.keeps_tensors else {}
            finished[candidate.key] = result
        return [finished[candidate.key] for candidate in candidates]

    def unfinished(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        done = self.checkpoint.progress.finished.get(self.stage, {})
        return [candidate for candidate in candidates if candidate.key not in done]
