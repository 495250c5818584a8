"""The objective: risk + λ·regulariser, and the two by their names."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, Knobs, KnownBatch
from s2bl_cli.registry import EXACT_FORMS, REGULARISERS, RISKS


@dataclass(frozen=True)
class Objective:
    """R̂(π_θ, S) + λ·L̂(π_θ)."""

    risk: Callable[[KnownBatch, Knobs], Tensor] | None  # None: no risk
    regulariser: Callable[[AnyBatch, Knobs], Tensor] | None  # None: no regulariser
    lam: float | Tensor  # (…) one number a policy
    knobs: Knobs

    def total(self, risk: Tensor | None, regulariser: Tensor | None) -> Tensor:
        """Of the two terms' values (…); one that is not there is None."""
        if regulariser is None:
            assert risk is not None
            return risk
        weighted = self.lam * regulariser
        return weighted if risk is None else risk + weighted


def objective_of(risk: str, reg: str, lam: float | Tensor, knobs: Knobs, *, exact: bool = False) -> Objective:
    """The objective of these names. A λ of 0 needs no regulariser, so none is computed."""
    no_regulariser = reg == "none" or (isinstance(lam, int | float) and lam == 0)
    forms = EXACT_FORMS if exact else REGULARISERS
    return Objective(
        None if risk == "none" else RISKS.load(risk), None if no_regulariser else forms.load(reg), lam, knobs
    )
