"""How far apart numbers are, and how much of that can be noise.

Two kinds of noise are in the mean of a cell: that of repetitions, which are logs with their masks, and that of the
scored rows, which all repetitions share. A difference has

    repeated    s²/n over the n differences of repetitions that both cells have; else the sum over the two cells, with
                Welch's degrees of freedom
    rows        from the differences in random parts of the rows; or from the gain that `evaluate` has computed on the
                same rows; else the sum of both squared standard errors, which is too much if the policies are right in
                the same rows

The parts of a repetition have noise that `repeated` contains too: it is subtracted, as in an analysis of variance
with two factors. The variance of a difference is not known but estimated, so its p-value is averaged over the
variances that the estimates leave possible (Fisher's solution of the problem of Behrens). Of one kind of noise alone,
that is Student's test.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_SCALES = 64  # points of a quadrature over the scale of an estimated variance
_REACH = 8.0  # of a quadrature, in standard deviations to either side
_RANGES = np.linspace(0, 40, 1601)


@dataclass(frozen=True)
class Repetitions:
    """What the mean of a cell was made of. A field that is not known is empty."""

    mean: float
    variance: float | None = None  # of the mean, over the repetitions; None for a single one
    degrees: float = math.inf  # of freedom of that variance
    stderr: float | None = None  # over the scored rows
    units: tuple[Hashable, ...] = ()  # the names of the repetitions
    values: Floats = field(default_factory=lambda: np.empty(0))  # (units,)
    parts: Floats = field(default_factory=lambda: np.empty((0, 0)))  # (units, parts)
    rows: Hashable = None  # which rows were scored
    policies: frozenset[str] = frozenset()
    logs: frozenset[str] = frozenset()
    gains: Mapping[str, float] = field(default_factory=dict)  # baseline → standard error of the gain over it

    @property
    def is_repeated(self) -> bool:
        return self.variance is not None


@dataclass(frozen=True)
class Difference:
    """A sum of means with factors, such as one mean less another, and the variances of its noise."""

    value: float
    repeated: float
    repeated_degrees: float
    rows: float
    rows_degrees: float
    is_paired: bool  # on the scored rows: noise that the means share has cancelled


Terms = Sequence[tuple[float, Repetitions]]


def difference(one: Repetitions, other: Repetitions) -> Difference | None:
    return combination([(1.0, one), (-1.0, other)])


def combination(terms: Terms) -> Difference | None:
    """Σ factor·mean; None if the noise of one of the means is not known."""
    if any(not mean.is_repeated and mean.stderr is None and not mean.parts.size for _, mean in terms):
        return None
    value = sum(factor * mean.mean for factor, mean in terms)
    repeated, repeated_degrees = _over_repetitions(terms)
    rows, rows_degrees, is_paired = _over_rows(terms)
    return Difference(value, repeated, repeated_degrees, rows, rows_degrees, is_paired)


def _has_same_units(terms: Terms) -> bool:
    """Whether the repetitions can be paired. A mean without repetitions, such as that of a fixed policy, is paired with
    any."""
    repeated = [mean.units for _, mean in terms if mean.is_repeated]
    return all(units and units == repeated[0] for units in repeated)


def _over_repetitions(terms: Terms) -> tuple[float, float]:
    """The variance over the repetitions and its degrees of freedom."""
    repeated = [(factor, mean) for factor, mean in terms if mean.is_repeated]
    if len(repeated) > 1 and _has_same_units(terms):
        values = np.sum([factor * mean.values for factor, mean in repeated], axis=0)
        return float(values.var(ddof=1)) / len(values), len(values) - 1
    variances = [(factor**2 * (mean.variance or 0.0), mean.degrees) for factor, mean in repeated]
    total = sum(variance for variance, _ in variances)
    shares = sum(variance**2 / degrees for variance, degrees in variances)
    return total, total**2 / shares if shares else math.inf


def _over_rows(terms: Terms) -> tuple[float, float, bool]:
    """The variance over the scored rows that is not in that over the repetitions, its degrees of freedom, and whether
    it is paired."""
    same_rows = len({mean.rows for _, mean in terms}) == 1
    number = {mean.parts.shape[1] for _, mean in terms}
    if same_rows and len(number) == 1 and max(number) > 1:
        by_part = np.sum([factor * mean.parts.mean(axis=0) for factor, mean in terms], axis=0)  # (parts,)
        between = float(by_part.var(ddof=1)) / len(by_part)
        return max(0.0, between - _interaction(terms)), len(by_part) - 1, True
    if same_rows and [factor for factor, _ in terms] == [1, -1]:
        for (_, one), (_, other) in (terms, terms[::-1]):
            for baseline, stderr in one.gains.items():
                if other.policies == {baseline}:
                    return stderr**2, math.inf, True
    return sum((factor * (mean.stderr or 0.0)) ** 2 for factor, mean in terms), math.inf, False


def _interaction(terms: Terms) -> float:
    """The variance of the mean that comes from repetitions and parts together: it is in the variance over either."""
    repeated = [(factor, mean) for factor, mean in terms if mean.is_repeated]
    if len(repeated) > 1 and not _has_same_units(terms):
        return sum(_interaction([term]) for term in repeated)
    values: Floats = np.sum([factor * mean.parts for factor, mean in repeated], axis=0)
    if np.ndim(values) < 2:  # no mean is repeated
        return 0.0
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    repetitions, parts = values.shape
    return float((rest**2).sum() / ((repetitions - 1) * (parts - 1) * repetitions * parts))


def at_least(found: Difference, repeated: float, degrees: float) -> Difference:
    """With a variance over repetitions of other differences too, if it is larger than that of its own few."""
    return replace(found, repeated=max(found.repeated, repeated), repeated_degrees=degrees)


def p_value(found: Difference, among: int = 2) -> float:
    """The probability that the largest of `among` equal means exceeds the smallest by this much or more. Of two means,
    that is the two-sided p-value."""
    scales, weights = _possible_scales(found)
    if not scales.any():
        return 0.0 if found.value else 1.0  # no noise at all
    with np.errstate(divide="ignore"):
        return float(weights @ _range_tail(abs(found.value) / scales, among))


def half_width(found: Difference, level: float) -> float:
    """Of the interval with that level: by bisection, the difference whose p-value is 1 − level."""
    low, high = 0.0, math.sqrt(found.repeated + found.rows)
    if high == 0:
        return 0.0  # no noise at all
    while p_value(replace(found, value=high)) > 1 - level:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(replace(found, value=middle)) > 1 - level else (low, middle)
    return high


def _possible_scales(found: Difference) -> tuple[Floats, Floats]:
    """Standard deviations that the noise may have, and their probabilities."""
    (repeated, first), (rows, second) = (
        _possible_variances(found.repeated, found.repeated_degrees),
        _possible_variances(found.rows, found.rows_degrees),
    )
    return np.sqrt(repeated[:, None] + rows).ravel(), (first[:, None] * second).ravel()


def _possible_variances(variance: float, degrees: float) -> tuple[Floats, Floats]:
    """An estimate with these degrees of freedom is the variance times χ²/degrees: its values on a quadrature."""
    if variance == 0 or math.isinf(degrees):
        return np.array([variance]), np.ones(1)
    scales, weights = _chi_quadrature(degrees)
    return variance / scales**2, weights


@cache
def _chi_quadrature(degrees: float) -> tuple[Floats, Floats]:
    """√(χ²/degrees) and its probabilities."""
    reach = _REACH / math.sqrt(2 * degrees)
    low = max(0.0, 1 - reach)
    nodes, weights = np.polynomial.legendre.leggauss(_SCALES)
    scales = low + (nodes + 1) / 2 * (1 + reach - low)
    logs = (degrees - 1) * np.log(scales) - degrees * scales**2 / 2
    density = weights * np.exp(logs - logs.max())
    return scales, density / density.sum()


def _range_tail(deviations: Floats, among: int) -> Any:
    """The probability that a difference between the largest and the smallest of `among` standard normal means is beyond
    these deviations of a difference of two, which has the variance 2."""
    from scipy.special import ndtr

    if among == 2:
        return 2 * ndtr(-deviations)
    return np.exp(np.interp(math.sqrt(2) * deviations, _RANGES, _log_range_tail(among)))


@cache
def _log_range_tail(among: int) -> Floats:
    """P(range > q) = 1 − k ∫ φ(z) (Φ(z) − Φ(z − q))^(k−1) dz, on the grid of ranges. Where rounding leaves nothing, it
    is that of all pairs."""
    from scipy.special import ndtr

    nodes, weights = np.polynomial.legendre.leggauss(200)
    z = _REACH * nodes
    density = among * weights * _REACH * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    inside = (ndtr(z) - ndtr(z - _RANGES[:, None])) ** (among - 1) @ density
    pairs = among * (among - 1) * ndtr(-_RANGES / math.sqrt(2))
    tail: Floats = np.log(np.maximum(np.where(inside < 1 - 1e-9, 1 - inside, pairs), 1e-300))
    return tail
