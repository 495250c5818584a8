"""Implicit exploration."""

from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch


def ix(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """mean over S of cᵢ π_θ(aᵢ|xᵢ)/(pᵢ + γ), γ the smoothing, 1/(2√n) by default.

    Domain: any finite costs, γ ≥ 0; pessimistic where costs are ≤ 0.
    Limits: γ = 0 is `ips`.
    Source: Neu 2015; for off-policy learning, Gabbianelli, Neu & Papini 2023.
    """
    return batch.mean(batch.log_pi.exp() * batch.c / (batch.p + knobs.smoothing))
