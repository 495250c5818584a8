"""The two terms of a doubly robust objective: the policy's expected cost under a reward model, and a correction.

    mean over rows of Σ_a π_θ(a|x) ĉ(x, a)  +  κ · mean over S of (π_θ(aᵢ|xᵢ)/max(ν, pᵢ)) (cᵢ − ĉ(xᵢ, aᵢ))

ĉ is cross-fitted: the model that predicts a row was not trained on its feedback (`training/direct_learner.py`).
"""

from s2bl_cli.objectives.hyperparameters import NU, Hyperparameter
from s2bl_cli.objectives.terms import (
    EXPECTED_COSTS,
    LOG_PI,
    LOG_POLICY,
    AnyBatch,
    KnownBatch,
    Numbers,
    Regulariser,
    Risk,
    Term,
)
from s2bl_cli.settings import Between

CORRECTION = Hyperparameter(
    "correction",
    "κ",
    "Weight of the correction by the residuals of the reward model; 0: the reward model alone",
    Between(0, 100),
    1.0,
)


def correction(batch: KnownBatch, h: Numbers) -> Term:
    """κ · mean over S of (cᵢ − ĉ(xᵢ, aᵢ)) π_θ(aᵢ|xᵢ) / max(ν, pᵢ).

    Domain: any finite costs, ν ≥ 0, p in (0, 1].
    Limits: with ĉ = 0 and κ = 1, `tips`. Its mean is 0 for every policy if ĉ is right, or if the policy takes no
    action that ĉ is wrong about.
    Source: Dudík et al. 2011; Athey & Wager 2021.
    """
    terms = batch.log_pi.exp() * (h.correction * (batch.c - batch.expected_cost) / batch.p.clamp(min=h.nu))
    return batch.term(terms, slope=terms)


def expected_cost(batch: AnyBatch, h: Numbers) -> Term:
    """mean over rows of Σ_a π_θ(a|xᵢ) ĉ(xᵢ, a).

    Limits: its optimum over all policies takes the best action of ĉ, as the direct method does.
    Source: Dudík et al. 2011.
    """
    terms = batch.log_policy.exp() * batch.expected_costs
    return batch.policy_term(terms.sum(-1), slope=terms)


RISK = Risk("κ·mean_S((c−ĉ)·π/max(ν,p))", correction, (CORRECTION, NU), (LOG_PI, EXPECTED_COSTS))
REGULARISER = Regulariser("mean(Σ_a π·ĉ)", expected_cost, default_lam=1.0, needs=(LOG_POLICY, EXPECTED_COSTS))
