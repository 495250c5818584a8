"""What an estimator is: per-row terms, and the estimate as a function of their means.

Values are expected rewards, r = −c. The vocabulary of the formulas:

    r    reward of the logged action             w    π(a|x)/p, the importance weight
    p    propensity of the logged action         q    q̂(x,a), the reward that a model expects of the logged action
    π    π(a|x) of the logged action             f    q̂(x,π) = Σ_a π(a|x) q̂(x,a)

Standard errors, intervals and the bootstrap all follow from `Terms`, so an estimator's file holds its mathematics only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Values = npt.NDArray[Any]  # (terms, …) real or complex


@dataclass(frozen=True)
class KnownRows:
    """The rows with feedback, as one policy sees them. All arrays are float64 of one length n.

    An estimator's parameters are taken from the rows `tuned_on`, so that the terms of these rows and of those can be
    compared: terms at two values of a parameter are not of one size.
    """

    r: Floats
    p: Floats
    pi: Floats
    q: Floats | None  # None where there is no reward model
    f: Floats | None
    nu: float  # truncation ν
    tuned_on: "KnownRows | None" = None  # None: these

    @property
    def tuning(self) -> "KnownRows":
        return self.tuned_on or self

    @property
    def n(self) -> int:
        return len(self.r)

    @property
    def w(self) -> Floats:
        return self.pi / self.p

    @property
    def model(self) -> tuple[Floats, Floats]:
        """q and f, for estimators that need a reward model."""
        assert self.q is not None
        assert self.f is not None
        return self.q, self.f

    @property
    def reward_span(self) -> float:
        """Largest less smallest reward, 0 counted among them: w·r is 0 where π is."""
        return max(0.0, float(self.r.max())) - min(0.0, float(self.r.min()))

    @property
    def largest_weight(self) -> float:
        """That any policy could have in these rows: π ≤ 1."""
        return 1 / float(self.p.min())


def _first(means: Values) -> Values:
    first: Values = means[0]
    return first


@dataclass(frozen=True)
class Terms:
    """What an estimator averages over the rows, and what it makes of the averages."""

    values: Floats  # (terms, n)
    of_means: Callable[[Values], Values] = _first  # (terms, …) → (…); analytic, so that it can be differentiated
    width: float | None = None  # of the interval that a mean's values lie in; None for what is no unbiased mean
    lower_bound: Callable[[float], float] | None = None  # δ → the estimator's own bound
    biased: bool = False  # so that an interval around the estimate would miss the value: only its own bound counts
    note: str | None = None

    @property
    def estimate(self) -> float:
        with np.errstate(all="ignore"):
            return float(self.of_means(self.values.mean(axis=1)))


@dataclass(frozen=True)
class Estimator:
    """`terms(rows)` is None where the estimator is not defined on the rows (its docstring's domain)."""

    name: str
    terms: Callable[[KnownRows], Terms | None]
    needs_model: bool = False
