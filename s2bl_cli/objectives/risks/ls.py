"""Logarithmic smoothing."""

from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch
from s2bl_cli.objectives.weights import weight


def ls(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """−mean over S of ln(1 + λ wᵢ rᵢ)/λ, r = −c, w = π_θ/p, λ > 0 the smoothing, 1/√n by default.

    Domain: costs ≤ 0.
    Limits: λ → 0 is `ips`.
    Source: Sakhi, Aouali, Alquier & Chopin 2024 (arXiv 2405.14335).
    """
    return batch.mean(-(weight(batch) * (knobs.smoothing * -batch.c)).log1p() / knobs.smoothing)
