"""The objective: risk + λ·regulariser. Written once; the loop, the tests and later learners use this."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, KnownBatch
from s2bl_cli.registry import REGULARISERS, RISKS


@dataclass(frozen=True)
class Objective:
    """R̂(π_θ, S) + λ·L̂(π_θ)."""

    risk: Callable[[KnownBatch, float], Tensor]
    regulariser: Callable[[AnyBatch, float], Tensor]
    lam: float
    nu: float

    def __call__(self, known: KnownBatch | None, rows: AnyBatch | None) -> Tensor:
        """The value on a batch of known rows and a batch of rows; None where that part has no term."""
        terms = []
        if known is not None:
            terms.append(self.risk(known, self.nu))
        if rows is not None:
            terms.append(self.lam * self.regulariser(rows, self.nu))
        return sum(terms[1:], terms[0])


def objective_of(risk: str, reg: str, lam: float, nu: float) -> Objective:
    return Objective(RISKS.load(risk), REGULARISERS.load(reg), lam, nu)
