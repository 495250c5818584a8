"""The health of a log for a policy: numbers and a verdict on whether estimates from the log are reliable.

The effective sample size and the quantiles describe the weights w = π/p of the known rows. The mean weight and the
shares of truncated rows and of unsupported choices need no feedback, so they are computed over all rows. The number of
rows that carry an estimate is computed from its influence values.
"""

import math
from collections.abc import Callable

import numpy as np

from s2bl_cli.metrics.estimate import Estimate, mean_estimate
from s2bl_cli.metrics.estimators import dr, snips
from s2bl_cli.metrics.metric import COUNT, HEALTH, PERCENT, PLAIN, WEIGHT, Metric, Unit, by_name
from s2bl_cli.metrics.missing_feedback import gamma
from s2bl_cli.metrics.sample import PI, UNSUPPORTED, VALUE_HAT, Array, Column, Floats, ScoredPolicy

RELIABLE, CAUTION, UNRELIABLE = 2, 1, 0
VERDICTS = {RELIABLE: "reliable", CAUTION: "caution", UNRELIABLE: "unreliable"}

# Bin edges of the histogram of weights: roughly even on a log axis, and the last bin is open. 1 is inside a bin: as an
# edge, rounding would scatter the logging policy's own weights over the bins on both sides of it.
WEIGHT_EDGES = (0.0, 0.007, 0.015, 0.03, 0.07, 0.15, 0.3, 0.7, 1.5, 3.0, 7.0, 15.0, 30.0, 70.0, 150.0)


def verdict(
    ess: float,
    rows: int,
    heavy_rows: float,
    carrying: float,
    largest_share: float,
    mean_weight: Estimate,
    truncated_share: float,
    unsupported_share: float,
    concerns: tuple[str, ...] = (),
    unit: str = "row",
) -> tuple[int, str]:
    """The verdict on values from the log, with the worst reasons. `rows` are the known rows or clusters, and
    `heavy_rows` is the effective sample size of the squared weights: if it is small, the effective sample size itself
    is uncertain.

    The limits were chosen by simulation: intervals called "reliable" cover at about their level (docs/coverage.md). A
    limit on large values in the log selects logs in which they happen to be missing, and these cover worse. The mean
    weight, whose expectation is known, reveals what is missing: its limit is two standard errors.
    """
    bias, error = abs(mean_weight.value - 1), mean_weight.stderr
    # With very many rows, a mean weight of 1.001 differs significantly from 1 but is harmless.
    is_off = error is not None and bias > 0.02
    z = bias / error if error else math.inf
    weight = f"the mean weight is {mean_weight.value:.3f} where 1 is expected ({z:.1f} standard errors)"
    causes = "propensities may be wrong, the policy trained on these rows, or actions never logged"
    unsupported = f"{unsupported_share:.1%} of its choices are of actions that the logging policy does not take"
    few = f"only {carrying:,.0f} {unit}s carry the estimate" if carrying else "all known rows have the same reward"
    dominated = f"one {unit} has {largest_share:.0%} of the variance of the estimate"
    reasons = [
        *((CAUTION, True, concern) for concern in concerns),
        (UNRELIABLE, ess < 30, f"effective sample size only {ess:,.1f} of {rows:,}"),
        (CAUTION, ess < 100, f"effective sample size only {ess:,.0f} of {rows:,}"),
        (CAUTION, heavy_rows < 20, f"{heavy_rows:,.0f} {unit}s have nearly all of the squared weights"),
        (UNRELIABLE, 0 < carrying < 10, few),
        (CAUTION, carrying < 40, few),
        (UNRELIABLE, largest_share > 0.5, dominated),
        (CAUTION, largest_share > 0.25, dominated),
        (UNRELIABLE, is_off and (z > 5 or bias > 0.5), f"{weight}: {causes}"),
        (CAUTION, is_off and z > 2, weight),
        (UNRELIABLE, unsupported_share > 0.1, unsupported),
        (CAUTION, unsupported_share > 0.01, unsupported),
        (CAUTION, truncated_share > 0.05, f"{truncated_share:.1%} of the propensities are below ν"),
        (RELIABLE, True, f"effective sample size {ess:,.0f} of {rows:,}, mean weight {mean_weight.value:.2f}"),
    ]
    worst = min(level for level, applies, _ in reasons if applies)
    texts = [text for level, applies, text in reasons if applies and level == worst]
    return worst, f"{VERDICTS[worst]}: {'; '.join(texts)}"


def effective_sample_size(w: Floats) -> float:
    """(Σw)²/Σw²"""
    squares = float(w @ w)
    return float(w.sum()) ** 2 / squares if squares > 0 else 0.0


def carrying_rows(influence: Floats) -> float:
    """(Σ|ψ|)²/(4 Σψ²): the number of 1s, for the mean of a few 1s among many 0s; n/4 for n values ±1."""
    squares = float(influence @ influence)
    return float(np.abs(influence).sum()) ** 2 / (4 * squares) if squares > 0 else 0.0


def largest_share(influence: Floats) -> float:
    """max ψ²/Σψ²: the largest row's share of the variance of an estimate."""
    squares = float(influence @ influence)
    return float((influence**2).max()) / squares if squares > 0 else 0.0


def weight_shares(w: Floats) -> Floats:
    """The share of the weights in each bin, from its edge up to but excluding the next one: (bins,)."""
    return np.histogram(w, (*WEIGHT_EDGES, np.inf))[0] / len(w)


def _share(values: Array) -> Estimate:
    """A mean over all rows, without a standard error."""
    return Estimate(float(values.mean()), len(values))


