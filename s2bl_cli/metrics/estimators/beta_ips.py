"""IPS with the optimal baseline.

    V̂ = β + mean(w (r − β)),  β = Σ (w² − w) r / Σ (w² − w)

Domain: any finite rewards.
Limits: β = 0 is `ips`; adding a constant to the rewards adds it to V̂. β is the one of least variance.
Source: Gupta et al. 2024.
"""

import numpy as np

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, Values, estimator

_TINY = 1e-12  # below, all weights are 1 and β does not matter


def _of_means(means: Values) -> Values:
    reward, weight, weighted, spread = means
    has_spread = np.abs(spread) > _TINY
    beta = np.where(has_spread, weighted / np.where(has_spread, spread, 1), 0)
    value: Values = beta + reward - beta * weight
    return value


def terms(rows: KnownRows) -> Terms:
    w, r = rows.w, rows.r
    spread = w**2 - w
    return Terms(np.stack([w * r, w, spread * r, spread]), _of_means)


ESTIMATOR = estimator("beta-ips", "β-IPS", terms)
