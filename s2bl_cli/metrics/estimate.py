"""An estimate, with the influence of every row on it; the one standard error; the difference of two estimates.

Most estimates are functions g of means t̄ of terms over the rows. The influence of row i is ψᵢ = ∇g(t̄)·(tᵢ − t̄), the
delta method. The gradient is taken by a complex step, Im g(t̄ + iεe)/ε, which has no rounding error to speak of.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.metrics.sample import Floats

_STEP = 1e-30

Values = npt.NDArray[Any]  # (terms, …) real or complex


@dataclass(frozen=True)
class Terms:
    """What an estimator averages over the rows, and what it makes of the averages."""

    values: Floats  # (terms, n)
    # (terms, …) → (…); analytic, so that it can be differentiated
    of_means: Callable[[Values], Values] = lambda means: means[0]
    width: float | None = None  # of the interval that a mean's values lie in; None for what is no unbiased mean
    lower_bound: Callable[[float], float] | None = None  # δ → the estimator's own bound
    biased: bool = False  # so that an interval around the estimate would miss the value: only its own bound counts
    note: str | None = None

    @property
    def estimate(self) -> "Estimate":
        means = self.values.mean(axis=1)
        with np.errstate(all="ignore"):  # where the estimate is no number, neither is its influence
            value = float(self.of_means(means))
            moved = means[:, None] + 1j * _STEP * np.eye(len(means))  # (terms, terms)
            gradient = self.of_means(moved).imag / _STEP
            influence = gradient @ (self.values - means[:, None])  # (n,)
        return Estimate(value, len(influence), influence, self.note, terms=self)


@dataclass(frozen=True)
class Estimate:
    """A number, and how each row moved it."""

    value: float
    rows: int
    influence: Floats | None = None  # (rows,); None for a figure without a standard error
    note: str | None = None
    label: int | None = None  # the class that it is about, or the number of a histogram's bin
    terms: Terms | None = None  # to resample and to bound; None where normal intervals are all there is
    edges: tuple[float, float | None] | None = None  # of a histogram's bin

    @cached_property
    def stderr(self) -> float | None:
        return None if self.influence is None else standard_error(self.influence)


def mean_estimate(values: Floats, label: int | None = None, note: str | None = None) -> Estimate:
    mean = float(values.mean())
    return Estimate(mean, len(values), values - mean, note, label)


def standard_error(influence: Floats, cluster: npt.NDArray[Any] | None = None) -> float | None:
    """√(Σψ²/(n − 1)/n); None where it is unknown. Rows of one cluster (G numbers from 0) are not independent: their
    influences are summed first, √(G/(G − 1) Σ_g (Σ_{i in g} ψᵢ)²)/n, which is the same where each row is its own."""
    sums = influence if cluster is None else np.bincount(cluster, influence)
    if len(sums) < 2:
        return None
    error = math.sqrt(float(sums @ sums) * len(sums) / (len(sums) - 1)) / len(influence)
    return error if math.isfinite(error) else None


def difference(first: Estimate, second: Estimate) -> Estimate:
    """first − second, of two estimates on the same rows, whose errors are paired: what both owe to a row cancels."""
    if first.influence is None or second.influence is None:
        return Estimate(first.value - second.value, first.rows)
    if first.rows != second.rows:
        raise ValueError(f"estimates on {first.rows} and {second.rows} rows are not paired")
    return Estimate(first.value - second.value, first.rows, first.influence - second.influence)
