"""Self-normalised inverse propensity score.

    V̂ = Σ w r / Σ w

Domain: any finite rewards; some w > 0.
Limits: inside the range of the rewards; adding a constant to the rewards adds it to V̂. Consistent, its bias is O(1/n).
Source: Swaminathan & Joachims 2015.
"""

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    return Terms([rows.w * rows.r, rows.w], lambda reward, weight: reward / weight)


ESTIMATOR = estimator("snips", "SNIPS", terms)
