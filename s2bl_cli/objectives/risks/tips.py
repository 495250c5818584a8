"""Truncated inverse propensity score."""

from s2bl_cli.objectives.hyperparameters import NU
from s2bl_cli.objectives.terms import KnownBatch, Numbers, Risk, Term


def tips(batch: KnownBatch, h: Numbers) -> Term:
    """R̂_ν(π_θ, S) = mean over S of cᵢ π_θ(aᵢ|xᵢ) / max(ν, pᵢ).

    Domain: any finite costs, ν ≥ 0, p in (0, 1].
    Limits: ν → 0 is the plain IPS estimator; ν = 1 is the mean of cᵢ π_θ(aᵢ|xᵢ).
    Source: the paper's truncated IPS (§ Semi-supervised Batch Learning); truncation as in Strehl et al. 2010.
    """
    terms = batch.log_pi.exp() * (batch.c / batch.p.clamp(min=h.nu))
    return batch.term(terms, slope=terms)


RISK = Risk("mean_S(c·π/max(ν,p))", tips, (NU,))
