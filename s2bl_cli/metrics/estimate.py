"""Estimates with the influence of every row, their standard errors, the difference between two estimates, and
intervals: normal, Bernstein, bootstrap, or an estimator's own bound.

Most estimates are functions g of means t̄ of terms over the rows. The influence of row i is ψᵢ = ∇g(t̄)·(tᵢ − t̄), the
delta method. The gradient is taken by a complex step, Im g(t̄ + iεe)/ε, which has a negligible rounding error.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.scores import BIN
from s2bl_cli.metrics.sample import Floats

NORMAL, BERNSTEIN, BOOTSTRAP, LOWER_BOUND = "normal", "bernstein", "bootstrap", "lower-bound"

_COUNTS_AT_ONCE = 1 << 18  # the bootstrap's working set fits in the processor's cache
_STEP = 1e-30

Values = npt.NDArray[Any]  # real or complex
Clusters = npt.NDArray[np.integer[Any]]  # numbers from 0, all of which occur


@dataclass(frozen=True)
class Terms:
    """The terms that an estimator averages over the rows, and its function of the averages."""

    values: Sequence[Floats]  # (n,) each
    # a function of one mean per term; analytic, so that it can be differentiated
    of_means: Callable[..., Values] = lambda mean: mean
    width: float | None = None  # the range of the values of an unbiased mean; None for other estimates
    lower_bound: Callable[[float], float] | None = None  # δ → the estimator's own bound
    biased: bool = False  # an interval around a biased estimate would miss the value, so only its own bound is used
    note: str | None = None

    @property
    def estimate(self) -> "Estimate":
        means = np.array([values.mean() for values in self.values])
        with np.errstate(all="ignore"):  # if the estimate is NaN, so is its influence
            value = float(self.of_means(*means))
            moved = means[:, None] + 1j * _STEP * np.eye(len(means))  # (terms, terms)
            gradient = self.of_means(*moved).imag / _STEP
            influence = np.asarray(  # (n,)
                sum(slope * (t - mean) for slope, t, mean in zip(gradient, self.values, means, strict=True))
            )
        return Estimate(value, len(influence), influence, self.note, terms=self)


@dataclass(frozen=True)
class Estimate:
    """A value and the influence of each row on it."""

    value: float
    rows: int
    influence: Floats | None = None  # (rows,); None for a value without a standard error
    note: str | None = None
    label: int | None = None  # the class of a per-class score, or the bin number of a histogram
    terms: Terms | None = None  # for resampling and bounds; None if only normal intervals exist
    edges: tuple[float, float | None] | None = None  # of a histogram's bin
    comparisons: int = 1  # number of intervals that should hold simultaneously
    cluster: Clusters | None = None  # (rows,) the cluster of each row; None: every row is its own cluster

    @cached_property
    def stderr(self) -> float | None:
        return None if self.influence is None else standard_error(self.influence, self.cluster)

    def without_values(self) -> "Estimate":
        """Keep the influence values but drop what only resampling needs: a third of the memory."""
        return self if self.terms is None else replace(self, terms=replace(self.terms, values=()))


def mean_estimate(
    values: Floats, label: int | None = None, note: str | None = None, cluster: Clusters | None = None
) -> Estimate:
    mean = float(values.mean())
    return Estimate(mean, len(values), values - mean, note, label, cluster=cluster)


def standard_error(influence: Floats, cluster: Clusters | None = None) -> float | None:
    """√(Σψ²/(n − 1)/n); None if it is unknown. Rows of one cluster (G numbers from 0) are not independent, so their
    influences are summed first: √(G/(G − 1) Σ_g (Σ_{i in g} ψᵢ)²)/n. The two are equal if every row is a cluster."""
    sums = influence if cluster is None else np.bincount(cluster, influence)
    if len(sums) < 2:
        return None
    error = math.sqrt(float(sums @ sums) * len(sums) / (len(sums) - 1)) / len(influence)
    return error if math.isfinite(error) else None


def difference(first: Estimate, second: Estimate) -> Estimate:
    """first − second, for two estimates on the same rows. Their errors are paired, so shared noise cancels.

    If one of the two has no interval of its own, because it is biased, the difference has none.
    """
    if first.influence is None or second.influence is None:
        return Estimate(first.value - second.value, first.rows)
    if first.rows != second.rows:
        raise ValueError(f"estimates on {first.rows} and {second.rows} rows are not paired")
    influence = first.influence - second.influence
    terms = _difference_terms(first, second)
    return Estimate(first.value - second.value, first.rows, influence, terms=terms, cluster=first.cluster)


def _difference_terms(first: Estimate, second: Estimate) -> Terms | None:
    one, other = first.terms, second.terms
    if one is None or other is None:
        return None

    def of_means(*means: Values) -> Values:
        return one.of_means(*means[: len(one.values)]) - other.of_means(*means[len(one.values) :])

    values = [*one.values, *other.values] if one.values and other.values else []
    return Terms(values, of_means, biased=one.biased or other.biased)


@dataclass(frozen=True)
class IntervalSettings:
    """The kind and level of the interval; `draws` and `seed` apply to the bootstrap."""

    kind: str = NORMAL
    level: float = 0.95
    draws: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Interval:
    """`kind` is None if there is no interval. An end that is None is open."""

    low: float | None = None
    high: float | None = None
    kind: str | None = None


def normal_quantile(level: float) -> float:
    """The z for which a standard normal variable lies in [−z, z] with probability `level`."""
    return NormalDist().inv_cdf((1 + level) / 2)


def degrees_of_freedom(influence: Floats, cluster: Clusters | None = None) -> float:
    """2n/(κ − 1), at most n − 1, for n rows or clusters and the kurtosis κ of their influences.

    If a few rows determine a variance, the variance itself is uncertain: its estimate has the relative variance (κ −
    1)/n, which is that of χ² with this many degrees of freedom. Source: Satterthwaite 1946.
    """
    sums = influence if cluster is None else np.bincount(cluster, influence)
    variance = float(sums @ sums) / len(sums)
    if variance == 0:
        return len(sums) - 1
    fourth = float(np.square(np.square(sums) / variance).mean())  # κ, at least 1
    return min(len(sums) - 1, 2 * len(sums) / (fourth - 1)) if fourth > 1 else len(sums) - 1


def t_quantile(influence: Floats, delta: float, cluster: Clusters | None = None) -> float:
    """The quantile of Student's t for an interval with the level 1 − δ."""
    from scipy.special import stdtrit  # imported here, because most commands do not need it

    return float(stdtrit(degrees_of_freedom(influence, cluster), 1 - delta / 2))


