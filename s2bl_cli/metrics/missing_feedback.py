"""Feedback that is missing depending on context, action or reward: estimates that use a model of missingness, checks of
that model, and how much the comparison with the logging policy relies on the assumption that the reward itself does not
matter."""

import math
from collections.abc import Sequence

import numpy as np

from s2bl_cli.metrics.estimate import Clusters, Estimate, Terms, Values, mean_estimate, t_quantile
from s2bl_cli.metrics.sample import PI, VALUE_HAT, Floats, LoggedSample, Mask, ScoredPolicy

_SURPRISE = 3.0  # standard errors; for three means, exceeded by chance in fewer than 1 of 100 logs
_SAME_WEIGHTS = 1e-5  # weights this close to 1 are those of the logging policy, except for rounding


def completed(terms: Terms, predicted: Sequence[Floats], known: Mask, probability: Floats) -> Terms:
    """Terms over all rows instead of the known rows k: means of t become mean(t̂) + mean(o (t − t̂))/mean(o), o =
    k/P(k).

    `predicted` t̂ and `probability` P(k | x, a) have one value per row. The means are unbiased if either t̂ or P(k) is
    right. The bias is a product of the errors of the two models, so the interval can ignore it.
    Source: Robins, Rotnitzky & Zhao 1994.
    """
    o = known / probability
    gaps = [np.zeros(len(known)) for _ in predicted]
    for gap, t, t_hat in zip(gaps, terms.values, predicted, strict=True):
        gap[known] = o[known] * (t - t_hat[known])

    def of_means(*means: Values) -> Values:
        return terms.of_means(*(means[i] + means[len(gaps) + i] / means[-1] for i in range(len(gaps))))

    note = "known rows weighted by the model of missingness"
    return Terms(
        [*predicted, *gaps, o],
        of_means,
        biased=terms.biased,
        note=f"{terms.note}; {note}" if terms.note else note,
    )


def mismatch(policy: ScoredPolicy) -> str | None:
    """A warning if the known rows, weighted by the model of missingness, do not have the number, mean weight and mean
    expected reward of all rows. Without a model, every row has the same probability of being known.

    mean(o − 1) and mean((o/ō − 1) g), o = known/P(known | x, a), are 0 in expectation for every function g of context
    and action. If P is fitted, the means vary less than their standard errors suggest, so false warnings are rare.
    """
    sample, rows = policy.sample, policy.predicted_rows
    if not policy.has(PI) or sample.known.all() or not sample.known.any():
        return None
    o = sample.known / (1.0 if sample.observed is None else sample.observed.astype(np.float64))
    # Subtracting the mean of g changes only the standard error.
    tested = (policy.w,) if rows is None else (rows.w, rows.w * rows.r)
    gaps = [mean_estimate((o / o.mean() - 1) * (g - g.mean()), cluster=sample.cluster) for g in tested]
    if sample.observed is not None:
        gaps.append(mean_estimate(o - 1, cluster=sample.cluster))
    worst = max((abs(gap.value) / gap.stderr for gap in gaps if gap.stderr), default=0.0)
    if worst <= _SURPRISE:
        return None
    if sample.observed is None:
        return f"the mean weight of the known rows is {worst:.0f} standard errors from that of all rows"
    return f"the model of missingness does not fit: weighted by it, known rows are {worst:.0f} standard errors off"


def one_sided(sample: LoggedSample) -> str | None:
    """A warning if the known rewards are all above 0 (or all below) and others are missing. This is the most common
    sign that only some outcomes were reported, such as purchases. A declared range that excludes 0 rules it out."""
    if not sample.known.any():
        return None
    reward = sample.r[sample.known]
    of_known = (float(reward.min()), float(reward.max()))
    return one_sided_rewards(of_known, len(reward), sample.rows - len(reward), sample.declared_range)


def one_sided_rewards(
    of_known: tuple[float, float], known: int, missing: int, declared: tuple[float, float] | None
) -> str | None:
    """`of_known`: the smallest and the largest known reward; `declared`: possible ones; both numbers are of rows."""
    (low, high), (least, most) = of_known, declared or (-math.inf, math.inf)
    for side, applies in (("above", low > 0 >= least), ("below", high < 0 <= most)):
        if missing and applies:
            return f"all {known:,} known rewards are {side} 0, and {missing:,} are missing"
    return None


