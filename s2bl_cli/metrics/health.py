"""The health of a log for a policy: numbers and a verdict on whether estimates from the log are reliable.

Figures are computed from the weights w = π/p of the known rows. The shares of truncated rows and of unsupported choices
are over all rows.
"""

import math
from collections.abc import Callable

import numpy as np

from s2bl_cli.metrics.estimate import Estimate, mean_estimate
from s2bl_cli.metrics.metric import COUNT, HEALTH, PERCENT, PLAIN, WEIGHT, Metric, Unit, by_name
from s2bl_cli.metrics.sample import PI, UNSUPPORTED, Array, Column, Floats, ScoredPolicy

RELIABLE, CAUTION, UNRELIABLE = 2, 1, 0
VERDICTS = {RELIABLE: "reliable", CAUTION: "caution", UNRELIABLE: "unreliable"}

# Of the histogram of weights: about even on a log axis, and the last bin has no end. 1 is inside a bin: as an edge,
# rounding would scatter the logging policy's own weights over the bins on both sides of it.
WEIGHT_EDGES = (0.0, 0.007, 0.015, 0.03, 0.07, 0.15, 0.3, 0.7, 1.5, 3.0, 7.0, 15.0, 30.0, 70.0, 150.0)


def verdict(
    ess: float,
    rows: int,
    mean_weight: Estimate,
    truncated_share: float,
    unsupported_share: float,
    concerns: tuple[str, ...] = (),
) -> tuple[int, str]:
    """The verdict on values from the log, with the worst reasons. `rows` are the known ones."""
    bias, error = abs(mean_weight.value - 1), mean_weight.stderr
    # With very many rows a mean weight of 1.001 differs significantly from 1, but that is harmless.
    is_off = error is not None and bias > 0.02
    z = bias / error if error else math.inf
    weight = f"the mean weight is {mean_weight.value:.3f} where 1 is expected ({z:.1f} standard errors)"
    causes = "propensities may be wrong, the policy trained on these rows, or actions never logged"
    unsupported = f"{unsupported_share:.1%} of its choices are of actions that were never logged"
    reasons = [
        *((CAUTION, True, concern) for concern in concerns),
        (UNRELIABLE, ess < 30 or ess / rows < 0.005, f"effective sample size only {ess:,.1f} of {rows:,}"),
        (CAUTION, ess < 100 or ess / rows < 0.05, f"effective sample size only {ess:,.0f} of {rows:,}"),
        (UNRELIABLE, is_off and (z > 5 or bias > 0.5), f"{weight}: {causes}"),
        (CAUTION, is_off and z > 3, weight),
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


def weight_shares(w: Floats) -> Floats:
    """The share of the weights in each bin, from its edge up to the next one, exclusive: (bins,)."""
    return np.histogram(w, (*WEIGHT_EDGES, np.inf))[0] / len(w)


def _share(values: Array) -> Estimate:
    """A mean over all rows, without a standard error."""
    return Estimate(float(values.mean()), len(values))


def _verdict(policy: ScoredPolicy) -> Estimate:
    w = policy.known_rows.w
    level, reason = verdict(
        effective_sample_size(w),
        len(w),
        mean_estimate(w),
        _share(policy.sample.p < policy.nu).value,
        _share(policy.values(UNSUPPORTED)).value if policy.has(UNSUPPORTED) else 0.0,
        policy.concerns,
    )
    return Estimate(level, len(w), note=reason)


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


METRICS = by_name(
    _of_weights("ess", "Effective sample size", COUNT, effective_sample_size),
    _of_weights("ess-share", "Effective share of the rows", PERCENT, lambda w: effective_sample_size(w) / len(w)),
    _metric("mean-weight", "Mean weight", WEIGHT, lambda policy: mean_estimate(policy.known_rows.w)),
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
        "Share on actions never logged",
        PERCENT,
        lambda policy: _share(policy.values(UNSUPPORTED)),
        needs=UNSUPPORTED,
    ),
    _metric("health", "Verdict", PLAIN, _verdict, uses=(UNSUPPORTED,)),
)
