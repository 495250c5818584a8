"""The paper's bounds, as figures: of the true risk, and of the error of its divergence estimators. δ is 1 − level."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from s2bl_cli.metrics.divergences import kl_terms, reverse_kl_terms, sampled_kl, sampled_reverse_kl
from s2bl_cli.metrics.estimate import Estimate
from s2bl_cli.metrics.estimators import tips
from s2bl_cli.metrics.metric import BOUND, PLAIN, Metric, by_name
from s2bl_cli.metrics.sample import KL, PI, REVERSE_KL, Floats, LoggedSample, ScoredPolicy


def risk_bound(truncated_value: float, divergence: float, n: int, nu: float, delta: float) -> float:
    """R ≤ −V̂_ν + 2L/(3νn) + √((√(2M)/ν + 2)·L/n), L = ln(1/δ), with probability 1 − δ.

    M = min(KL(π‖π₀), KL(π₀‖π)). Domain: rewards in [0, 1], ν in (0, 1]. Source: the paper, theorem *main result*.
    """
    log = math.log(1 / delta)
    variance = (math.sqrt(2 * max(0.0, divergence)) / nu + 2) * log / n
    return -truncated_value + 2 * log / (3 * nu * n) + math.sqrt(variance)


def estimator_error_bound(terms: Floats, sample: LoggedSample, delta: float) -> float:
    """B √(2 ln(k/δ)) Σ_a 1/√m_a: how far the paper's divergence estimator is off, with probability 1 − δ.

    B is the largest |term| seen. Actions never logged are left out. Source: the paper, proposition *error
    analysis*, which assumes that the contexts of each action are distributed as all contexts are.
    """
    count = np.bincount(sample.action, minlength=sample.actions)
    sizes = float((1 / np.sqrt(count[count > 0])).sum())
    return float(np.abs(terms).max()) * math.sqrt(2 * math.log(sample.actions / delta)) * sizes


def _risk_bound(policy: ScoredPolicy) -> Iterable[Estimate]:
    rows = policy.known_rows
    if policy.nu == 0 or rows.r.min() < 0 or rows.r.max() > 1:
        return
    divergence, source = _least_divergence(policy)
    bound = risk_bound(tips.terms(rows).estimate.value, divergence, rows.n, policy.nu, 1 - policy.level)
    note = f"of the risk, with probability {policy.level:g}; M = {divergence:.4g} ({source})"
    yield Estimate(bound, rows.n, note=note)


def _least_divergence(policy: ScoredPolicy) -> tuple[float, str]:
    if policy.has(KL):
        return min(float(policy.values(column).mean()) for column in (KL, REVERSE_KL)), "exact"
    return min(max(0.0, estimate(policy).value) for estimate in (sampled_kl, sampled_reverse_kl)), "sampled"


def _error_bound(name: str, title: str, terms_of: Callable[[ScoredPolicy], Floats]) -> Metric:
    def compute(policy: ScoredPolicy) -> Iterable[Estimate]:
        bound = estimator_error_bound(terms_of(policy), policy.sample, 1 - policy.level)
        return [Estimate(bound, policy.sample.rows)]

    return Metric(name, title, PLAIN, "low", BOUND, compute, needs=(PI,))


METRICS = by_name(
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
    _error_bound("estimator-error-bound", "Bound of the estimator's error", kl_terms),
    _error_bound("reverse-estimator-error-bound", "Bound of the reverse estimator's error", reverse_kl_terms),
)
