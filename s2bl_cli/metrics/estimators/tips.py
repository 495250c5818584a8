"""Truncated inverse propensity score.

    V̂ = mean(r π / max(ν, p))

Domain: any finite rewards, ν in [0, 1]. As for `ips`, adding b to all rewards does not add b to V̂.
Limits: ν → 0 is `ips`. Weights are at most 1/ν; for r ≥ 0 the bias is towards 0, in rows with p < ν. If there are such
rows that π can take, an interval would miss the value, so there is none.
Source: the paper's eq. (truncated emp risk), negated; Strehl et al. 2010.
"""

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    values = rows.r * rows.pi / rows.p.clip(min=rows.nu)
    if (rows.p[rows.pi > 0] < rows.nu).any():
        return Terms([values], biased=True, note="biased, because some propensities are below ν: no interval")
    return Terms([values], width=rows.reward_span_with_0 / max(rows.nu, float(rows.p.min())))


ESTIMATOR = estimator("tips", "Truncated IPS", terms)
