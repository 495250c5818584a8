"""The health of a log for a policy: whether the weights let the log say anything about it, in numbers and in a word."""

import math
from dataclasses import dataclass

import numpy as np

from s2bl_cli.evaluation.estimators.estimator import Floats

TRUST, CAUTION, NO_TRUST = 2, 1, 0
VERDICTS = {TRUST: "trust", CAUTION: "caution", NO_TRUST: "do not trust"}

# Of the histogram of weights: about even on a log axis, and the last bin has no end. 1 is inside a bin: as an edge,
# rounding would scatter the logging policy's own weights over the bins on both sides of it.
WEIGHT_EDGES = (0.0, 0.007, 0.015, 0.03, 0.07, 0.15, 0.3, 0.7, 1.5, 3.0, 7.0, 15.0, 30.0, 70.0, 150.0)


@dataclass(frozen=True)
class Health:
    """Of the known rows' weights w = π/p, but for the shares, which are of all rows."""

    ess: float  # effective sample size (Σw)²/Σw²
    ess_share: float  # of the known rows
    weight_p50: float
    weight_p99: float
    weight_max: float
    mean_weight: float  # 1 in expectation where the propensities are right
    mean_weight_error: float | None  # its standard error
    truncated_share: float  # rows whose propensity is below ν
    unsupported_share: float | None  # of the policy's choices, those of actions never logged
    rows: int
    concerns: tuple[str, ...] = ()  # what else is known to speak against the numbers

    @property
    def verdict(self) -> tuple[int, str]:
        """How far to trust values from the log, and why: the worst reason first."""
        reasons = sorted(_reasons(self), key=lambda reason: reason[0])
        if not reasons:
            return TRUST, f"{VERDICTS[TRUST]}: {self.ess:,.0f} effective rows of {self.rows:,}, mean weight near 1"
        worst = reasons[0][0]
        return worst, f"{VERDICTS[worst]}: {'; '.join(text for level, text in reasons if level == worst)}"


def health(w: Floats, p: Floats, nu: float, unsupported_share: float | None, concerns: tuple[str, ...] = ()) -> Health:
    """`w` of the known rows; `p` of all rows."""
    squares = float(w @ w)
    ess = float(w.sum()) ** 2 / squares if squares > 0 else 0.0
    middle, high = (float(x) for x in np.quantile(w, [0.5, 0.99]))
    error = float(w.std(ddof=1)) / math.sqrt(len(w)) if len(w) > 1 else None
    return Health(
        ess=ess,
        ess_share=ess / len(w),
        weight_p50=middle,
        weight_p99=high,
        weight_max=float(w.max()),
        mean_weight=float(w.mean()),
        mean_weight_error=error,
        truncated_share=float((p < nu).mean()),
        unsupported_share=unsupported_share,
        rows=len(w),
        concerns=concerns,
    )


def weight_shares(w: Floats) -> Floats:
    """The share of the weights in each bin, from its edge up to, and without, the next: (bins,)."""
    bins = np.searchsorted(WEIGHT_EDGES[1:], w, side="right")
    return np.bincount(bins, minlength=len(WEIGHT_EDGES)) / len(w)


def _reasons(found: Health) -> list[tuple[int, str]]:
    """What speaks against trust, by level."""
    reasons = [(CAUTION, concern) for concern in found.concerns]
    if found.ess < 30 or found.ess_share < 0.005:
        reasons.append((NO_TRUST, f"only {found.ess:,.1f} effective rows of {found.rows:,}"))
    elif found.ess < 100 or found.ess_share < 0.05:
        reasons.append((CAUTION, f"only {found.ess:,.0f} effective rows of {found.rows:,}"))
    off = abs(found.mean_weight - 1)
    # With very many rows a mean weight of 1.001 differs from 1 for certain, and matters to nobody.
    if found.mean_weight_error is not None and off > 0.02:
        z = off / found.mean_weight_error if found.mean_weight_error > 0 else math.inf
        text = f"the mean weight is {found.mean_weight:.3f} where 1 is expected ({z:.1f} standard errors)"
        if z > 5 or off > 0.5:
            reasons.append(
                (
                    NO_TRUST,
                    f"{text}: propensities may be wrong, the policy fitted to these very rows, or actions never logged",
                )
            )
        elif z > 3:
            reasons.append((CAUTION, text))
    missed = found.unsupported_share or 0.0
    if missed > 0.01:
        level = NO_TRUST if missed > 0.1 else CAUTION
        reasons.append((level, f"{missed:.1%} of its choices are of actions that were never logged"))
    if found.truncated_share > 0.05:
        reasons.append((CAUTION, f"{found.truncated_share:.1%} of the propensities are below ν"))
    return reasons
