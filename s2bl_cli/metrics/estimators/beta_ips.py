"""IPS with the optimal baseline.

    V̂ = β + mean(w (r − β)),  β = Σ (w² − w) r / Σ (w² − w)

Domain: any finite rewards.
Limits: β = 0 is `ips`; adding a constant to the rewards adds it to V̂. This β minimises the variance.
Source: Gupta et al. 2024.
"""

import numpy as np

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, Values, estimator

_TINY = 1e-12  # below this, all weights are 1 and β does not matter


def _of_means(reward: Values, weight: Values, weighted: Values, variation: Values) -> Values:
    varies = np.abs(variation) > _TINY
    beta = np.where(varies, weighted / np.where(varies, variation, 1), 0)
    return np.asarray(beta + reward - beta * weight)


def terms(rows: KnownRows) -> Terms:
    w, r = rows.w, rows.r
    variation = w**2 - w
    return Terms([w * r, w, variation * r, variation], _of_means)


ESTIMATOR = estimator("beta-ips", "β-IPS", terms)
