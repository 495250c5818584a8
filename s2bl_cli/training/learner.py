"""What a learner is: candidates in, results out. `gradient_learner.py` is one; one in closed form never sees a loss."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from s2bl_cli.console import Console
from s2bl_cli.contract.policies import LoadedPolicy, NetworkSpec
from s2bl_cli.training.candidates import Candidate
from s2bl_cli.training.checkpoint import Checkpoint
from s2bl_cli.training.data import TrainingData
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.validation import Result, result_from


class Learner(Protocol):
    """Made by a method (`Method.learner`)."""

    def __init__(self, settings: TrainSettings, spec: NetworkSpec) -> None: ...

    def fit(self, data: TrainingData, candidates: Sequence[Candidate], run: "Run") -> Iterator[Result]:
        """A result for each of `run.unfinished(candidates)`, in any order.

        A candidate must not learn from known rows that its fold holds out; its result predicts on them.
        Raises Interrupted where `run.should_stop()`.
        """


@dataclass(frozen=True)
class Run:
    """What a learner is given besides data and candidates: one stage of a training run."""

    device: torch.device
    stage: str = "training"
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    should_stop: Callable[[], bool] = lambda: False  # asked between two steps; if so, raise Interrupted
    console: Console = field(default_factory=lambda: Console(quiet=True))
    compiled: bool = False
    prior: LoadedPolicy | None = None
    keeps_tensors: bool = True  # else results are for selecting only

    def fit(self, learner: Learner, data: TrainingData, candidates: Sequence[Candidate]) -> list[Result]:
        """Fit what is not finished yet; the results of all candidates, in their order."""
        with self.checkpoint.checked():
            finished = self.checkpoint.content["stages"].setdefault(self.stage, {})
            results = {c.key: result_from(c, finished[c.key]) for c in candidates if c.key in finished}
        for result in learner.fit(data, candidates, self):
            results[result.candidate.key] = result
            finished[result.candidate.key] = result.content(with_tensors=self.keeps_tensors)
        return [results[candidate.key] for candidate in candidates]

    def unfinished(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        done = self.checkpoint.content["stages"].get(self.stage, {})
        return [candidate for candidate in candidates if candidate.key not in done]

    @contextlib.contextmanager
    def saved_state(self, key: str) -> Iterator[dict[str, Any] | None]:
        """The state of these candidates, if the checkpoint was written in their midst. Use it inside the block."""
        current = self.checkpoint.content["current"]
        with self.checkpoint.checked():
            is_current = current is not None and (current["stage"], current["key"]) == (self.stage, key)
            yield current["state"] if is_current else None

    def keep(self, key: str, state: dict[str, Any], epoch: int, step: int) -> None:
        """Put the state of these candidates into the checkpoint, which is written when the run is interrupted."""
        self.checkpoint.content["current"] = {
            "stage": self.stage, "key": key, "epoch": epoch, "step": step, "state": state
        }  # fmt: skip
