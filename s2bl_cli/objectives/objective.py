"""The objective: risk + λ·regulariser. Written once; the loop, the tests and later learners use this."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, KnownBatch
from s2bl_cli.registry import REGULARISERS, RISKS


@dataclass(frozen=True)
class Objective:
    """R̂(π_θ, S) + λ·L̂(π_θ)."""

    risk: Callable[[KnownBatch, float], Tensor] | None  # None: no risk
    regulariser: Callable[[AnyBatch, float], Tensor] | None  # None: no regulariser
    lam: float
    nu: float

    def __call__(self, known: KnownBatch | None, rows: AnyBatch | None) -> Tensor:
        """The value on a batch of known rows and a batch of rows; a part that has no term needs no batch."""
        terms = []
        if self.risk is not None and known is not None:
            terms.append(self.risk(known, self.nu))
        if self.regulariser is not None and rows is not None:
            terms.append(self.lam * self.regulariser(rows, self.nu))
        return sum(terms[1:], terms[0])


def objective_of(risk: str, reg: str, lam: float, nu: float) -> Objective:
    return Objective(
        None if risk == "none" else RISKS.load(risk),
        None if reg == "none" or lam == 0 else REGULARISERS.load(reg),
        lam,
        nu,
    )
