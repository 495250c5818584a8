"""The objective's two terms, with the hyperparameters of the policies at hand. (`training/loop.py` adds them up.)"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, KnownBatch
from s2bl_cli.objectives.terms import NOTHING, Numbers, Regulariser, Risk, Term


@dataclass(frozen=True)
class Objective:
    """R̂(π_θ, S) + λ·L̂(π_θ)."""

    declared_risk: Risk
    declared_regulariser: Regulariser
    lam: float | Tensor  # (…)
    h: Numbers

    def risk(self, batch: KnownBatch) -> Term:
        """A batch without rows has no say: of a streamed log, a part may have no feedback."""
        return self.declared_risk.formula(batch, self.h) if batch.log_pi.shape[-1] else NOTHING

    def regulariser(self, batch: AnyBatch) -> Term:
        sees_any: Any = batch.log_pi.shape[-1] or batch.distance is not None
        return self.declared_regulariser.formula(batch, self.h) if sees_any else NOTHING
