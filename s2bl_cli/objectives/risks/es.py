"""Exponential smoothing."""

from s2bl_cli.objectives.hyperparameters import smoothing
from s2bl_cli.objectives.terms import KnownBatch, Numbers, Risk, Term
from s2bl_cli.settings import Between


def es(batch: KnownBatch, h: Numbers) -> Term:
    """mean over S of cᵢ π_θ(aᵢ|xᵢ)/pᵢ^α, α in [0, 1] the smoothing, 0.9 by default.

    Domain: any finite costs.
    Limits: α = 1 is `ips`; α = 0 is the mean of cᵢ π_θ(aᵢ|xᵢ).
    Source: Aouali, Brunel, Rohde & Korba 2023.
    """
    terms = batch.log_pi.exp() * (batch.c / batch.p**h.smoothing)
    return batch.term(terms, slope=terms)


RISK = Risk("mean_S(c·π/p^α)", es, (smoothing("α", Between(0, 1), 0.9),))
