"""Reverse KL divergence as a propensity-weighted cross-entropy."""

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch


def wce(batch: AnyBatch, nu: float) -> Tensor:
    """L̂_WCE(π_θ) = Σ_a (1/m_a) Σ_{i: aᵢ=a} −pᵢ log π_θ(aᵢ|xᵢ).

    Estimated on a batch as the mean of (N/m_a)·(−pᵢ log π_θ(aᵢ|xᵢ)), which is unbiased because m_a is
    counted over the whole log. It is the paper's reverse KL estimate less the constant Σ p log p, so ν does
    not enter.
    Limits: its optimum over all policies is π ∝ π₀²/(marginal of a): it sharpens the logging policy.
    Source: the paper, eq. (rkl final estim).
    """
    return (batch.action_weight * -batch.p * batch.log_pi).mean()
