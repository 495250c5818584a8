"""Logarithmic smoothing.

    V̂ = mean(ln(1 + λ w r)) / λ,  λ = 1/√n

With probability 1 − δ the value (of scaled rewards) is at least (exp(mean(ln(1 + l w r)) − ln(1/δ)/n) − 1)/l for any l
set beforehand. l = √(2 ln(1/δ)/n) balances its two parts if w r is about 1; the λ of the estimate is chosen for a small
bias instead.

Domain: any finite rewards, scaled to r in [0, 1] by their range; estimate and bound are mapped back to their unit. The
bound is a guarantee only for a declared range, so there is none without.
Limits: λ → 0 is `ips` of the scaled rewards. The bias is towards the smallest reward.
Source: Sakhi et al. 2024, arXiv 2405.14335.
"""

import math

import numpy as np

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    gained = rows.w * rows.r

    def lower(delta: float) -> float:
        log = math.log(1 / delta)
        lam = math.sqrt(2 * log / rows.n)
        return math.expm1(float(np.log1p(lam * gained).mean()) - log / rows.n) / lam

    lam = 1 / math.sqrt(rows.tuning.n)
    return Terms(
        [np.log1p(lam * gained) / lam], lower_bound=lower, biased=True, note="biased towards the smallest reward"
    )


ESTIMATOR = estimator("ls", "LS", terms, scaled=True)
