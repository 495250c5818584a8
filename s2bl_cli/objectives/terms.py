"""Terms of the objective: what a risk or a regulariser declares, what it sees of a batch, and its value there.

A declaration contains the formula as text and as code, its hyperparameters, and what it needs. Settings, checks, help,
`s2bl methods` and the docs are derived from it. Importing this module does not import torch.

The last axis of every tensor of a batch is the rows, or the rows followed by the actions. The axes before it are
policies that are trained together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from s2bl_cli.objectives.hyperparameters import Hyperparameter, Values

if TYPE_CHECKING:
    from torch import Tensor

Numbers = SimpleNamespace  # hyperparameters in a formula: h.nu is a number, or a tensor (…, 1) with one per policy
Seen = tuple[str, int]  # "log_pi", "log_policy" or "distance", and the step's first row that it covers
Floats = npt.NDArray[np.float64]
MeanOfPropensities = Callable[[Callable[[Floats], Floats]], float]  # f ↦ mean of f(p) over the regularised rows

# What a term can need. A term that needs neither log_pi nor log_policy sees no rows.
LOG_PI, LOG_POLICY, PI0, PRIOR = "log_pi", "log_policy", "pi0", "prior"
FILLED_COSTS, REWARD_WEIGHT, EXPECTED_COSTS = "filled_costs", "reward_weight", "expected_costs"


@dataclass(slots=True, eq=False)
class Term:
    """A risk or a regulariser on a batch: its terms, and its slope with respect to what it sees of the policies.

    The value is the mean of the terms. It is computed once per epoch (`training/loop.py`), because a step needs only
    the slope. A sum of terms has only a slope.
    """

    terms: Tensor | None  # (…, rows), their mean is the value; None for a sum of terms
    slope: dict[Seen, Tensor]  # log_pi: (…, rows), log_policy: (…, rows, actions), distance: (…)

    def __add__(self, other: Term) -> Term:
        slope = dict(self.slope)
        for seen, tensor in other.slope.items():
            slope[seen] = slope[seen] + tensor if seen in slope else tensor
        return Term(None, slope)

    def __rmul__(self, factor: float | Tensor) -> Term:
        """`factor`: a number, or a tensor (…) with one per policy."""
        if isinstance(factor, int | float):
            slope = {seen: factor * tensor for seen, tensor in self.slope.items()}
        else:
            slope = {s: factor.reshape(factor.shape + (1,) * (t.ndim - factor.ndim)) * t for s, t in self.slope.items()}
        return Term(None, slope)


NOTHING = Term(None, {})


def by_autograd(formula: Callable[[Any, Numbers], Tensor]) -> Callable[[Any, Numbers], Term]:
    """A term from a formula that returns only the values (…). Slower than a handwritten slope."""

    def term(batch: Any, h: Numbers) -> Term:
        import torch

        with torch.enable_grad():
            leaves = {
                name: value.detach().requires_grad_()
                for name in (LOG_PI, LOG_POLICY, "distance")
                if (value := getattr(batch, name, None)) is not None
            }
            value = formula(batch._replace(**leaves), h)
            slopes = torch.autograd.grad(value.sum(), list(leaves.values()), allow_unused=True)
        pairs = zip(leaves, slopes, strict=True)
        slope = {(name, batch.first): slope for name, slope in pairs if slope is not None}
        return Term(value.detach().unsqueeze(-1), slope)

    return term


class KnownBatch(NamedTuple):
    """Rows with feedback, drawn uniformly from S; or any rows, with a weight of 0 if there is no feedback. Rows in a
    part of a streamed log have the part's weight; with a model of missingness, each row has its own weight."""

    log_pi: Tensor  # (…, rows) log π_θ(aᵢ|xᵢ) of the logged action
    p: Tensor  # (…, rows) pᵢ, the logged propensity
    c: Tensor  # (…, rows) cᵢ, the cost
    weight: Tensor | None = None  # (…, rows) with mean 1 over the steps of an epoch; None: 1
    first: int = 0  # the step's first row that is in this batch
    expected_cost: Any = None  # (…, rows) ĉ(xᵢ, aᵢ) from a reward model; None if not needed

    def term(self, terms: Tensor, slope: Tensor) -> Term:
        """The mean over S of one term per row; `slope` is the derivative of each row's term with respect to its log
        π."""
        return _term(self, terms, slope)

    def mean(self, terms: Tensor) -> Tensor:
        """The unbiased estimate of the mean over S: (…)."""
        return _weighted(self, terms).mean(-1)


