"""Truncated inverse propensity score."""

from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch
from s2bl_cli.objectives.weights import truncated_weight


def tips(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """R̂_ν(π_θ, S) = mean over S of cᵢ π_θ(aᵢ|xᵢ) / max(ν, pᵢ).

    Domain: any finite costs, ν ≥ 0, p in (0, 1].
    Limits: ν → 0 is the plain IPS estimator; ν = 1 is the mean of cᵢ π_θ(aᵢ|xᵢ).
    Source: the paper's truncated IPS (§ Semi-supervised Batch Learning); truncation after Strehl et al. 2010.
    """
    return batch.mean(truncated_weight(batch, knobs) * batch.c)
