"""Implicit exploration.

    V̂ = mean(π r / (p + γ)),  γ = 1/(2√n)

With probability 1 − δ the value is at least V̂ − R ln(1/δ)/(2γn), R the largest reward.

Domain: r ≥ 0 for the bound (without it, an estimate and a standard error only).
Limits: γ → 0 is `ips`. The bias is towards 0.
Source: Neu 2015; Gabbianelli, Neu & Papini 2023.
"""

import math

from s2bl_cli.evaluation.estimators.estimator import Estimator, KnownRows, Terms


def gamma(n: int) -> float:
    return 1 / (2 * math.sqrt(n))


def _terms(rows: KnownRows) -> Terms:
    values = rows.pi * rows.r / (rows.p + gamma(rows.n))
    largest = float(rows.r.max())

    def lower(estimate: float, n: int, delta: float) -> float:
        return estimate - largest * math.log(1 / delta) / (2 * gamma(n) * n)

    return Terms(values[None], lower_bound=lower if rows.r.min() >= 0 else None, biased=True, note="biased towards 0")


ESTIMATOR = Estimator("ix", _terms)
