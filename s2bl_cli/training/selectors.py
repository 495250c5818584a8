"""Estimates of a policy's expected reward on held_out-out known rows, to select by. Higher is better.

They are numpy on a few numbers per row; `s2bl evaluate` has the same estimators with intervals.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_DELTA = 0.05

Floats = npt.NDArray[np.floating[Any]]


class HeldOut(NamedTuple):
    """What is known of one policy on the rows held out: all (rows,)."""

    weight: Floats  # π(a|x)/max(ν, p)
    cost: Floats
    model_value: Floats  # Σ_a π(a|x) q̂(x, a), the cost that a model expects of the policy; NaN without a model
    model_logged: Floats  # q̂(x, a) of the logged action; NaN without a model


@dataclass(frozen=True)
class Selector:
    """An estimate, and what it needs."""

    estimate: Callable[[HeldOut], float]
    needs_model: bool = False
    largest_cost: float = math.inf  # costs above it are refused

    def __call__(self, held_out: HeldOut | None) -> float:
        """Where nothing is held out, nothing is worse."""
        return self.estimate(held_out) if held_out is not None and len(held_out.cost) else -math.inf


def snips(held_out: HeldOut) -> float:
    """−Σ cw/Σ w. A policy that gives the held_out-out actions no weight at all is the worst."""
    total = float(held_out.weight.sum())
    return -float((held_out.cost * held_out.weight).sum()) / total if total > 0 else -math.inf


def ips(held_out: HeldOut) -> float:
    """−mean cw."""
    return -float((held_out.cost * held_out.weight).mean())


def dr(held_out: HeldOut) -> float:
    """−mean(q̂(x, π) + w(c − q̂(x, a)))."""
    return -float((held_out.model_value + held_out.weight * (held_out.cost - held_out.model_logged)).mean())


def ls_bound(held_out: HeldOut) -> float:
    """The 95 % lower bound (exp(λV − ln(1/δ)/n) − 1)/λ of the logarithmic smoothing V, λ = 1/√n; costs ≤ 0."""
    rows = len(held_out.cost)
    lam = 1 / math.sqrt(rows)
    value = float(np.log1p(lam * held_out.weight * np.maximum(-held_out.cost, 0)).mean()) / lam
    return (math.exp(lam * value - math.log(1 / _DELTA) / rows) - 1) / lam


SNIPS = Selector(snips)
IPS = Selector(ips)
DR = Selector(dr, needs_model=True)
LS_BOUND = Selector(ls_bound, largest_cost=0.0)
