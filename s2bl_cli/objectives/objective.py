"""The objective: risk + λ·regulariser. Written once; the loop, the tests and later learners use this."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, Knobs, KnownBatch
from s2bl_cli.registry import EXACT_FORMS, REGULARISERS, RISKS


class Value(NamedTuple):
    """What a policy's objective is on a batch: one number a policy in each."""

    total: Tensor  # (…)
    risk: Tensor | None  # (…)
    regulariser: Tensor | None  # (…)


@dataclass(frozen=True)
class Objective:
    """R̂(π_θ, S) + λ·L̂(π_θ)."""

    risk: Callable[[KnownBatch, Knobs], Tensor] | None  # None: no risk
    regulariser: Callable[[AnyBatch, Knobs], Tensor] | None  # None: no regulariser
    lam: float | Tensor  # (…) one number a policy
    knobs: Knobs

    @property
    def terms(self) -> int:
        """How many numbers of a value there are: the total, and its parts."""
        return 1 + (self.risk is not None) + (self.regulariser is not None)

    def __call__(self, known: KnownBatch | None, rows: AnyBatch | None) -> Value:
        """The value on a batch of known rows and a batch of rows; a part that has no term needs no batch."""
        risk = None if self.risk is None or known is None else self.risk(known, self.knobs)
        regulariser = None if self.regulariser is None or rows is None else self.regulariser(rows, self.knobs)
        if risk is None or regulariser is None:
            only = risk if regulariser is None else self.lam * regulariser
            assert only is not None
            return Value(only, risk, regulariser)
        return Value(risk + self.lam * regulariser, risk, regulariser)


def objective_of(risk: str, reg: str, lam: float | Tensor, knobs: Knobs, *, exact: bool = False) -> Objective:
    """The objective of these names. A λ of 0 needs no regulariser, so none is computed."""
    no_regulariser = reg == "none" or (isinstance(lam, int | float) and lam == 0)
    forms = EXACT_FORMS if exact else REGULARISERS
    return Objective(
        None if risk == "none" else RISKS.load(risk), None if no_regulariser else forms.load(reg), lam, knobs
    )
