"""KL divergence from the logging policy."""

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, Knobs


def kl(batch: AnyBatch, knobs: Knobs) -> Tensor:
    """L̂_KL^ν(π_θ) = Σ_a (1/m_a) Σ_{i: aᵢ=a} π_θ(aᵢ|xᵢ) log(π_θ(aᵢ|xᵢ) / max(ν, pᵢ)).

    Estimated on a batch as the mean of (N/m_a)·(the term), which is unbiased because m_a is counted over the
    whole log.
    Limits: 0 where π_θ equals max(ν, p) on every logged row.
    Source: the paper, eq. (CRM regularize by KL), truncated as in its KL-S2BL algorithm.
    """
    term = batch.log_pi.exp() * (batch.log_pi - batch.p.clamp(min=knobs.nu).log())
    return batch.mean(term * batch.action_weight)


def kl_exact(batch: AnyBatch, knobs: Knobs) -> Tensor:
    """mean over rows of Σ_a π_θ(a|xᵢ) log(π_θ(a|xᵢ) / max(ν, π₀(a|xᵢ))), where the log stores π₀.

    Limits: 0 where π_θ = π₀ ≥ ν. With the risk, its optimum over all policies is π ∝ π₀·exp(−c/λ).
    """
    assert batch.log_policy is not None
    assert batch.pi0 is not None
    floor = batch.pi0.clamp(min=_per_action(knobs.nu)).log()
    return batch.mean((batch.log_policy.exp() * (batch.log_policy - floor)).sum(-1))


def _per_action(knob: float | Tensor) -> float | Tensor:
    """A knob (…, 1) for tensors (…, batch, actions)."""
    return knob.unsqueeze(-1) if isinstance(knob, Tensor) else knob
