"""Optimistic shrinkage of the importance weights."""

from s2bl_cli.objectives.hyperparameters import smoothing
from s2bl_cli.objectives.terms import KnownBatch, Numbers, Risk, Term
from s2bl_cli.settings import Between


def os(batch: KnownBatch, h: Numbers) -> Term:
    """mean over S of cᵢ λwᵢ/(wᵢ² + λ), w = π_θ/p, λ > 0 the smoothing, 100 by default.

    Domain: any finite costs. The shrunk weight is at most √λ/2, at w = √λ; for larger w it decreases.
    Limits: λ → ∞ is `ips`.
    Source: Su, Dimakopoulou, Krishnamurthy & Dudík 2020.
    """
    w = batch.log_pi.exp() / batch.p
    # λw/(w²+λ) with w divided out, so that squaring a huge w does not overflow.
    share = w * (w / h.smoothing)  # w²/λ
    terms = w * batch.c / (share + 1)
    return batch.term(terms, slope=terms * (2 / (share + 1) - 1))


RISK = Risk("mean_S(c·λw/(w²+λ))", os, (smoothing("λ", Between(0, 1e12, low_open=True), 100.0),))
