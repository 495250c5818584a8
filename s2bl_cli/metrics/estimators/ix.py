"""Implicit exploration.

    V̂ = mean(π r / (p + γ)),  γ = 1/(2√n)

With probability 1 − δ the value is at least mean(π r / (p + g)) − R ln(1/δ)/(2gn), R the largest reward, for any g set
beforehand. g = √(ln(1/δ)/(2n)) balances the two parts; the γ of the estimate is chosen for a small bias instead.

Domain: r ≥ 0 for the bound (without it, an estimate and a standard error only).
Limits: γ → 0 is `ips`. The bias is towards 0.
Source: Neu 2015; Gabbianelli, Neu & Papini 2023.
"""

import math

from s2bl_cli.metrics.estimators.estimator import Floats, KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    n, largest = rows.n, float(rows.r.max())

    def explored(gamma: float) -> Floats:
        return rows.pi * rows.r / (rows.p + gamma)

    def lower(delta: float) -> float:
        log = math.log(1 / delta)
        gamma = math.sqrt(log / (2 * n))
        return float(explored(gamma).mean()) - largest * log / (2 * gamma * n)

    values = explored(1 / (2 * math.sqrt(rows.tuning.n)))
    return Terms([values], lower_bound=lower if rows.r.min() >= 0 else None, biased=True, note="biased towards 0")


ESTIMATOR = estimator("ix", "IX", terms)