def _influences(policy: ScoredPolicy) -> list[Floats]:
    """The influences of `snips` and, if there is a reward model, of `dr`; summed over clusters. Empty if all rewards
    are equal, because only rounding errors would remain."""
    if np.ptp(policy.known_rows.r) == 0:
        return []
    estimates = [
        estimate
        for metric in (snips.ESTIMATOR, dr.ESTIMATOR)
        if metric.is_measurable(policy)
        for estimate in metric.compute(policy)
    ]
    influences = [one.influence for one in estimates if one.influence is not None and math.isfinite(one.value)]
    return [_by_cluster(influence, policy) for influence in influences]


def _concentration(policy: ScoredPolicy) -> tuple[float, float]:
    """The smallest number of rows that carry an estimate, and the largest share of one row in its variance."""
    influences = _influences(policy)
    return min(map(carrying_rows, influences), default=0.0), max(map(largest_share, influences), default=0.0)


def _known_weights(policy: ScoredPolicy) -> Floats:
    """w of the known rows; with a model of missingness, w·o, where o is the inverse of the modelled probability."""
    observed = policy.sample.observed
    return policy.known_rows.w / (1.0 if observed is None else observed[policy.sample.known].astype(np.float64))


def _ess(policy: ScoredPolicy) -> float:
    """Of rows or, if there are any, of clusters: the rows of one cluster are not independent."""
    return effective_sample_size(_by_cluster(_known_weights(policy), policy))


def _by_cluster(values: Floats, policy: ScoredPolicy) -> Floats:
    """The sums over the clusters, if there are any."""
    cluster = policy.sample.cluster_of(len(values))
    return values if cluster is None else np.bincount(cluster, values).astype(np.float64)


def _verdict(policy: ScoredPolicy) -> Estimate:
    carrying, share = policy.once(_concentration)
    level, reason = verdict(
        _ess(policy),
        policy.sample.known_units,
        effective_sample_size(_by_cluster(policy.w**2, policy)),
        carrying,
        share,
        mean_estimate(policy.w, cluster=policy.sample.cluster),
        _share(policy.sample.p < policy.nu).value,
        _share(policy.values(UNSUPPORTED)).value if policy.has(UNSUPPORTED) else 0.0,
        policy.concerns,
        unit="row" if policy.sample.cluster is None else "cluster",
    )
    sensitivity = policy.once(gamma)
    if sensitivity is not None and sensitivity.value > 1:
        reason += f"; {sensitivity.note} up to Γ = {sensitivity.value:.2f}"
    return Estimate(level, policy.known_rows.n, note=reason)


def _histogram(policy: ScoredPolicy) -> list[Estimate]:
    """Every bin, including empty ones."""
    w = policy.known_rows.w
    bins = zip(weight_shares(w).tolist(), WEIGHT_EDGES, (*WEIGHT_EDGES[1:], None), strict=True)
    return [Estimate(share, len(w), label=i, edges=(low, high)) for i, (share, low, high) in enumerate(bins)]


def _metric(
    name: str,
    title: str,
    unit: Unit,
    figure: Callable[[ScoredPolicy], Estimate],
    needs: Column = PI,
    uses: tuple[Column, ...] = (),
) -> Metric:
    return Metric(
        name, title, unit, None, HEALTH, lambda policy: [figure(policy)], needs=(needs,), needs_feedback=True, uses=uses
    )


def _of_weights(name: str, title: str, unit: Unit, figure: Callable[[Floats], float]) -> Metric:
    return _metric(name, title, unit, lambda policy: Estimate(figure(policy.known_rows.w), policy.known_rows.n))


def _known_figure(name: str, title: str, unit: Unit, figure: Callable[[ScoredPolicy], float]) -> Metric:
    """A figure computed from the known rows, without a standard error."""
    return _metric(name, title, unit, lambda policy: Estimate(figure(policy), policy.known_rows.n), uses=(VALUE_HAT,))


METRICS = by_name(
    _known_figure("ess", "Effective sample size", COUNT, _ess),
    _known_figure(
        "ess-share", "Effective share of the rows", PERCENT, lambda policy: _ess(policy) / policy.sample.known_units
    ),
    _known_figure(
        "carrying-rows",
        "Rows that carry the estimate",
        COUNT,
        lambda policy: policy.once(_concentration)[0],
    ),
    _known_figure(
        "largest-share",
        "Largest row's share of the variance",
        PERCENT,
        lambda policy: policy.once(_concentration)[1],
    ),
    _metric("mean-weight", "Mean weight", WEIGHT, lambda policy: mean_estimate(policy.w)),
    _of_weights("weight-p50", "Median weight", WEIGHT, lambda w: float(np.quantile(w, 0.5))),
    _of_weights("weight-p99", "99 % of the weights are below", WEIGHT, lambda w: float(np.quantile(w, 0.99))),
    _of_weights("weight-max", "Largest weight", WEIGHT, lambda w: float(w.max())),
    Metric(
        "weight-share",
        "Share of the known rows by weight",
        PERCENT,
        None,
        HEALTH,
        _histogram,
        needs=(PI,),
        needs_feedback=True,
        by="bin",
    ),
    _metric(
        "truncated-share",
        "Share of rows truncated at ν",
        PERCENT,
        lambda policy: _share(policy.sample.p < policy.nu),
    ),
    _metric(
        "unsupported-share",
        "Share on unsupported actions",
        PERCENT,
        lambda policy: _share(policy.values(UNSUPPORTED)),
        needs=UNSUPPORTED,
    ),
    Metric(
        "gamma",
        "Γ that overturns the comparison with the logging policy",
        WEIGHT,
        None,
        HEALTH,
        lambda policy: filter(None, [policy.once(gamma)]),
        needs=(PI,),
        needs_feedback=True,
        uses=(VALUE_HAT,),
    ),
    _metric("health", "Verdict", PLAIN, _verdict, uses=(UNSUPPORTED, VALUE_HAT)),
)
