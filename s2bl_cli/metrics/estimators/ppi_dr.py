"""Prediction-powered doubly robust: the model on all rows, corrected on the known ones.

    V̂ = λ mean_missing(f) + mean_known(Y − λ f),  Y = f + w (r − q)
    λ = Cov(Y, f) / ((1 + n/m) Var f), clipped to [0, 1]

over n known and m missing rows. λ minimises the variance, so the interval is not wider than that of `dr`,
except for noise.

Domain: needs a reward model, cross-fitted. Feedback is missing completely at random. With a model of missingness,
every estimator uses the reward model's predictions for all rows (`missing_feedback.completed`), and this one is `dr`.
Limits: no missing row, or λ = 0, is `dr`. In the code Λ = λ N/m, by which V̂ = Λ mean_all(f) + mean_known(Y − Λ f).
Source: prediction-powered inference with power tuning, Angelopoulos, Duchi & Zrnic 2023, arXiv 2311.01453, here
for off-policy evaluation with missing feedback.
"""

from dataclasses import replace

import numpy as np

from s2bl_cli.metrics.estimators import dr
from s2bl_cli.metrics.estimators.estimator import Floats, KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    doubly_robust = dr.terms(rows)
    if rows.known is None or rows.f_of_all is None:
        return doubly_robust
    missing = len(rows.known) - rows.n
    if missing == 0:
        return replace(doubly_robust, width=None, note="no row without feedback: the same as dr")
    known, f = rows.known.astype(np.float64), rows.f_of_all.astype(np.float64)
    y = np.zeros(len(known))
    y[rows.known] = doubly_robust.values[0]
    power = _power(f, y, known)
    lam = power * missing / len(known)
    return Terms(
        [f, y, known * f, known],
        lambda f, y, known_f, known: power * f + (y - power * known_f) / known,
        note=f"λ = {lam:.3g}; {missing:,} rows without feedback, taken as missing at random",
    )


def _power(f: Floats, y: Floats, known: Floats) -> float:
    """Λ: the variance of the influence values A + Λ B is smallest at −Cov(A, B)/Var(B)."""
    rate = known.mean()
    a = (y - known * (y.mean() / rate)) / rate
    b = f - f.mean() - known * (f - (known * f).mean() / rate) / rate
    variance = float(b @ b)
    return float(np.clip(-(a @ b) / variance, 0, 1 / (1 - rate))) if variance > 0 else 0.0


ESTIMATOR = estimator("ppi-dr", "PPI-DR", terms, needs_model=True)
