"""Implicit exploration."""

from s2bl_cli.objectives.hyperparameters import smoothing
from s2bl_cli.objectives.terms import KnownBatch, Numbers, Risk, Term
from s2bl_cli.settings import Between


def ix(batch: KnownBatch, h: Numbers) -> Term:
    """mean over S of cᵢ π_θ(aᵢ|xᵢ)/(pᵢ + γ), γ the smoothing, 1/(2√n) by default.

    Domain: any finite costs, γ ≥ 0; pessimistic if costs are ≤ 0.
    Limits: γ = 0 is `ips`.
    Source: Neu 2015; for off-policy learning, Gabbianelli, Neu & Papini 2023.
    """
    terms = batch.log_pi.exp() * (batch.c / (batch.p + h.smoothing))
    return batch.term(terms, slope=terms)


RISK = Risk(
    "mean_S(c·π/(p+γ))",
    ix,
    (smoothing("γ", Between(0, 1e6), lambda costs, weights: (0.5 * max(len(costs), 1) ** -0.5,)),),
)
