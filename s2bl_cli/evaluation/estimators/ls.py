"""Logarithmic smoothing.

    V̂ = mean(ln(1 + λ w r)) / λ,  λ = 1/√n

With probability 1 − δ the value is at least (exp(λV̂ − ln(1/δ)/n) − 1)/λ.

Domain: r ≥ 0.
Limits: λ → 0 is `ips`. The bias is towards 0.
Source: Sakhi et al. 2024, arXiv 2405.14335.
"""

import math

import numpy as np

from s2bl_cli.evaluation.estimators.estimator import Estimator, KnownRows, Terms


def _terms(rows: KnownRows) -> Terms | None:
    if rows.r.min() < 0:
        return None
    lam = 1 / math.sqrt(rows.n)

    def lower(estimate: float, n: int, delta: float) -> float:
        return (math.exp(lam * estimate - math.log(1 / delta) / n) - 1) / lam

    return Terms((np.log1p(lam * rows.w * rows.r) / lam)[None], lower_bound=lower, biased=True, note="biased towards 0")


ESTIMATOR = Estimator("ls", _terms)
