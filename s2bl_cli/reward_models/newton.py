"""Penalised regressions with squared or logistic loss, fitted by Newton's method.

    minimise over m_j   Σ_i w_ij·ℓ(η_ij, r_i) + Σ (ridge_j·m_j²)/2,    η_j = J m_j

The linear system of a step is solved by conjugate gradients. Many regressions on the same rows are fitted at once: they
share J and the rewards, and differ in their row weights w, ridges and parameters. A row of weight 0 is not seen.

The regressions are axis 1 of every tensor. What the other axes of parameters m and rows are is up to the design, which
multiplies by J and its transpose. A regression that has converged is frozen. Its number of steps therefore depends on
nothing but itself, and the rewards that one fold must not see do not reach it through the other folds.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

_CG_TOLERANCE = 0.1  # of the residual relative to the right side: the next Newton step continues from there
_HALVINGS = 10  # of a step that raises the loss


class Design(Protocol):
    """The matrix J of a regression."""

    def predict(self, parameters: Tensor) -> Tensor:
        """J·parameters: η of all rows."""

    def transposed(self, errors: Tensor) -> Tensor:
        """Jᵀ·errors."""

    def curved(self, parameters: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
        """η = J·parameters, and Jᵀ·(curvature·η)."""

    def diagonal(self, curvature: Tensor) -> Tensor:
        """Roughly the diagonal of Jᵀ diag(curvature) J, as a preconditioner."""


@dataclass(frozen=True)
class Limits:
    """When to stop."""

    newton_steps: int = 20
    gradient_steps: int = 25  # conjugate gradients per Newton step
    tolerance: float = 1e-4  # of the norm of the gradient, relative to its norm at the start


@torch.no_grad()
def minimise(
    design: Design,
    reward: Tensor,
    weight: Tensor,
    ridge: Tensor,
    start: Tensor,
    *,
    logistic: bool,
    limits: Limits,
) -> tuple[Tensor, Tensor]:
    """The parameters and their η. `reward`: one column for all regressions; `weight`: of rows; `ridge` and `start`: of
    parameters."""

    def loss(parameters: Tensor, eta: Tensor) -> Tensor:
        by_row = softplus(eta) - reward * eta if logistic else (eta - reward) ** 2 / 2
        return _by_regression(weight * by_row) + _by_regression(ridge * parameters**2) / 2

    parameters, eta = start, design.predict(start)
    before, first = loss(parameters, eta), None
    for _ in range(limits.newton_steps):
        expected = eta.sigmoid() if logistic else eta
        downhill = design.transposed(weight * (reward - expected)) - ridge * parameters
        norm = _by_regression(downhill**2).sqrt()
        first = norm if first is None else first
        is_far = norm > limits.tolerance * first
        if not bool(is_far.any()):
            break
        curvature = weight * expected * (1 - expected) if logistic else weight
        step, change = _solve(design, curvature, ridge, downhill, is_far, limits.gradient_steps)
        length = is_far.to(eta.dtype)
        for _ in range(_HALVINGS):
            after = loss(parameters + _wide(length, step) * step, eta + _wide(length, eta) * change)
            is_higher = after > before
            if not bool(is_higher.any()):
                break
            length = torch.where(is_higher, length / 2, length)
        parameters = parameters + _wide(length, step) * step
        eta = eta + _wide(length, eta) * change
        before = after
    return parameters, eta


def _solve(
    design: Design, curvature: Tensor, ridge: Tensor, right: Tensor, is_far: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """The m that solve (Jᵀ diag(curvature) J + ridge)·m = right, and J·m, of the regressions that are far from their
    optimum."""
    tiny = torch.finfo(right.dtype).tiny  # replaces 0 in a denominator
    inverse = 1 / (design.diagonal(curvature) + ridge).clamp(min=1e-12)
    solution, eta = torch.zeros_like(right), torch.zeros_like(curvature)
    residual, direction = right, inverse * right
    size = _by_regression(residual * direction)
    enough = _CG_TOLERANCE**2 * size
    for _ in range(steps):
        unsolved = is_far & (size > enough)
        if not bool(unsolved.any()):
            break
        along, product = design.curved(direction, curvature)
        product = product + ridge * direction
        factor = (size / _by_regression(direction * product).clamp(min=tiny)).where(unsolved, 0.0)
        solution = solution + _wide(factor, direction) * direction
        eta = eta + _wide(factor, along) * along
        residual = residual - _wide(factor, product) * product
        scaled = inverse * residual
        smaller = _by_regression(residual * scaled)
        direction = scaled + _wide(smaller / size.clamp(min=tiny), direction) * direction
        size = smaller
    return solution, eta


def _by_regression(values: Tensor) -> Tensor:
    return values.sum(tuple(axis for axis in range(values.dim()) if axis != 1))


def _wide(of_regression: Tensor, like: Tensor) -> Tensor:
    """One number per regression, to be multiplied with a tensor that has them on axis 1."""
    return of_regression.view(1, -1, *(1,) * (like.dim() - 2))
