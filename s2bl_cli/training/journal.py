"""A run's journal: what is done so far, kept in a checkpoint file, so that a run that was stopped can go on.

A run that goes on takes the same steps as one that never stopped, to the last bit: the checkpoint has the policies,
the optimizer's state, and the random generators as they were at the start of the epoch, whose batches are drawn
again and those already seen left out.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s2bl_cli.contract.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.errors import ContractError
from s2bl_cli.training.fitting import TERMS, Fit
from s2bl_cli.training.outcomes import Outcome, Tracker, outcome_from, outcome_tensors

Place = tuple[str, int]  # the stage's name and the unit's number

_CHOICE = "chosen"

# What a file that is not what it says can raise on the way back into a run.
_NONSENSE = (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError, RuntimeError)


class Journal:
    """Of one run. Without a file name it keeps nothing."""

    def __init__(
        self,
        target: str | None = None,
        run: Callable[[], Step] | None = None,
        *,
        every_epochs: int | None = None,
        every_minutes: float | None = None,
    ) -> None:
        self._target, self._run = target, run
        self._every_epochs, self._every_minutes = every_epochs, every_minutes
        self._notes: dict[str, Any] = {}
        self._done: dict[Place, Tensors] = {}
        self._sizes: dict[Place, list[int]] = {}
        self._current: tuple[Place, Mapping[str, Any], Tensors] | None = None
        self._written_at = time.monotonic()

    def resume(self) -> bool:
        """Take up what the file has; False if there is none."""
        if self._target is None or self._run is None or not os.path.exists(self._target):
            return False
        checkpoint = read_checkpoint(self._target, self._run())
        progress, tensors = checkpoint.progress, checkpoint.tensors
        try:
            self._notes = dict(progress["notes"])
            for stage, unit, groups, policies in progress["done"]:
                place = (stage, unit)
                self._sizes[place] = [groups, policies]
                self._done[place] = _under(f"done.{stage}.{unit}.", tensors)
            if progress["current"] is not None:
                stage, unit = progress["current"]["place"]
                self._current = ((stage, unit), progress["current"], _under("now.", tensors))
        except _NONSENSE as error:
            raise self._damaged("progress") from error
        return True

    def _damaged(self, what: str) -> ContractError:
        return ContractError(f"{self._target}: its {what} is damaged; drop --resume to start anew")

    def noted_choice(self, seeds: int, combinations: int) -> list[tuple[int, float]] | None:
        """The place of each seed's combination and its estimate, if an earlier stage came to choose."""
        noted = self._notes.get(_CHOICE)
        if noted is None:
            return None
        try:
            chosen = [(int(place), float(estimate)) for place, estimate in noted]
        except _NONSENSE as error:
            raise self._damaged("choice") from error
        if len(chosen) != seeds or not all(0 <= place < combinations for place, _ in chosen):
            raise self._damaged("choice")
        return chosen

    def note_choice(self, chosen: Sequence[tuple[int, float]]) -> None:
        self._notes[_CHOICE] = [list(one) for one in chosen]
        self._done, self._sizes = {}, {}

    def finished(self, place: Place, shape: tuple[int, int]) -> list[list[Outcome]] | None:
        """The policies of a unit of G × C of them that was done before."""
        if place not in self._done:
            return None
        if self._sizes[place] != list(shape):
            raise self._damaged("progress")
        tensors = self._done[place]
        try:
            return [[outcome_from(_under(f"{g}.{c}.", tensors)) for c in range(shape[1])] for g in range(shape[0])]
        except _NONSENSE as error:
            raise self._damaged("list of policies") from error

    def unit_done(self, place: Place, outcomes: Sequence[Sequence[Outcome]]) -> None:
        if self._target is None:
            return
        self._sizes[place] = [len(outcomes), len(outcomes[0])]
        self._done[place] = {
            f"{g}.{c}.{name}": value
            for g, of_group in enumerate(outcomes)
            for c, outcome in enumerate(of_group)
            for name, value in outcome_tensors(outcome).items()
        }

    def prior(self, place: Place, device: torch.device) -> list[Tensor] | None:
        """What the unit's policies are to stay near, if the checkpoint left this unit and knows it."""
        if self._current is None or self._current[0] != place:
            return None
        kept = _as_torch(_under("prior.", self._current[2]))
        return [kept[name].to(device) for name in sorted(kept, key=int)] or None

    def take_up(self, place: Place, fit: Fit, tracker: Tracker) -> None:
        """Put the fit where the checkpoint left it, if it left this one."""
        if self._current is None or self._current[0] != place:
            return
        _, progress, tensors = self._current
        self._current = None
        try:
            _load_fit(fit, progress, tensors)
            tracker.load_state(_under("tracker.", tensors))
            _check_prior(fit)
            for name, total in fit.progress.totals.items():
                if name not in TERMS or total.shape[:-1] != tracker.shape or not total.is_floating_point():
                    raise ValueError("sums of another objective")
        except _NONSENSE as error:
            raise self._damaged("state") from error

    def epoch_done(self, place: Place, fit: Fit, tracker: Tracker) -> None:
        """Write, if it is time to."""
        minutes = (time.monotonic() - self._written_at) / 60
        by_epochs = self._every_epochs is not None and fit.progress.epoch % self._every_epochs == 0
        by_minutes = self._every_minutes is not None and minutes >= self._every_minutes
        if by_epochs or by_minutes:
            self.write(place, fit, tracker)

    def write(self, place: Place, fit: Fit, tracker: Tracker) -> None:
        """Everything, as it is between two steps."""
        tensors = {f"now.{name}": value for name, value in _fit_tensors(fit).items()}
        tensors |= {f"now.tracker.{name}": value for name, value in tracker.state().items()}
        self._write({"place": list(place), "epoch": fit.progress.epoch, "step": fit.progress.step}, tensors)

    def write_done(self) -> None:
        """What is done, before the next unit has begun."""
        self._write(None, {})

    def _write(self, current: Mapping[str, Any] | None, tensors: Tensors) -> None:
        if self._target is None or self._run is None:
            return
        for (stage, unit), own in self._done.items():
            tensors |= {f"done.{stage}.{unit}.{name}": value for name, value in own.items()}
        progress = {
            "notes": self._notes,
            "done": [[stage, unit, *size] for (stage, unit), size in self._sizes.items()],
            "current": current,
        }
        write_checkpoint(Checkpoint(self._run(), progress, tensors), self._target)
        self._written_at = time.monotonic()

    def remove(self) -> None:
        """The run is done: nothing is left to go on from."""
        if self._target is not None and os.path.exists(self._target):
            os.unlink(self._target)


