"""Self-normalised doubly robust.

    V̂ = mean(f) + Σ w (r − q) / Σ w

Domain: needs a reward model, cross-fitted; some w > 0.
Limits: q̂ = 0 is `snips`.
Source: Thomas & Brunskill 2016, for one step.
"""

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    return Terms([rows.f, rows.w * (rows.r - rows.q), rows.w], lambda f, error, weight: f + error / weight)


ESTIMATOR = estimator("sndr", "SNDR", terms, needs_model=True)
