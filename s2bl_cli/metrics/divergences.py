"""Divergences between a policy and the logging policy, three ways; the name of a metric says which.

    exact    from the whole distributions of each row, where the log stores them (`pi0`)
    sampled  from the logged actions: KL(π‖π₀) = mean(w ln w), KL(π₀‖π) = mean(ln p − ln π); unbiased
    paper    the paper's per-action estimator: Σ_a (1/m_a) Σ_{aᵢ = a} of π ln(π/p), or of p ln(p/π)

The last assumes that the contexts in which an action was logged are distributed as all contexts are. They are not, so
it estimates something else (docs/mathematics.md). It is here because the paper's regularisers and error bound use it.

No feedback enters: all rows are used.
"""

from collections.abc import Callable

import numpy as np

from s2bl_cli.metrics.estimate import Estimate, mean_estimate
from s2bl_cli.metrics.metric import DIVERGENCE, PLAIN, Metric, by_name
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
    """Σ_a mean_a. Its standard error takes the m_a as given."""
    count = np.bincount(sample.action, minlength=sample.actions)
    total = np.bincount(sample.action, values, minlength=sample.actions)
    mean = np.divide(total, count, out=np.zeros(sample.actions), where=count > 0)
    influence = len(values) / count[sample.action] * (values - mean[sample.action])
    return Estimate(float(mean.sum()), len(values), influence)


def _metric(name: str, title: str, column: Column, estimate: Callable[[ScoredPolicy], Estimate]) -> Metric:
    return Metric(name, title, PLAIN, "low", DIVERGENCE, lambda policy: [estimate(policy)], needs=(column,))


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
)
