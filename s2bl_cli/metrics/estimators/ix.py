"""Implicit exploration.

    V̂ = mean(π r / (p + γ)),  γ = 1/(2√n)

With probability 1 − δ the value (of scaled rewards) is at least mean(π r / (p + g)) − ln(1/δ)/(2gn) for any g set
beforehand. g = √(ln(1/δ)/(2n)) balances the two parts; the γ of the estimate is chosen for a small bias instead.

Domain: any finite rewards, scaled to r in [0, 1] by their range; estimate and bound are mapped back to their unit. The
bound is a guarantee only for a declared range, so there is none without.
Limits: γ → 0 is `ips` of the scaled rewards. The bias is towards the smallest reward.
Source: Neu 2015; Gabbianelli, Neu & Papini 2023.
"""

import math

from s2bl_cli.metrics.estimators.estimator import Floats, KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    n = rows.n

    def explored(gamma: float) -> Floats:
        return rows.pi * rows.r / (rows.p + gamma)

    def lower(delta: float) -> float:
        log = math.log(1 / delta)
        gamma = math.sqrt(log / (2 * n))
        return float(explored(gamma).mean()) - log / (2 * gamma * n)

    values = explored(1 / (2 * math.sqrt(rows.tuning.n)))
    return Terms([values], lower_bound=lower, biased=True, note="biased towards the smallest reward")


ESTIMATOR = estimator("ix", "IX", terms, scaled=True)
