"""Doubly robust.

    V̂ = mean(f + w (r − q))

Domain: needs a reward model, cross-fitted.
Limits: q̂ = 0 is `ips`. Unbiased whatever the model; the better the model, the smaller the variance.
Source: Dudík et al. 2011.
"""

from s2bl_cli.evaluation.estimators.estimator import Estimator, KnownRows, Terms


def _terms(rows: KnownRows) -> Terms:
    q, f = rows.model
    return Terms((f + rows.w * (rows.r - q))[None], width=rows.reward_span * (1 + 2 * rows.largest_weight))


ESTIMATOR = Estimator("dr", _terms, needs_model=True)
