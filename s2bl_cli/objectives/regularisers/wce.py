"""Reverse KL divergence as a propensity-weighted cross-entropy."""

from collections.abc import Mapping

import numpy as np

from s2bl_cli.objectives.hyperparameters import Hyperparameter, Values
from s2bl_cli.objectives.terms import LOG_POLICY, PI0, AnyBatch, MeanOfPropensities, Numbers, Regulariser, Term
from s2bl_cli.settings import Between


def wce(batch: AnyBatch, h: Numbers) -> Term:
    """L̂_WCE(π_θ) = Σ_a (1/m_a) Σ_{i: aᵢ=a} −pᵢ log π_θ(aᵢ|xᵢ).

    Estimated on a batch as the mean of (N/m_a)·(−pᵢ log π_θ(aᵢ|xᵢ)), which is unbiased because m_a is counted over the
    whole log. It equals the paper's reverse KL estimate minus the constant Σ p log p, so it does not depend on ν.
    Sharpened (β given): Σᵢ min(pᵢ, cap)^β (−log π_θ(aᵢ|xᵢ)) / Σᵢ min(pᵢ, cap)^β.
    Limits: its optimum over all policies is π ∝ π₀²/(marginal of a): it sharpens the logging policy. Sharpened, below
    the cap, π ∝ π₀^{1+β}; β = 0 is plain cross-entropy with the logged actions; β = 1 is the paper's up to a constant
    if all actions were logged equally often.
    Source: the paper, eq. (rkl final estim); sharpening: this project (docs/mathematics.md).
    """
    if h.sharpen is None:
        slope = batch.action_weight * -batch.p
    else:
        # Divided by the unit before raising to the power: 0.1^40 underflows float32, 1^40 does not.
        slope = -((batch.p.clamp(max=h.cap) / h.sharpen_unit) ** h.sharpen)
    return batch.term(batch.log_pi * slope, slope=slope)


def wce_exact(batch: AnyBatch, h: Numbers) -> Term:
    """mean over rows of Σ_a −π₀(a|xᵢ) log π_θ(a|xᵢ): KL(π₀‖π_θ) minus its constant, if the log stores π₀.

    Limits: its optimum over all policies is π₀ itself.
    """
    return batch.policy_term((batch.log_policy * -batch.pi0).sum(-1), slope=-batch.pi0)


def _sharpen_unit(values: Values, mean: MeanOfPropensities) -> Mapping[str, float]:
    """The propensity whose weight is 1: (mean of min(p, cap)^β over the regularised rows)^(1/β)."""
    beta, cap = values["sharpen"], values["cap"] or 1.0
    if not beta:
        return {"sharpen_unit": 1.0}
    return {"sharpen_unit": max(mean(lambda p: np.minimum(p, cap) ** beta), 1e-300) ** (1 / beta)}


SHARPEN = Hyperparameter("sharpen", "β", "Weight wce rows by propensity^β", Between(0, 50), None)
CAP = Hyperparameter(
    "cap",
    "cap",
    "Clip propensities at this value in --sharpen weights",
    Between(0, 1, low_open=True),
    1.0,
    requires="sharpen",
)

REGULARISER = Regulariser(
    "Σ_a mean_a(−p·log π)",
    wce,
    default_lam=1.0,
    hyperparameters=(SHARPEN, CAP),
    least_steps=1000,  # it imitates logged actions, and overfits them after more steps
    exact=Regulariser("mean(Σ_a −π₀·log π)", wce_exact, 1.0, needs=(LOG_POLICY, PI0)),
    derive=_sharpen_unit,
)
