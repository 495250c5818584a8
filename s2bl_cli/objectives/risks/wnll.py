"""Weighted negative log-likelihood: a policy gradient's convex stand-in."""

from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch


def wnll(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """mean over S of cᵢ log π_θ(aᵢ|xᵢ)/max(ν, pᵢ).

    Domain: costs ≤ 0, so that it is bounded below and convex in a linear policy's parameters.
    Limits: with costs −1 everywhere and p constant, cross-entropy with the logged actions.
    Source: London & Sandler 2019 (WNLL-LPR); in the paper, appendix on Bayesian CRM.
    """
    return batch.mean(batch.log_pi * batch.c / batch.p.clamp(min=knobs.nu))
