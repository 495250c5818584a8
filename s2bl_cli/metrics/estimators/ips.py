"""Inverse propensity score.

    V̂ = mean(w r)

Domain: any finite rewards. Adding b to all rewards adds b·mean(w) to V̂, not b, and increases its variance.
Limits: unbiased if the logging policy gives every action of π some probability; for π = π₀, the mean reward.
Source: Horvitz & Thompson 1952; the paper's eq. (emp risk), negated.
"""

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    return Terms([rows.w * rows.r], width=rows.reward_span_with_0 * rows.largest_weight)


ESTIMATOR = estimator("ips", "IPS", terms)
