"""Log-sum-exponential."""

import math
from typing import TYPE_CHECKING

from s2bl_cli.objectives.hyperparameters import smoothing
from s2bl_cli.objectives.terms import KnownBatch, Numbers, Risk, by_autograd
from s2bl_cli.settings import Between

if TYPE_CHECKING:
    from torch import Tensor


def lse(batch: KnownBatch, h: Numbers) -> "Tensor":
    """−(1/λ) ln mean over S of exp(λ wᵢ rᵢ), r = −c, w = π_θ/p, λ < 0 the smoothing, −0.1 by default.

    On a batch, the mean is over the batch's rows with feedback, so the value is biased by O(1/rows). If rows have
    weights, the value is multiplied by their mean: a batch of all rows counts by its share of feedback, and not at all
    if it has none.
    Domain: any finite costs; bounded if costs are ≤ 0.
    Limits: λ → 0 is `ips`.
    Source: Behnamnia et al. 2025 (arXiv 2506.06873).
    """
    exponent = h.smoothing * (batch.log_pi.exp() / batch.p) * -batch.c
    if batch.weight is not None:  # rows without feedback must not count for the maximum
        exponent = exponent.masked_fill(batch.weight == 0, -math.inf)
    largest = exponent.detach().amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == -math.inf, 0.0)
    share = batch.mean(exponent.new_ones(exponent.shape))  # (…) 1 without weights
    # The maximum is factored out, so that no exponential overflows.
    mean = batch.mean((exponent - largest).exp()) / share.masked_fill(share == 0, 1.0)
    # A batch of all rows may have none with feedback. The logarithm of 0 would then break the run.
    log_mean = mean.masked_fill(mean == 0, 1.0).log() + largest.squeeze(-1)
    value: Tensor = (
        -share * log_mean / (h.smoothing if isinstance(h.smoothing, float | int) else h.smoothing.squeeze(-1))
    )
    return value


RISK = Risk("−ln(mean_S(exp(λ·w·r)))/λ", by_autograd(lse), (smoothing("λ", Between(-1e6, 0, high_open=True), -0.1),))
