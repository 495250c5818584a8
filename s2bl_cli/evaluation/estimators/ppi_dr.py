"""Prediction-powered doubly robust: the model on all rows, corrected on the known ones.

    V̂ = λ mean_missing(f) + mean_known(Y − λ f),  Y = f + w (r − q)
    λ = Cov(Y, f) / ((1 + n/m) Var f), clipped to [0, 1]

over n known and m missing rows. λ is the one of least variance, so the interval is not wider than that of `dr`
but for noise.

Domain: needs a reward model, cross-fitted. Feedback is missing at random: completely, or, with weights o =
1/P(known | x, a) for the known rows, given context and action. With weights, and Λ = λ N/m,

    V̂ = Λ mean_all(f) + Σ_known o (Y − Λ f) / Σ_known o

which is the formula above where all o are equal. Estimated weights have errors, which Λ = 1 keeps out as far as
the reward model is right. So with weights Λ is 1, not the one of least variance.
Limits: no missing row, or λ = 0, is `dr`.
Source: prediction-powered inference with power tuning, Angelopoulos, Duchi & Zrnic 2023, arXiv 2311.01453, here
for off-policy evaluation with missing feedback.
"""

import numpy as np
import numpy.typing as npt

from s2bl_cli.evaluation.estimators.estimator import Floats, Terms, Values


def prediction_powered(
    known: npt.NDArray[np.bool_], outcome: Floats, prediction: Floats, weight: Floats | None = None
) -> Terms:
    """`known` and `prediction` f are of all N rows, `outcome` Y and `weight` o of the n known ones, in that order."""
    rows, count = len(known), int(known.sum())
    o = np.zeros(rows)
    o[known] = 1.0 if weight is None else weight
    y = np.zeros(rows)
    y[known] = outcome
    values = np.stack([prediction, o * y, o * prediction, o])  # (4, N)
    power = _power(values, count) if weight is None else 1.0

    def of_means(means: Values) -> Values:
        f, oy, of, o = means
        value: Values = power * f + (oy - power * of) / o
        return value

    missing = rows - count
    note = f"λ = {power * missing / rows:.3g}; {missing:,} rows without feedback, taken as missing at random"
    if not missing:
        note = "no row without feedback: the same as dr"
    return Terms(values, of_means, note=note)


def _power(values: Floats, count: int) -> float:
    """Λ: the variance of the estimate's influence values A + Λ B is least at −Cov(A, B)/Var(B)."""
    f, oy, of, o = values
    mean_o = o.mean()
    a = (oy - o * (oy.mean() / mean_o)) / mean_o
    b = f - f.mean() - (of - o * (of.mean() / mean_o)) / mean_o
    variance, missing = float(b @ b), len(o) - count
    if variance <= 0 or missing == 0:
        return 0.0
    return float(np.clip(-(a @ b) / variance, 0, len(o) / missing))


def doubly_robust_outcome(r: Floats, w: Floats, q: Floats, f: Floats) -> Floats:
    return f + w * (r - q)
