"""Importance weights, as several risks use them."""

from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch


def weight(batch: KnownBatch) -> Tensor:
    """wᵢ = π_θ(aᵢ|xᵢ)/pᵢ: (…, batch)."""
    return batch.log_pi.exp() / batch.p


def truncated_weight(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """π_θ(aᵢ|xᵢ)/max(ν, pᵢ): (…, batch)."""
    return batch.log_pi.exp() / batch.p.clamp(min=knobs.nu)
