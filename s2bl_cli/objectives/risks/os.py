"""Optimistic shrinkage of the importance weights."""

from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch
from s2bl_cli.objectives.weights import weight


def os(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """mean over S of cᵢ λwᵢ/(wᵢ² + λ), w = π_θ/p, λ > 0 the smoothing, 100 by default.

    Domain: any finite costs. The shrunk weight is at most √λ/2, reached at w = √λ; beyond, it falls.
    Limits: λ → ∞ is `ips`.
    Source: Su, Dimakopoulou, Krishnamurthy & Dudík 2020.
    """
    w = weight(batch)
    # λw/(w²+λ) with w divided out, so that a huge w does not overflow when squared.
    return batch.mean(w * batch.c / (w * (w / knobs.smoothing) + 1))