class AnyBatch(NamedTuple):
    """Rows with or without feedback, drawn uniformly from the regularised rows.

    Fields that the regulariser does not need (`Regulariser.needs`) are None.
    """

    log_pi: Tensor  # (…, rows) log π_θ(aᵢ|xᵢ) of the logged action
    p: Tensor  # (…, rows) pᵢ, the logged propensity
    action_weight: Tensor  # (…, rows) N/m_a for the row's action a, counted over the whole log
    reward_weight: Tensor  # (…, rows) with mean 1 over the log: how much better than usual the logged action is
    log_policy: Tensor  # (…, rows, actions) log π_θ(·|xᵢ)
    pi0: Tensor  # (…, rows, actions) π₀(·|xᵢ)
    distance: Tensor  # (…) ‖θ − θ₀‖²
    first: int = 0  # the step's first row that is in this batch
    weight: Tensor | None = None  # (…, rows) with mean 1 over the steps of an epoch; None: 1
    expected_costs: Any = None  # (…, rows, actions) ĉ(xᵢ, ·) from a reward model; None if not needed

    def term(self, terms: Tensor, slope: Tensor) -> Term:
        """The mean over the rows of one term per row; `slope` is the derivative of each row's term with respect to its
        log π."""
        return _term(self, terms, slope)

    def policy_term(self, terms: Tensor, slope: Tensor) -> Term:
        """Like `term`, with the slope with respect to log π(·|x): (…, rows, actions)."""
        rows = self.log_policy.shape[-2]
        slope = slope if self.weight is None else slope * self.weight.unsqueeze(-1)
        return Term(_weighted(self, terms), {(LOG_POLICY, self.first): slope.expand_as(self.log_policy) / rows})

    def mean(self, terms: Tensor) -> Tensor:
        """The unbiased estimate of the mean over the regularised rows: (…)."""
        return _weighted(self, terms).mean(-1)


def _term(batch: KnownBatch | AnyBatch, terms: Tensor, slope: Tensor) -> Term:
    slope = _weighted(batch, slope) / batch.log_pi.shape[-1]
    if slope.shape != batch.log_pi.shape:  # a term that does not depend on the policy is the same for all of them
        slope = slope.expand_as(batch.log_pi)
    return Term(_weighted(batch, terms), {(LOG_PI, batch.first): slope})


def _weighted(batch: KnownBatch | AnyBatch, terms: Tensor) -> Tensor:
    """Terms (…, rows) times the weights of the rows."""
    return terms if batch.weight is None else terms * batch.weight


@dataclass(frozen=True)
class Risk:
    """An estimate of the risk from the rows with feedback."""

    text: str  # the formula, as `s2bl methods` prints it
    formula: Callable[[KnownBatch, Numbers], Term]
    hyperparameters: tuple[Hyperparameter, ...] = ()
    needs: tuple[str, ...] = (LOG_PI,)
    largest_cost: float = math.inf  # larger costs are rejected
    cost_model: str | None = None  # default model for filling in missing costs


@dataclass(frozen=True)
class Regulariser:
    """A term that needs no feedback. It never sees a cost."""

    text: str
    formula: Callable[[AnyBatch, Numbers], Term]
    default_lam: float
    hyperparameters: tuple[Hyperparameter, ...] = ()
    needs: tuple[str, ...] = (LOG_PI,)
    default_rows: str = "all"
    cost_model: str | None = None  # default model for computing reward weights
    least_steps: int = 2000  # default minimum for a run
    exact: Regulariser | None = None  # the form that uses the whole π₀(·|x)
    # Additional numbers for the formula, known before the first step.
    derive: Callable[[Values, MeanOfPropensities], Mapping[str, float]] = lambda values, mean: {}

    @property
    def sees_rows(self) -> bool:
        return LOG_PI in self.needs or LOG_POLICY in self.needs


@dataclass(frozen=True)
class Objective:
    """R̂(π_θ, S) + λ·L̂(π_θ), with the current policies' hyperparameters. (`training/loop.py` adds the two terms.)"""

    declared_risk: Risk
    declared_regulariser: Regulariser
    lam: float | Tensor  # (…)
    h: Numbers

    def risk(self, batch: KnownBatch) -> Term:
        """A batch without rows contributes nothing: a part of a streamed log may have no feedback."""
        return self.declared_risk.formula(batch, self.h) if batch.log_pi.shape[-1] else NOTHING

    def regulariser(self, batch: AnyBatch) -> Term:
        contributes = batch.log_pi.shape[-1] > 0 or batch.distance is not None
        return self.declared_regulariser.formula(batch, self.h) if contributes else NOTHING