def gamma(policy: ScoredPolicy) -> Estimate | None:
    """Γ: the factor by which the probability of being known would have to depend on the reward to overturn the
    comparison with the logging policy.

        D = mean(f − q) + Σ z o v / Σ z o,   v = (w − 1)(r − q),   z in [1/Γ, Γ]

    D is the difference between the policy's `dr` value and the mean reward. o is 1, or the inverse of the modelled
    probability of being known, and z = P(known | x, a)/P(known | x, a, r) is unknown. Γ is the smallest value for which
    the interval of D, with the worst z, contains 0.

    Domain: some feedback is missing. Without a reward model, q and f are the mean reward.
    Limits: 1 if the interval already contains 0 with z = 1; infinite if no row speaks against the conclusion. None for
    the logging policy itself. Bounds that use more information (the mean of z given x and a is 1) would give a larger
    Γ.
    Source: bounds on a weighted mean with unknown weights, Aronow & Lee 2013; the sensitivity model, Tan 2006; Zhao,
    Small & Bhattacharya 2019, stated there for odds.
    """
    sample, rows = policy.sample, policy.known_rows
    if sample.known.all() or np.abs(rows.w - 1).max() < _SAME_WEIGHTS:
        return None
    o = np.ones(rows.n) if sample.observed is None else 1 / sample.observed[sample.known].astype(np.float64)
    predicted, f_minus_q = np.full(rows.n, np.average(rows.r, weights=o)), np.zeros(sample.rows)
    if sample.q is not None and policy.has(VALUE_HAT):
        predicted, f_minus_q = rows.q, policy.values(VALUE_HAT) - sample.q
    of_model = mean_estimate(f_minus_q, cluster=sample.cluster)
    values, cluster = of_model.value + (rows.w - 1) * (rows.r - predicted), sample.known_cluster
    quantile = t_quantile(o * (values - np.average(values, weights=o)), 1 - policy.level, cluster)
    factor = overturning_factor(values, o, of_model.stderr or 0.0, quantile, cluster)
    conclusion = "not shown to differ from" if factor == 1 else "better than" if o @ values > 0 else "worse than"
    return Estimate(factor, rows.n, note=f"{conclusion} the logging policy")


def overturning_factor(
    values: Floats, weights: Floats, error: float, quantile: float, cluster: Clusters | None = None
) -> float:
    """The smallest Γ ≥ 1 for which m ± quantile·(standard error) can contain 0, m = Σ uᵢ vᵢ/Σ uᵢ, if each uᵢ may take
    any value from weightᵢ/Γ to weightᵢ·Γ.

    Whether m can reach 0 depends only on the sign of Σ uᵢ vᵢ. For m > 0 it is smallest with u = weight·Γ for v < 0 and
    weight/Γ for the others: a threshold attains the bound of a weighted mean. So m is 0 at Γ² = Σ₊/Σ₋, the sums of
    weight·|v| over the positive and the negative values, and the end of the interval reaches 0 earlier. `error` is the
    standard error of the part of the values that does not vary with the rows.
    """
    v = values if weights @ values > 0 else -values
    # m and its error need only the sums of u and u·v over the values against the conclusion and over the others, by
    # cluster, and the products of these sums.
    groups = (v < 0, v >= 0)
    parts = [weights * group * factor for group in groups for factor in (np.ones(len(v)), v)]
    sums = np.stack([part if cluster is None else np.bincount(cluster, part) for part in parts])  # (4, clusters)
    n0, t0, n1, t1 = sums.sum(axis=1).tolist()
    products = sums @ sums.T

    def end(square: float) -> float:
        """The end of the interval that is closer to 0, for Γ² = square: factors relative to those of the second
        group."""
        total = square * n0 + n1
        mean = (square * t0 + t1) / total
        factors = np.array([-mean * square, square, -mean, 1.0])  # of the sums, in a cluster's sum of u (v − m)
        squares = max(0.0, float(factors @ products @ factors))
        return float(mean - quantile * math.sqrt(squares / total**2 + error**2))

    if not end(1.0) > 0:
        return 1.0
    if t0 == 0:
        return math.inf
    low, high = 1.0, -t1 / t0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if end(middle) > 0 else (low, middle)
    return math.sqrt(high)
