"""Switch doubly robust: DR in rows whose weight is at most t, the direct method in the others.

    V̂ = mean(f + 1[w ≤ t] w (r − q))

t is one of ten values and minimises var/n + (span · mean(w 1[w > t]))², the variance plus a bound of the squared bias;
span is the width of the range of the rewards.

Domain: needs a reward model, cross-fitted.
Limits: t = ∞ is `dr`, t = 0 is `dm`. The chosen t grows with the number of rows.
Source: Wang, Agarwal & Dudík 2017.
"""

import numpy as np

from s2bl_cli.metrics.estimators.estimator import Floats, KnownRows, Terms, estimator

_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0)


def terms(rows: KnownRows) -> Terms:
    t = _chosen(rows.tuning)
    return Terms([switched(rows, t)], note=f"switches at w = {t:.4g}")


def switched(rows: KnownRows, t: float) -> Floats:
    return rows.f + np.where(rows.w <= t, rows.w * (rows.r - rows.q), 0.0)


def _chosen(rows: KnownRows) -> float:
    def error(t: float) -> float:
        bias = rows.reward_span * float(np.where(rows.w > t, rows.w, 0).mean())
        return float(switched(rows, t).var()) / rows.n + bias**2

    return float(min(np.quantile(rows.w, _QUANTILES)[::-1], key=error))


ESTIMATOR = estimator("switch-dr", "Switch-DR", terms, needs_model=True)
