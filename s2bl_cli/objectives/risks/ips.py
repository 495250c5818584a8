"""Inverse propensity score."""

from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch
from s2bl_cli.objectives.weights import weight


def ips(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """R̂(π_θ, S) = mean over S of cᵢ π_θ(aᵢ|xᵢ)/pᵢ.

    Domain: any finite costs, p in (0, 1]. Unbiased; its variance grows as 1/p.
    Limits: `tips` at ν = 0.
    Source: Horvitz & Thompson 1952; for learning, Bottou et al. 2013.
    """
    return batch.mean(weight(batch) * batch.c)
