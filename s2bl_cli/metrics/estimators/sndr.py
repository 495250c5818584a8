"""Self-normalised doubly robust.

    V̂ = mean(f) + Σ w (r − q) / Σ w

Domain: needs a reward model, cross-fitted; some w > 0.
Limits: q̂ = 0 is `snips`.
Source: Thomas & Brunskill 2016, for one step.
"""

import numpy as np

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    return Terms(np.stack([rows.f, rows.w * (rows.r - rows.q), rows.w]), lambda means: means[0] + means[1] / means[2])


ESTIMATOR = estimator("sndr", "SNDR", terms, needs_model=True)
