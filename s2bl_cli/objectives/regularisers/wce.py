"""Reverse KL divergence as a propensity-weighted cross-entropy."""

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, Knobs


def wce(batch: AnyBatch, knobs: Knobs) -> Tensor:
    """L̂_WCE(π_θ) = Σ_a (1/m_a) Σ_{i: aᵢ=a} −pᵢ log π_θ(aᵢ|xᵢ).

    Estimated on a batch as the mean of (N/m_a)·(−pᵢ log π_θ(aᵢ|xᵢ)), which is unbiased because m_a is
    counted over the whole log. It is the paper's reverse KL estimate less the constant Σ p log p, so ν does
    not enter.
    Sharpened (β given): Σᵢ min(pᵢ, cap)^β (−log π_θ(aᵢ|xᵢ)) / Σᵢ min(pᵢ, cap)^β.
    Limits: its optimum over all policies is π ∝ π₀²/(marginal of a): it sharpens the logging policy. Sharpened,
    below the cap, π ∝ π₀^{1+β}; β = 0 is plain cross-entropy with the logged actions; β = 1 is the paper's up to
    a constant where all actions were logged equally often.
    Source: the paper, eq. (rkl final estim); sharpening: this project (docs/mathematics.md).
    """
    if knobs.sharpen is None:
        return batch.mean(-batch.log_pi * (batch.action_weight * batch.p))
    # Relative to the unit before the power is taken: 0.1^40 is beyond float32, 1^40 is not.
    weight = (batch.p.clamp(max=knobs.cap) / knobs.sharpen_unit) ** knobs.sharpen
    return batch.mean(-batch.log_pi * weight)


def wce_exact(batch: AnyBatch, knobs: Knobs) -> Tensor:
    """mean over rows of Σ_a −π₀(a|xᵢ) log π_θ(a|xᵢ): KL(π₀‖π_θ) less its constant, where the log stores π₀.

    Limits: its optimum over all policies is π₀ itself.
    """
    assert batch.log_policy is not None
    assert batch.pi0 is not None
    return batch.mean((batch.pi0 * -batch.log_policy).sum(-1))
