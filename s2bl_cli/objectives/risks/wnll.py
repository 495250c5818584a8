"""Weighted negative log-likelihood: a convex surrogate of the policy gradient."""

from s2bl_cli.objectives.hyperparameters import NU
from s2bl_cli.objectives.terms import KnownBatch, Numbers, Risk, Term


def wnll(batch: KnownBatch, h: Numbers) -> Term:
    """mean over S of cᵢ log π_θ(aᵢ|xᵢ)/max(ν, pᵢ).

    Domain: costs ≤ 0, so that it is bounded below and convex in a linear policy's parameters.
    Limits: with costs −1 everywhere and p constant, cross-entropy with the logged actions.
    Source: London & Sandler 2019 (WNLL-LPR); in the paper, appendix on Bayesian CRM.
    """
    slope = batch.c / batch.p.clamp(min=h.nu)
    return batch.term(batch.log_pi * slope, slope=slope)


RISK = Risk("mean_S(c·log π/max(ν,p))", wnll, (NU,), largest_cost=0.0)
