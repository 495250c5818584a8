"""What risks and regularisers see of a batch. The whole vocabulary of the objectives' formulas.

Every tensor has the batch as its last axis, or the batch and then the actions. Axes before it are policies that
are trained side by side; knobs that differ between them broadcast, and a term is one number a policy.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class KnownBatch(NamedTuple):
    """Rows with feedback, drawn uniformly from S; or any rows, with a weight of 0 where there is no feedback."""

    log_pi: Tensor  # (…, batch) log π_θ(aᵢ|xᵢ) of the logged action
    p: Tensor  # (…, batch) pᵢ, the logged propensity
    c: Tensor  # (…, batch) cᵢ, the cost
    weight: Tensor | None = None  # (…, batch) of mean 1 over the log; None: 1

    def mean(self, terms: Tensor) -> Tensor:
        """The unbiased estimate of the terms' mean over S: (…)."""
        return terms.mean(-1) if self.weight is None else (terms * self.weight).mean(-1)


class AnyBatch(NamedTuple):
    """Rows with or without feedback, drawn uniformly from the rows that the regulariser is on.

    A field is None where no regulariser at hand looks at it.
    """

    log_pi: Tensor  # (…, batch) log π_θ(aᵢ|xᵢ) of the logged action
    p: Tensor  # (…, batch) pᵢ, the logged propensity
    action_weight: Tensor  # (…, batch) N/m_a for the row's action a, counted once over the whole log
    merit: Tensor | None = None  # (…, batch) how much better than usual the action is held to be, of mean 1
    log_policy: Tensor | None = None  # (…, batch, actions) log π_θ(·|xᵢ)
    pi0: Tensor | None = None  # (…, batch, actions) π₀(·|xᵢ)
    distance: Tensor | None = None  # (…) ‖θ − θ₀‖²

    def mean(self, terms: Tensor) -> Tensor:
        """The unbiased estimate of the terms' mean over those rows: (…)."""
        return terms.mean(-1)


@dataclass(frozen=True)
class Knobs:
    """The numbers in the formulas. Each is a number, or a tensor (…, 1) of one number a policy."""

    nu: float | Tensor = 0.0  # truncation: propensities below it count as ν
    translation: float | Tensor = 0.0  # banditnet: what is taken off every cost
    smoothing: float | Tensor = 0.0  # the parameter of ix, es, ls, lse and os
    sharpen: float | Tensor | None = None  # β of wce's weights; None: the paper's
    cap: float = 1.0  # of the propensities in sharpened weights
    sharpen_unit: float | Tensor = 1.0  # the propensity of weight 1: (mean of min(p, cap)^β over the rows)^(1/β)
