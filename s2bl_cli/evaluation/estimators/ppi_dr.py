"""Prediction-powered doubly robust: the model on all rows, corrected on the known ones.

    V̂ = λ mean_missing(f) + mean_known(Y − λ f),  Y = f + w (r − q)
    λ = Cov(Y, f) / ((1 + n/m) Var f), clipped to [0, 1]

over n known and m missing rows. λ is the one of least variance, so the interval is not wider than that of `dr`
but for noise.

Domain: needs a reward model, cross-fitted. Feedback is missing completely at random. With a model of missingness,
every estimator takes the reward model's word for all rows (`intervals.completed`), and this one is `dr`.
Limits: no missing row, or λ = 0, is `dr`. In the code Λ = λ N/m, by which V̂ = Λ mean_all(f) + mean_known(Y − Λ f).
Source: prediction-powered inference with power tuning, Angelopoulos, Duchi & Zrnic 2023, arXiv 2311.01453, here
for off-policy evaluation with missing feedback.
"""

import numpy as np
import numpy.typing as npt

from s2bl_cli.evaluation.estimators.estimator import Floats, Terms, Values


def prediction_powered(known: npt.NDArray[np.bool_], outcome: Floats, prediction: Floats) -> Terms:
    """`known` and `prediction` f are of all N rows, `outcome` Y of the n known ones, in that order."""
    rows, count = len(known), int(known.sum())
    k = known.astype(np.float64)
    y = np.zeros(rows)
    y[known] = outcome
    values = np.stack([prediction, y, k * prediction, k])  # (4, N)
    power = _power(values, count)

    def of_means(means: Values) -> Values:
        f, y, kf, k = means
        value: Values = power * f + (y - power * kf) / k
        return value

    missing = rows - count
    note = f"λ = {power * missing / rows:.3g}; {missing:,} rows without feedback, taken as missing at random"
    if not missing:
        note = "no row without feedback: the same as dr"
    return Terms(values, of_means, note=note)


def _power(values: Floats, count: int) -> float:
    """Λ: the variance of the estimate's influence values A + Λ B is least at −Cov(A, B)/Var(B)."""
    f, y, kf, k = values
    rate = k.mean()
    a = (y - k * (y.mean() / rate)) / rate
    b = f - f.mean() - (kf - k * (kf.mean() / rate)) / rate
    variance, missing = float(b @ b), len(k) - count
    if variance <= 0 or missing == 0:
        return 0.0
    return float(np.clip(-(a @ b) / variance, 0, len(k) / missing))


def doubly_robust_outcome(r: Floats, w: Floats, q: Floats, f: Floats) -> Floats:
    return f + w * (r - q)
