"""What comes of a stage: its policies, their learning curves, and with patience the best epoch of each."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.registry import SELECTORS
from s2bl_cli.training.fitting import EpochNews, Fit
from s2bl_cli.training.selectors import HeldOut

Curve = list[tuple[int, str, float]]  # epoch, quantity, value
Held = Callable[[], list[list[HeldOut]]]

_QUANTITIES = ("loss", "risk", "regulariser", *SELECTORS.names)


class Outcome(NamedTuple):
    """One policy of a stage."""

    tensors: Tensors
    held: HeldOut | None  # on the rows held out, if any were
    curves: Curve
    best_epoch: int


class Tracker:
    """Follows G × C policies of a fit. `held` tells what they do on the rows held out; None if none were."""

    def __init__(
        self, fit: Fit, shape: tuple[int, int], held: Held | None, selector: str, patience: int | None
    ) -> None:
        self._fit, self.shape, self._held = fit, shape, held
        self._selector, self._patience = selector, patience
        self._curves: list[list[Curve]] = [[[] for _ in range(shape[1])] for _ in range(shape[0])]
        self._best = np.full(shape, -math.inf)
        self._best_epoch = np.zeros(shape, np.int64)
        self._best_tensors: dict[tuple[int, int], Tensors] = {}
        self._best_held: dict[tuple[int, int], HeldOut] = {}

    @property
    def is_out_of_patience(self) -> bool:
        """No policy has had a better epoch for so long."""
        return not self._in_patience(self._fit.progress.epoch)

    def _in_patience(self, epoch: int) -> list[tuple[int, int]]:
        """The policies that would still be in training after this epoch if they were alone."""
        patience = math.inf if self._patience is None else self._patience
        return [place for place in self._places() if epoch - self._best_epoch[place] < patience]

    def epoch_done(self, news: EpochNews) -> None:
        epoch = self._fit.progress.epoch
        places = self._in_patience(epoch - 1)
        for quantity, values in zip(_QUANTITIES, news, strict=False):
            if values is not None:
                whole = values.expand(self.shape).tolist()
                for g, c in places:
                    self._curves[g][c].append((epoch, quantity, whole[g][c]))
        if self._patience is not None:
            self._keep_best(epoch, places)

    def _keep_best(self, epoch: int, places: Sequence[tuple[int, int]]) -> None:
        assert self._held is not None
        estimate = SELECTORS.load(self._selector)
        held = self._held()
        state = self._fit.learner.state()
        for g, c in places:
            value = estimate(held[g][c])
            self._curves[g][c].append((epoch, self._selector, value))
            if value > self._best[g, c]:
                self._best[g, c], self._best_epoch[g, c] = value, epoch
                self._best_tensors[g, c] = self._fit.learner.policy_tensors(state, g, c)
                self._best_held[g, c] = held[g][c]

    def outcomes(self) -> list[list[Outcome]]:
        held = None if self._held is None else self._held()
        return [[self._outcome(held, g, c) for c in range(self.shape[1])] for g in range(self.shape[0])]

    def _outcome(self, held: list[list[HeldOut]] | None, g: int, c: int) -> Outcome:
        # No state is taken before it is needed: a policy's best epoch may be all that is wanted of it.
        tensors = self._best_tensors.get((g, c))
        if tensors is None:
            tensors = self._fit.learner.policy_tensors(self._fit.learner.state(), g, c)
        epoch = int(self._best_epoch[g, c]) or self._fit.progress.epoch
        # With patience, of the epoch that is kept: to choose by the last one would be to choose by another policy.
        own = self._best_held.get((g, c), None if held is None else held[g][c])
        return Outcome(tensors, own, self._curves[g][c], epoch)

    def _places(self) -> Iterator[tuple[int, int]]:
        return ((g, c) for g in range(self.shape[0]) for c in range(self.shape[1]))

    def state(self) -> Tensors:
        """For a checkpoint."""
        curves = {f"curve.{g}.{c}": _curve_table(self._curves[g][c]) for g, c in self._places()}
        best = {f"best.{g}.{c}.{n}": v for (g, c), own in self._best_tensors.items() for n, v in own.items()}
        held = {f"held.{g}.{c}.{n}": v for (g, c), own in self._best_held.items() for n, v in _held_tensors(own)}
        return {"best": self._best.copy(), "best_epoch": self._best_epoch.copy(), **curves, **best, **held}

    def load_state(self, state: Tensors) -> None:
        self._best[:], self._best_epoch[:] = state["best"], state["best_epoch"]
        for g, c in self._places():
            self._curves[g][c] = _curve_from(state[f"curve.{g}.{c}"])
            own, held = _under(f"best.{g}.{c}.", state), _under(f"held.{g}.{c}.", state)
            if own:
                self._best_tensors[g, c], self._best_held[g, c] = own, HeldOut(**held)


def outcome_tensors(outcome: Outcome) -> Tensors:
    """For a checkpoint."""
    return {
        **{f"tensor.{name}": value for name, value in outcome.tensors.items()},
        **({} if outcome.held is None else {f"held.{name}": value for name, value in _held_tensors(outcome.held)}),
        "curve": _curve_table(outcome.curves),
        "best_epoch": np.array(outcome.best_epoch),
    }


def outcome_from(tensors: Tensors) -> Outcome:
    own, held = _under("tensor.", tensors), _under("held.", tensors)
    return Outcome(own, HeldOut(**held) if held else None, _curve_from(tensors["curve"]), int(tensors["best_epoch"]))


def _held_tensors(held: HeldOut) -> list[tuple[str, npt.NDArray[Any]]]:
    return [(name, np.asarray(value)) for name, value in held._asdict().items() if value is not None]


def _under(prefix: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(prefix): v.copy() for name, v in tensors.items() if name.startswith(prefix)}


def _curve_table(curve: Sequence[tuple[int, str, float]]) -> npt.NDArray[np.float64]:
    return np.array([(epoch, _QUANTITIES.index(quantity), value) for epoch, quantity, value in curve]).reshape(-1, 3)


def _curve_from(table: npt.NDArray[np.float64]) -> Curve:
    return [(int(epoch), _QUANTITIES[int(quantity)], float(value)) for epoch, quantity, value in table]