def _half_width(estimate: Estimate, delta: float) -> float:
    """Half the width of the normal interval."""
    assert estimate.influence is not None
    assert estimate.stderr is not None
    return t_quantile(estimate.influence, delta, estimate.cluster) * estimate.stderr


def intervals(estimates: Sequence[Estimate], settings: IntervalSettings) -> list[Interval]:
    """One interval per estimate. Estimates with the same number of rows share the bootstrap's draws.

    The bootstrap needs terms to resample, and Bernstein's inequality needs values of a known range. Other estimates get
    the normal interval. With clusters the bootstrap draws clusters, and bounds for independent rows do not apply.
    """
    replicates = _bootstrap(estimates, settings) if settings.kind == BOOTSTRAP else {}
    return [_interval(estimate, settings, replicates.get(i, np.empty(0))) for i, estimate in enumerate(estimates)]


def _interval(estimate: Estimate, settings: IntervalSettings, replicates: Floats) -> Interval:
    terms, error, delta = estimate.terms, estimate.stderr, (1 - settings.level) / estimate.comparisons
    if estimate.edges is not None:
        return Interval(*estimate.edges, BIN)
    if terms is not None and terms.lower_bound is not None and estimate.cluster is None:
        return Interval(terms.lower_bound(delta), None, LOWER_BOUND)
    if error is None or (terms is not None and terms.biased):
        return Interval()
    tail = delta / 2
    if (len(replicates) + 1) * tail >= 1:  # otherwise there are too few draws for quantiles this far out
        # Weibull's quantiles: numpy's default is narrower, and with 100 draws would exclude 7 % instead of 5 %.
        low, high = np.quantile(replicates, [tail, 1 - tail], method="weibull")
        return Interval(float(low), float(high), BOOTSTRAP)
    if settings.kind == BERNSTEIN and terms is not None and terms.width is not None and estimate.cluster is None:
        kind, half = BERNSTEIN, bernstein_half_width(error, estimate.rows, terms.width, delta)
    else:
        kind, half = NORMAL, _half_width(estimate, delta)
    return Interval(estimate.value - half, estimate.value + half, kind)


