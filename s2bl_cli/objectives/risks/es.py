"""Exponential smoothing."""

from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch


def es(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """mean over S of cᵢ π_θ(aᵢ|xᵢ)/pᵢ^α, α in [0, 1] the smoothing, 0.9 by default.

    Domain: any finite costs.
    Limits: α = 1 is `ips`; α = 0 is the mean of cᵢ π_θ(aᵢ|xᵢ).
    Source: Aouali, Brunel, Rohde & Korba 2023.
    """
    return batch.mean(batch.log_pi.exp() * batch.c / batch.p**knobs.smoothing)
