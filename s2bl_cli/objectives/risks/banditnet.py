"""BanditNet: the self-normalised estimator made trainable by stochastic gradients."""

from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch
from s2bl_cli.objectives.weights import truncated_weight


def banditnet(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """mean over S of (cᵢ − t) π_θ(aᵢ|xᵢ)/max(ν, pᵢ), t the translation.

    The t that suits best is found by trying several: a policy that is optimal for some t is optimal for
    SNIPS = Σ cᵢwᵢ/Σ wᵢ under a constraint on the mean weight (Lagrange).
    Domain: any finite costs and t.
    Limits: t = 0 is `tips`.
    Source: Joachims, Swaminathan & de Rijke 2018; SNIPS after Swaminathan & Joachims 2015.
    """
    return batch.mean(truncated_weight(batch, knobs) * (batch.c - knobs.translation))