def bernstein_half_width(error: float, count: int, width: float, delta: float) -> float:
    """√(2L/n)·(S + b√(2L/(n − 1))) + bL/(3n), L = ln(3/δ), S² the sample variance, b the range of the values.

    Holds for every n, for means of bounded values, on both sides at once: Bennett's inequality for each side and one
    bound on the variance for both are three events, each with probability at most δ/3. Source: Maurer & Pontil 2009,
    theorems 3 and 10, which their theorem 4 combines for one side, rounding the terms in b up to 7bL/(3(n − 1)).
    """
    log = math.log(3 / delta)
    deviation = math.sqrt(2 * log) * (error + width * math.sqrt(2 * log / (count - 1) / count))
    return deviation + width * log / (3 * count)


def _bootstrap(estimates: Sequence[Estimate], settings: IntervalSettings) -> dict[int, Floats]:
    """The estimates on rows drawn with replacement, each (draws,) without NaN, by their position in `estimates`."""
    resampled = {i: e.terms for i, e in enumerate(estimates) if e.terms is not None and e.terms.values}
    replicates: dict[int, Floats] = {}
    for rows in {estimates[i].rows for i in resampled}:
        members = {i: terms for i, terms in resampled.items() if estimates[i].rows == rows}
        cluster = estimates[next(iter(members))].cluster  # the same rows
        # A difference has the terms of its two estimates, so each term is resampled only once.
        arrays = {id(values): values for terms in members.values() for values in terms.values}
        resampled_means = _resampled_means(np.stack(list(arrays.values())), cluster, settings)  # (all terms, draws)
        means = dict(zip(arrays, resampled_means, strict=True))
        for i, terms in members.items():
            with np.errstate(all="ignore"):
                drawn = terms.of_means(*(means[id(values)] for values in terms.values))
            replicates[i] = drawn[np.isfinite(drawn)]
    return replicates


def _resampled_means(values: Floats, cluster: Clusters | None, settings: IntervalSettings) -> Floats:
    """(terms, draws), from (terms, rows). Whole clusters are drawn, so a draw may have more or fewer rows."""
    size = np.ones(values.shape[1]) if cluster is None else np.bincount(cluster).astype(np.float64)
    sums = values if cluster is None else np.stack([np.bincount(cluster, term) for term in values])  # (terms, units)
    count = len(size)
    rng = np.random.default_rng([settings.seed, count])
    means = np.empty((len(sums), settings.draws))
    at_once = max(1, min(settings.draws, _COUNTS_AT_ONCE // count))
    for start in range(0, settings.draws, at_once):
        stop = min(start + at_once, settings.draws)
        drawn_units = rng.integers(0, count, (stop - start, count), np.int32)
        times = np.array([np.bincount(units, minlength=count) for units in drawn_units], np.float64)  # (draws, units)
        means[:, start:stop] = sums @ times.T / (count if cluster is None else times @ size)
    return means
