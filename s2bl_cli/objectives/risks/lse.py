"""Log-sum-exponential."""

import torch
from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch
from s2bl_cli.objectives.weights import weight


def lse(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """−(1/λ) ln mean over S of exp(λ wᵢ rᵢ), r = −c, w = π_θ/p, λ < 0 the smoothing, −0.1 by default.

    On a batch the mean is the batch's, so the value is biased by O(1/batch); its exponential exp(−λ·value) is
    unbiased.
    Domain: any finite costs; bounded where costs are ≤ 0.
    Limits: λ → 0 is `ips`.
    Source: Behnamnia et al. 2025 (arXiv 2506.06873).
    """
    exponent = knobs.smoothing * weight(batch) * -batch.c
    if batch.weight is not None:  # rows without feedback are no candidates for the largest
        exponent = exponent.masked_fill(batch.weight == 0, -torch.inf)
    largest = exponent.detach().amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == -torch.inf, 0.0)
    mean = batch.mean((exponent - largest).exp())  # the largest taken out, so that no exponential overflows
    # A batch of all rows may have none with feedback. It has no say then; the logarithm of 0 would end the run.
    log_mean = mean.masked_fill(mean == 0, 1.0).log() + largest.squeeze(-1)
    return -log_mean / _without_batch_axis(knobs.smoothing)


def _without_batch_axis(knob: float | Tensor) -> float | Tensor:
    return knob.squeeze(-1) if isinstance(knob, torch.Tensor) else knob