def _under(prefix: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _fit_tensors(fit: Fit) -> Tensors:
    progress = fit.progress
    states = fit.epoch_start if progress.step else [one.get_state() for pair in fit.generators for one in pair]
    named = {f"learner.{name}": value for name, value in fit.learner.state().items()}
    named |= {f"optimizer.{name}": value for name, value in fit.optimizer.state().items()}
    named |= {f"prior.{i}": value for i, value in enumerate(fit.prior or ())}
    named |= {f"generator.{i}": state for i, state in enumerate(states)}
    if progress.step:
        named |= {f"total.{name}": total for name, total in progress.totals.items()}
    return {name: value.detach().cpu().numpy().copy() for name, value in named.items()}


def _check_prior(fit: Fit) -> None:
    """Of as many groups as the fit has, and otherwise of one policy's shapes."""
    groups = len(fit.generators)
    wanted = [own.shape if groups == 1 else (groups, *own.shape[1:]) for own in fit.learner.prior_of(0)]
    if fit.prior is not None and [prior.shape for prior in fit.prior] != wanted:
        raise ValueError("a prior of another shape")


@torch.no_grad()
def _load_fit(fit: Fit, progress: Mapping[str, Any], tensors: Tensors) -> None:
    learner = _as_torch(_under("learner.", tensors))
    for name, value in fit.learner.state().items():
        if learner[name].shape != value.shape:
            raise ValueError("parameters of another shape")
        value.copy_(learner[name])
    device = fit.learner.parameters[0].device
    fit.optimizer.load_state(
        {name: value.to(device) for name, value in _as_torch(_under("optimizer.", tensors)).items()}
    )
    states = [torch.from_numpy(tensors[f"generator.{i}"].copy()) for i in range(2 * len(fit.generators))]
    epoch, step = int(progress["epoch"]), int(progress["step"])
    if not (0 <= epoch <= fit.epochs and 0 <= step < fit.steps_to_an_epoch):
        raise ValueError("a place beyond the run")
    fit.progress.epoch, fit.progress.step = epoch, step
    fit.epoch_start = states
    for generator, state in zip((one for pair in fit.generators for one in pair), states, strict=True):
        generator.set_state(state)
    fit.progress.totals = {name: value.to(device) for name, value in _as_torch(_under("total.", tensors)).items()}


def _as_torch(tensors: Tensors) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.asarray(value).copy()) for name, value in tensors.items()}
