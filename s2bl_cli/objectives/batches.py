"""What risks and regularisers see of a batch: the whole vocabulary of their formulas.

Every tensor has the rows of the batch as its last axis, or the rows and then the actions. The axes before are policies
that are trained side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s2bl_cli.objectives.terms import LOG_PI, LOG_POLICY, Term

if TYPE_CHECKING:
    from torch import Tensor


class KnownBatch(NamedTuple):
    """Rows with feedback, drawn uniformly from S; or any rows, with a weight of 0 where there is no feedback."""

    log_pi: Tensor  # (…, rows) log π_θ(aᵢ|xᵢ) of the logged action
    p: Tensor  # (…, rows) pᵢ, the logged propensity
    c: Tensor  # (…, rows) cᵢ, the cost
    weight: Tensor | None = None  # (…, rows) of mean 1 over the log; None: 1
    first: int = 0  # of the step's rows, the first that is in this batch

    def term(self, terms: Tensor, slope: Tensor) -> Term:
        """The mean over S of a term per row; `slope` is the derivative of each row's term in its log π."""
        if self.weight is not None:
            weighted = terms * self.weight
            slope = weighted if slope is terms else slope * self.weight
            terms = weighted
        return _term(self, terms, slope)

    def mean(self, terms: Tensor) -> Tensor:
        """The unbiased estimate of the mean over S: (…)."""
        return terms.mean(-1) if self.weight is None else (terms * self.weight).mean(-1)


class AnyBatch(NamedTuple):
    """Rows with or without feedback, drawn uniformly from the regularised rows.

    Fields that the regulariser does not need (`Regulariser.needs`) are None.
    """

    log_pi: Tensor  # (…, rows) log π_θ(aᵢ|xᵢ) of the logged action
    p: Tensor  # (…, rows) pᵢ, the logged propensity
    action_weight: Tensor  # (…, rows) N/m_a for the row's action a, counted over the whole log
    reward_weight: Tensor  # (…, rows) of mean 1 over the log: how much better than usual the logged action is
    log_policy: Tensor  # (…, rows, actions) log π_θ(·|xᵢ)
    pi0: Tensor  # (…, rows, actions) π₀(·|xᵢ)
    distance: Tensor  # (…) ‖θ − θ₀‖²
    first: int = 0  # of the step's rows, the first that is in this batch

    def term(self, terms: Tensor, slope: Tensor) -> Term:
        """The mean over the rows of a term per row; `slope` is the derivative of each row's term in its log π."""
        return _term(self, terms, slope)

    def policy_term(self, terms: Tensor, slope: Tensor) -> Term:
        """As `term`, with the slope in log π(·|x): (…, rows, actions)."""
        rows = self.log_policy.shape[-2]
        return Term(terms, {(LOG_POLICY, self.first): slope.expand_as(self.log_policy) / rows})

    def mean(self, terms: Tensor) -> Tensor:
        """The unbiased estimate of the mean over the regularised rows: (…)."""
        return terms.mean(-1)


def _term(batch: KnownBatch | AnyBatch, terms: Tensor, slope: Tensor) -> Term:
    slope = slope / batch.log_pi.shape[-1]
    if slope.shape != batch.log_pi.shape:  # one that no policy enters into is the same for all of them
        slope = slope.expand_as(batch.log_pi)
    return Term(terms, {(LOG_PI, batch.first): slope})
