"""Terms of the objective: what a risk or a regulariser declares, and what it is on a batch.

A declaration has its formula as text and as code, its hyperparameters and what it needs. Settings, checks, help,
`s2bl methods` and the docs read from there. Importing this module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.objectives.hyperparameters import Hyperparameter, Values

if TYPE_CHECKING:
    from torch import Tensor

    from s2bl_cli.objectives.batches import AnyBatch, KnownBatch

Numbers = SimpleNamespace  # hyperparameters in a formula: h.nu is a number, or a tensor (…, 1) of one per policy
Seen = tuple[str, int]  # "log_pi", "log_policy" or "distance", and the first of the step's rows that it is of
Floats = npt.NDArray[np.float64]
MeanOfPropensities = Callable[[Callable[[Floats], Floats]], float]  # f ↦ mean of f(p) over the regularised rows

# What a term can need. A term that needs neither log_pi nor log_policy sees no rows.
LOG_PI, LOG_POLICY, PI0, PRIOR = "log_pi", "log_policy", "pi0", "prior"
FILLED_COSTS, REWARD_WEIGHT = "filled_costs", "reward_weight"


class Term:
    """A risk or a regulariser on a batch: its value, and its slope in what it sees of the policies.

    The value is a mean over rows, taken when it is asked for: a step needs the slope alone.
    """

    __slots__ = ("_value", "slope", "terms")

    def __init__(
        self, terms: Tensor | None, slope: dict[Seen, Tensor], value: Callable[[], Tensor | float] | None = None
    ) -> None:
        self.terms = terms  # (…, rows) whose mean is the value; None where it is made of other terms
        self.slope = slope  # log_pi: (…, rows), log_policy: (…, rows, actions), distance: (…)
        self._value = value

    @property
    def value(self) -> Tensor | float:
        """(…)"""
        if self._value is not None:
            return self._value()
        return 0.0 if self.terms is None else self.terms.mean(-1)

    def __add__(self, other: Term) -> Term:
        slope = dict(self.slope)
        for seen, tensor in other.slope.items():
            slope[seen] = slope[seen] + tensor if seen in slope else tensor
        return Term(None, slope, lambda: self.value + other.value)

    def __rmul__(self, factor: float | Tensor) -> Term:
        """`factor`: a number, or a tensor (…) of one per policy."""
        if isinstance(factor, int | float):
            slope = {seen: factor * tensor for seen, tensor in self.slope.items()}
        else:
            slope = {s: factor.reshape(factor.shape + (1,) * (t.ndim - factor.ndim)) * t for s, t in self.slope.items()}
        return Term(None, slope, lambda: factor * self.value)


NOTHING = Term(None, {})


def by_autograd(formula: Callable[[Any, Numbers], Tensor]) -> Callable[[Any, Numbers], Term]:
    """A term from its formula alone, which gives the values (…). Slower than a slope that is written out."""

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


@dataclass(frozen=True)
class Risk:
    """An estimate of the risk from the rows with feedback."""

    text: str  # the formula, as `s2bl methods` prints it
    formula: Callable[[KnownBatch, Numbers], Term]
    hyperparameters: tuple[Hyperparameter, ...] = ()
    needs: tuple[str, ...] = (LOG_PI,)
    largest_cost: float = math.inf  # costs above it are refused
    cost_model: str | None = None  # what fills in missing costs by default


@dataclass(frozen=True)
class Regulariser:
    """A term that needs no feedback. It sees no cost."""

    text: str
    formula: Callable[[AnyBatch, Numbers], Term]
    default_lam: float
    hyperparameters: tuple[Hyperparameter, ...] = ()
    needs: tuple[str, ...] = (LOG_PI,)
    default_rows: str = "all"
    cost_model: str | None = None  # what reward weights are computed from by default
    exact: Regulariser | None = None  # the form that uses the whole π₀(·|x)
    derive: Callable[[Values, MeanOfPropensities], Mapping[str, float]] | None = None  # numbers more, known in advance
