"""Doubly robust.

    V̂ = mean(f + w (r − q))

Domain: needs a reward model, cross-fitted.
Limits: q̂ = 0 is `ips`. Unbiased for any model; the better the model, the smaller the variance.
Source: Dudík et al. 2011.
"""

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    # For rewards in [0, s] and weights up to W = 1/p: π q ≤ f ≤ (1 − π) s + π q, so a term lies in [s(1 − W), s W].
    # Adding a constant to all rewards adds it to all terms, so s is their span without 0.
    width = rows.reward_span * (2 * rows.largest_weight - 1)
    return Terms([rows.f + rows.w * (rows.r - rows.q)], width=width)


ESTIMATOR = estimator("dr", "DR", terms, needs_model=True)
