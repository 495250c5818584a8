"""Divergences between a policy and the logging policy, and the paper's bounds that follow from them.

There are three versions of a divergence, which the name of the metric distinguishes:

    exact    from the whole distributions of each row, if the log stores them (`pi0`)
    sampled  from the logged actions: KL(π‖π₀) = mean(w ln w), KL(π₀‖π) = mean(ln p − ln π); unbiased
    paper    the paper's per-action estimator: Σ_a (1/m_a) Σ_{aᵢ = a} of π ln(π/p), or of p ln(p/π)

The last one assumes that contexts have the same distribution for every logged action. They do not, so it does not
estimate the divergence (docs/mathematics.md). It is included because the paper's regularisers and error bound use it.

Divergences need no feedback and use all rows. One bound is on the true risk and needs feedback; the others are on the
error of the paper's estimator. δ is 1 − level.
"""

import math
from collections.abc import Callable, Iterable
from statistics import NormalDist

import numpy as np

from s2bl_cli.metrics.estimate import Estimate, mean_estimate
from s2bl_cli.metrics.estimators import tips
from s2bl_cli.metrics.metric import BOUND, DIVERGENCE, PLAIN, Metric, by_name
from s2bl_cli.metrics.sample import KL, PI, REVERSE_KL, Column, Floats, LoggedSample, ScoredPolicy


def sampled_kl(policy: ScoredPolicy) -> Estimate:
    return mean_estimate(policy.pi / policy.sample.p * policy.log_ratio)


def sampled_reverse_kl(policy: ScoredPolicy) -> Estimate:
    return mean_estimate(-policy.log_ratio)


def kl_terms(policy: ScoredPolicy) -> Floats:
    """π ln(π/p) of each row."""
    return policy.pi * policy.log_ratio


def reverse_kl_terms(policy: ScoredPolicy) -> Floats:
    """p ln(p/π) of each row."""
    return -policy.sample.p * policy.log_ratio


def by_action(values: Floats, sample: LoggedSample) -> Estimate:
    """Σ_a mean_a. Its standard error treats the m_a as given."""
    count = np.bincount(sample.action, minlength=sample.actions)
    total = np.bincount(sample.action, values, minlength=sample.actions)
    mean = np.divide(total, count, out=np.zeros(sample.actions), where=count > 0)
    influence = len(values) / count[sample.action] * (values - mean[sample.action])
    return Estimate(float(mean.sum()), len(values), influence)


def risk_bound(truncated_value: float, divergence: float, n: int, nu: float, delta: float) -> float:
    """R ≤ −V̂_ν + 2L/(3νn) + √((√(2M)/ν + 2)·L/n), L = ln(1/δ), with probability 1 − δ.

    M = min(KL(π‖π₀), KL(π₀‖π)), or more. Domain: rewards in [0, 1], ν in (0, 1]. Source: the paper, theorem *main
    result*.
    """
    log = math.log(1 / delta)
    variance = (math.sqrt(2 * max(0.0, divergence)) / nu + 2) * log / n
    return -truncated_value + 2 * log / (3 * nu * n) + math.sqrt(variance)


def estimator_error_bound(terms: Floats, sample: LoggedSample, delta: float) -> float:
    """B √(2 ln(k/δ)) Σ_a 1/√m_a: a bound on the error of the paper's divergence estimator, with probability 1 − δ.

    B is the largest |term| in the log. Actions that were never logged are left out.
    Source: the paper, proposition *error analysis*, which assumes the same distribution of contexts for every
    action.
    """
    count = np.bincount(sample.action, minlength=sample.actions)
    sizes = float((1 / np.sqrt(count[count > 0])).sum())
    return float(np.abs(terms).max()) * math.sqrt(2 * math.log(sample.actions / delta)) * sizes


def _risk_bound(policy: ScoredPolicy) -> Iterable[Estimate]:
    """The bound for rewards scaled to [0, 1] by their declared range, mapped back to their unit. The theorem holds only
    for that range and for feedback that is missing completely at random; otherwise there is no bound."""
    rows, delta = policy.known_rows, 1 - policy.level
    if policy.nu == 0 or rows.declared_range is None or policy.sample.observed is not None:
        return
    divergence, source = divergence_limit(policy, delta / 2)
    (low, high), span = rows.declared_range, rows.reward_span
    truncated = tips.terms(rows.scaled(low, span)).estimate.value
    yield Estimate(
        span * risk_bound(truncated, divergence, rows.n, policy.nu, delta / 2) - low,
        rows.n,
        note=f"of the risk, with probability {policy.level:g}; M ≤ {divergence:.4g} ({source}); "
        f"rewards in [{low:g}, {high:g}], as declared",
    )


def divergence_limit(policy: ScoredPolicy, delta: float) -> tuple[float, str]:
    """An upper limit for min(KL(π‖π₀), KL(π₀‖π)), with probability about 1 − δ, and which version of the divergences it
    uses.

    Both divergences are means over the rows, and the smaller of two noisy means is usually too small. The limit is
    therefore the smaller of two upper confidence limits (normal), each with δ/2. NaN if there are too few rows for a
    standard error.
    """
    if policy.has(KL):
        estimates, source = [mean_estimate(policy.values(column)) for column in (KL, REVERSE_KL)], "exact"
    else:
        estimates, source = [sampled_kl(policy), sampled_reverse_kl(policy)], "sampled"
    z = NormalDist().inv_cdf(1 - delta / 2)
    limits = [max(0.0, one.value) + z * (math.nan if one.stderr is None else one.stderr) for one in estimates]
    return min(limits), source


def _error_bound(policy: ScoredPolicy, terms: Floats) -> Estimate:
    return Estimate(estimator_error_bound(terms, policy.sample, 1 - policy.level), policy.sample.rows)


def _metric(
    name: str, title: str, column: Column, estimate: Callable[[ScoredPolicy], Estimate], group: str = DIVERGENCE
) -> Metric:
    return Metric(name, title, PLAIN, "low", group, lambda policy: [estimate(policy)], needs=(column,))


METRICS = by_name(
    _metric("kl-exact", "KL(π‖π₀), exact", KL, lambda policy: mean_estimate(policy.values(KL))),
    _metric("kl-sampled", "KL(π‖π₀), unbiased from the draws", PI, sampled_kl),
    _metric(
        "kl-paper", "KL(π‖π₀), the paper's estimate", PI, lambda policy: by_action(kl_terms(policy), policy.sample)
    ),
    _metric("reverse-kl-exact", "KL(π₀‖π), exact", REVERSE_KL, lambda policy: mean_estimate(policy.values(REVERSE_KL))),
    _metric("reverse-kl-sampled", "KL(π₀‖π), unbiased from the draws", PI, sampled_reverse_kl),
    _metric(
        "reverse-kl-paper",
        "KL(π₀‖π), the paper's estimate",
        PI,
        lambda policy: by_action(reverse_kl_terms(policy), policy.sample),
    ),
    Metric(
        "theorem1-bound",
        "Theorem 1's bound of the risk",
        PLAIN,
        "low",
        BOUND,
        _risk_bound,
        needs=(PI,),
        needs_feedback=True,
        uses=(KL, REVERSE_KL),
    ),
    _metric(
        "estimator-error-bound",
        "Bound of the estimator's error",
        PI,
        lambda policy: _error_bound(policy, kl_terms(policy)),
        BOUND,
    ),
    _metric(
        "reverse-estimator-error-bound",
        "Bound of the reverse estimator's error",
        PI,
        lambda policy: _error_bound(policy, reverse_kl_terms(policy)),
        BOUND,
    ),
)
