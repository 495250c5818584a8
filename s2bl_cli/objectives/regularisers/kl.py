"""KL divergence from the logging policy."""

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch


def kl(batch: AnyBatch, nu: float) -> Tensor:
    """L̂_KL^ν(π_θ) = Σ_a (1/m_a) Σ_{i: aᵢ=a} π_θ(aᵢ|xᵢ) log(π_θ(aᵢ|xᵢ) / max(ν, pᵢ)).

    Estimated on a batch as the mean of (N/m_a)·(the term), which is unbiased because m_a is counted over the
    whole log.
    Limits: 0 where π_θ equals max(ν, p) on every logged row.
    Source: the paper, eq. (CRM regularize by KL), truncated as in its KL-S2BL algorithm.
    """
    term = batch.log_pi.exp() * (batch.log_pi - batch.p.clamp(min=nu).log())
    return (batch.action_weight * term).mean()
