"""From an estimator's terms to its standard error and interval: normal, Bernstein, bootstrap, or its own bound.

The standard error is that of the delta method: with t̄ the means of the terms and g the estimate as their
function, each row has the influence ∇g(t̄)·(tᵢ − t̄). The gradient is taken by a complex step, Im g(t̄ +
iεe)/ε, which has no rounding error to speak of.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from s2bl_cli.evaluation.estimators.estimator import Floats, Terms, Values

NORMAL, BERNSTEIN, BOOTSTRAP, LOWER_BOUND = "normal", "bernstein", "bootstrap", "lower-bound"
INTERVALS = (NORMAL, BERNSTEIN, BOOTSTRAP)

_STEP = 1e-30
_COUNTS_AT_ONCE = 1 << 18  # numbers: what the bootstrap holds at a time stays in the processor's cache


@dataclass(frozen=True)
class IntervalSettings:
    """Which interval, at what level; `draws` and `seed` are the bootstrap's."""

    kind: str = NORMAL
    level: float = 0.95
    draws: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Estimate:
    """A number with what is known of its error. `interval` says how the interval was made."""

    value: float
    stderr: float | None
    low: float | None
    high: float | None
    interval: str | None
    rows: int
    note: str | None = None


def normal_quantile(level: float) -> float:
    """z, such that a standard normal lies in [−z, z] with probability `level`."""
    return NormalDist().inv_cdf((1 + level) / 2)


def completed(terms: Terms, predicted: Floats, known: npt.NDArray[np.bool_], probability: Floats) -> Terms:
    """The terms t of the known rows k, taken to all rows: means become mean(t̂) + mean(o (t − t̂))/mean(o), o = k/P(k).

    `predicted` t̂ (terms, rows) and `probability` P(k | x, a) are of all rows. The means are right where either t̂ or
    P(k) is: P(k) is out as far as t̂ foretells t, and a t̂ that is off is corrected on the known rows. So the errors of
    the two multiply, and the interval may leave them out. Source: Robins, Rotnitzky & Zhao 1994.
    """
    inner, count = terms.of_means, len(terms.values)
    o = known / probability
    gap = np.zeros_like(predicted)
    gap[:, known] = o[known] * (terms.values - predicted[:, known])

    def of_means(means: Values) -> Values:
        return inner(means[:count] + means[count:-1] / means[-1])

    values = np.concatenate([predicted, gap, o[None]])
    return replace(terms, values=values, of_means=of_means, width=None, lower_bound=None)


def standard_error(terms: Terms) -> float | None:
    count = terms.values.shape[1]
    if count < 2:
        return None
    means = terms.values.mean(axis=1)
    with np.errstate(invalid="ignore"):  # where the estimate is no number, neither is its error
        influence = _gradient(terms, means) @ (terms.values - means[:, None])  # (n,)
    return math.sqrt(float(influence @ influence) / (count - 1) / count)


def _gradient(terms: Terms, means: Floats) -> Floats:
    moved = means[:, None] + 1j * _STEP * np.eye(len(means))  # (terms, terms)
    with np.errstate(all="ignore"):
        gradient: Floats = terms.of_means(moved).imag / _STEP
    return gradient


def estimates(all_terms: Sequence[Terms], settings: IntervalSettings) -> list[Estimate | None]:
    """One a term set, None where the estimate is no number. Those of one length share the bootstrap's draws."""
    drawn = _bootstrap(all_terms, settings) if settings.kind == BOOTSTRAP else [None] * len(all_terms)
    return [_estimate(terms, settings, replicates) for terms, replicates in zip(all_terms, drawn, strict=True)]


def _estimate(terms: Terms, settings: IntervalSettings, replicates: Floats | None) -> Estimate | None:
    value, error, count = terms.estimate, standard_error(terms), terms.values.shape[1]
    if not math.isfinite(value):
        return None
    if error is not None and not math.isfinite(error):
        error = None
    low: float | None
    high: float | None
    if terms.lower_bound is not None:
        low, high, kind = terms.lower_bound(1 - settings.level), None, LOWER_BOUND
    elif error is None or terms.biased:
        return Estimate(value, error, None, None, None, count, terms.note)
    elif replicates is not None:
        tail = (1 - settings.level) / 2
        # Weibull's quantiles: numpy's own lie inside them, and of 100 draws would leave out 7 % instead of 5.
        low, high = (float(bound) for bound in np.quantile(replicates, [tail, 1 - tail], method="weibull"))
        kind = BOOTSTRAP
    elif settings.kind == BERNSTEIN and terms.width is not None:
        half = bernstein_half_width(error, count, terms.width, 1 - settings.level)
        low, high, kind = value - half, value + half, BERNSTEIN
    else:
        half = normal_quantile(settings.level) * error
        low, high, kind = value - half, value + half, NORMAL
    return Estimate(value, error, low, high, kind, count, terms.note)


def bernstein_half_width(error: float, count: int, width: float, delta: float) -> float:
    """√(2L/n)·(S + b√(2L/(n − 1))) + bL/(3n), L = ln(3/δ), S² the sample variance, b the width of the values' interval.

    Holds for every n, for means of bounded values, on both sides at once: Bennett's inequality for each side and one
    bound of the variance for both are three events of probability δ/3 at most. Source: Maurer & Pontil 2009, theorems
    3 and 10, which their theorem 4 joins for one side, rounding the terms in b up to 7bL/(3(n − 1)).
    """
    log = math.log(3 / delta)
    spread = math.sqrt(2 * log) * (error + width * math.sqrt(2 * log / (count - 1) / count))
    return spread + width * log / (3 * count)


def _bootstrap(all_terms: Sequence[Terms], settings: IntervalSettings) -> list[Floats | None]:
    """The estimates on rows drawn with replacement: (draws,) each."""
    replicates: list[Floats | None] = [None] * len(all_terms)
    for count in {terms.values.shape[1] for terms in all_terms}:
        chosen = [i for i, terms in enumerate(all_terms) if terms.values.shape[1] == count]
        means = _resampled_means(np.concatenate([all_terms[i].values for i in chosen]), settings)  # (all terms, draws)
        at = 0
        for i in chosen:
            size = len(all_terms[i].values)
            with np.errstate(all="ignore"):
                values = all_terms[i].of_means(means[at : at + size])
            replicates[i] = values[np.isfinite(values)] if np.isfinite(values).any() else None
            at += size
    return replicates


def _resampled_means(values: Floats, settings: IntervalSettings) -> Floats:
    count = values.shape[1]
    rng = np.random.default_rng([settings.seed, count])
    means = np.empty((len(values), settings.draws))
    at_once = max(1, min(settings.draws, _COUNTS_AT_ONCE // count))
    times = np.empty((at_once, count))
    for start in range(0, settings.draws, at_once):
        stop = min(start + at_once, settings.draws)
        for own, drawn in zip(times, rng.integers(0, count, (stop - start, count), np.int32), strict=False):
            own[:] = np.bincount(drawn, minlength=count)
        means[:, start:stop] = values @ times[: stop - start].T / count
    return means
