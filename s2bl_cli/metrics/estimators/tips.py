"""Truncated inverse propensity score.

    V̂ = mean(r π / max(ν, p))

Domain: any finite rewards, ν in [0, 1].
Limits: ν → 0 is `ips`. Weights are at most 1/ν; for r ≥ 0 the bias is towards 0, in rows with p < ν.
Source: the paper's eq. (truncated emp risk), negated; Strehl et al. 2010.
"""

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    p = rows.p.clip(min=rows.nu)
    return Terms([rows.r * rows.pi / p], width=rows.reward_span / float(p.min()))


ESTIMATOR = estimator("tips", "Truncated IPS", terms)
