"""Logarithmic smoothing."""

from s2bl_cli.objectives.hyperparameters import smoothing
from s2bl_cli.objectives.terms import KnownBatch, Numbers, Risk, Term
from s2bl_cli.settings import Between


def ls(batch: KnownBatch, h: Numbers) -> Term:
    """−mean over S of ln(1 + λ wᵢ rᵢ)/λ, r = −c, w = π_θ/p, λ > 0 the smoothing, 1/√n by default.

    Domain: costs ≤ 0.
    Limits: λ → 0 is `ips`.
    Source: Sakhi, Aouali, Alquier & Chopin 2024 (arXiv 2405.14335).
    """
    cost = batch.log_pi.exp() * (batch.c / batch.p)  # w c
    gain = -h.smoothing * cost  # λ w r
    return batch.term(-gain.log1p() / h.smoothing, slope=cost / (1 + gain))


RISK = Risk(
    "−mean_S(ln(1+λ·w·r))/λ",
    ls,
    (smoothing("λ", Between(0, 1e6, low_open=True), lambda costs, weights: (max(len(costs), 1) ** -0.5,)),),
    largest_cost=0.0,
)
