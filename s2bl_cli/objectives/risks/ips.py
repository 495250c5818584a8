"""Inverse propensity score."""

from s2bl_cli.objectives.terms import KnownBatch, Numbers, Risk, Term


def ips(batch: KnownBatch, h: Numbers) -> Term:
    """R̂(π_θ, S) = mean over S of cᵢ π_θ(aᵢ|xᵢ)/pᵢ.

    Domain: any finite costs, p in (0, 1]. Unbiased; its variance grows as 1/p.
    Limits: `tips` at ν = 0.
    Source: Horvitz & Thompson 1952; for learning, Bottou et al. 2013.
    """
    terms = batch.log_pi.exp() * (batch.c / batch.p)
    return batch.term(terms, slope=terms)


RISK = Risk("mean_S(c·w)", ips)
