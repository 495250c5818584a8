"""Regressions of the reward on the context: one map per action, one map shared by all actions, and scores.

    η(x, a) = θ_a·x + h·x + c + s·f(x, a),    x with a constant 1 as its last feature

f(x, a) are given scores of the actions, such as the log-probability of the logging policy. θ and h have the ridge
penalty α, c has none, and s has almost none, unless the scores are switched off. With few rows θ vanishes and the
scores decide between actions; with many rows θ does. The reward is η (squared loss), or 1/(1 + exp(−η)) (logistic loss,
for rewards in [0, 1]).

Many regressions on the same rows are fitted at once (`newton.py`). They differ in their penalties and row weights; a
row that a regression must not see has weight 0. There is no learning rate and no seed.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.reward_models.newton import Limits, minimise

_SCORE_PENALTY = 1e-3  # of s: negligible, unless the scores hardly differ
_SWITCHED_OFF = 1e12  # a penalty of s that forces it to 0
_AXES_ROWS = 4  # times the number of features: more rows do not improve the axes


@dataclass(frozen=True)
class OwnAxes:
    """The rows of an action on their own principal axes, if there are fewer rows than features."""

    x: Tensor  # (rows, axes)
    axes: Tensor  # (features with the constant, axes)


@dataclass(frozen=True)
class RegressionRows:
    """Rows sorted by action, so that the rows of an action are a slice.

    Features are rotated to the principal axes of the rows, and θ_a of an action with few rows to the axes of these. A
    ridge penalty does not depend on the axes. But on these axes the curvature is nearly diagonal, so conjugate
    gradients need few steps; and an action has no more parameters than rows. Rotated parameters are columns
    (parameters, regressions): θ of the actions that have rows, then h and c, then s."""

    x: Tensor  # (rows, axes + 1), the last feature is constant
    axes: Tensor  # (features, axes)
    scores: Tensor  # (rows, scores) of the logged actions
    slices: tuple[tuple[int, slice], ...]  # by logged action
    own: tuple[OwnAxes | None, ...]  # for each of these actions; None: θ_a is on the axes of x
    actions: int
    order: npt.NDArray[np.int64]  # the original order: row i was `order[i]`

    def in_single_precision(self) -> "RegressionRows":
        """Twice as fast."""
        own = tuple(None if part is None else replace(part, x=part.x.to(torch.float32)) for part in self.own)
        return replace(self, x=self.x.to(torch.float32), scores=self.scores.to(torch.float32), own=own)

    @cached_property
    def _blocks(self) -> list[tuple[slice, slice, Tensor]]:
        """For each action: its rows, its parameters, and its features (rows, parameters)."""
        features = [
            self.x[rows] if part is None else part.x for (_, rows), part in zip(self.slices, self.own, strict=True)
        ]
        ends = np.cumsum([x.shape[1] for x in features]).tolist()
        return [
            (rows, slice(end - x.shape[1], end), x)
            for (_, rows), end, x in zip(self.slices, ends, features, strict=True)
        ]

    @cached_property
    def rotated_sizes(self) -> list[int]:
        """Numbers of rotated parameters: θ, h with c, s."""
        return [sum(x.shape[1] for _, _, x in self._blocks), self.x.shape[1], self.scores.shape[1]]

    @property
    def sizes(self) -> list[int]:
        """Numbers of parameters: θ of all actions, h with c, s."""
        features = len(self.axes) + 1
        return [self.actions * features, features, self.scores.shape[1]]

    def predict(self, parameters: Tensor) -> Tensor:
        """η of the logged actions: (rows, regressions)."""
        theta, shared, slope = torch.split(parameters, self.rotated_sizes)
        eta = torch.addmm(self.scores @ slope, self.x, shared)
        for rows, of_action, x in self._blocks:
            eta[rows].addmm_(x, theta[of_action])
        return eta

    def transposed(self, errors: Tensor) -> Tensor:
        """The transpose of `predict`: (rows, regressions) → (parameters, regressions)."""
        of_theta, of_shared, of_scores = self.rotated_sizes
        parameters = errors.new_empty(of_theta + of_shared + of_scores, errors.shape[1])
        for rows, of_action, x in self._blocks:
            torch.mm(x.T, errors[rows], out=parameters[of_action])
        torch.mm(self.x.T, errors, out=parameters[of_theta : of_theta + of_shared])
        torch.mm(self.scores.T, errors, out=parameters[of_theta + of_shared :])
        return parameters

    def curved(self, parameters: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
        eta = self.predict(parameters)
        return eta, self.transposed(curvature * eta)

    def diagonal(self, curvature: Tensor) -> Tensor:
        """Squares the features of one action at a time, to save memory."""
        of_theta, of_shared, _ = self.rotated_sizes
        diagonal = curvature.new_zeros(sum(self.rotated_sizes), curvature.shape[1])
        shared = diagonal[of_theta : of_theta + of_shared]
        for (rows, of_action, _), part in zip(self._blocks, self.own, strict=True):
            squared = self.x[rows].square()
            shared.addmm_(squared.T, curvature[rows])
            own = squared if part is None else part.x.square()
            torch.mm(own.T, curvature[rows], out=diagonal[of_action])
        torch.mm(self.scores.square().T, curvature, out=diagonal[of_theta + of_shared :])
        return diagonal

    def by_feature(self, parameters: Tensor) -> Tensor:
        """The parameters for the features as they were given (`sizes`). An action without rows has θ_a = 0."""
        theta, shared, slope = torch.split(parameters, self.rotated_sizes)
        whole = parameters.new_zeros(self.actions, len(self.axes) + 1, parameters.shape[1])
        for (action, _), (_, of_action, _), part in zip(self.slices, self._blocks, self.own, strict=True):
            own = theta[of_action]
            whole[action] = self._unrotated(own) if part is None else part.axes.to(own) @ own
        return torch.cat([whole.flatten(0, 1), self._unrotated(shared), slope])

    def _unrotated(self, parameters: Tensor) -> Tensor:
        return torch.cat([self.axes.to(parameters) @ parameters[:-1], parameters[-1:]])


def regression_rows(
    features: Tensor,
    scores: Tensor,
    action: npt.NDArray[np.integer],
    actions: int,
    axes: Tensor | None = None,
) -> RegressionRows:
    """Rows from features (rows, features) and the scores of the logged actions (rows, scores), in double precision.
    `axes`: those of a larger set of rows (`principal_axes`), which fit these rows as well."""
    axes = principal_axes(features) if axes is None else axes
    order = np.argsort(action, kind="stable")
    index = torch.from_numpy(order).to(features.device)
    counts = np.bincount(action, minlength=actions)
    ends = np.cumsum(counts)
    slices = tuple((int(a), slice(int(ends[a] - counts[a]), int(ends[a]))) for a in np.flatnonzero(counts))
    x = axes.new_ones(len(order), axes.shape[1] + 1)
    own: list[OwnAxes | None] = []
    for _, rows in slices:
        given = features[index[rows]].to(torch.float64)
        torch.mm(given, axes, out=x[rows, :-1])
        own.append(_own_axes(given) if len(given) <= given.shape[1] else None)
    return RegressionRows(x, axes, scores[index].to(torch.float64), slices, tuple(own), actions, order)


def principal_axes(features: Tensor) -> Tensor:
    """Of the rows (rows, features), in double precision."""
    some = features[:: max(1, len(features) // (_AXES_ROWS * max(1, features.shape[1])))]
    return _principal_axes(some.to(torch.float64))


def _own_axes(features: Tensor) -> OwnAxes:
    x = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
    axes = _principal_axes(x)
    return OwnAxes(x @ axes, axes)


def _principal_axes(x: Tensor) -> Tensor:
    """Orthonormal columns that span the rows: (features, axes)."""
    if len(x) >= x.shape[1]:
        axes: Tensor = torch.linalg.eigh(x.T @ x).eigenvectors
    else:
        q, r = torch.linalg.qr(x.T)
        axes = q @ torch.linalg.eigh(r @ r.T).eigenvectors
    return axes


@torch.no_grad()
def fit_regressions(
    rows: RegressionRows,
    reward: Tensor,
    weight: Tensor,
    penalty: Tensor,
    *,
    logistic: bool,
    with_scores: Tensor | None = None,
    tolerance: float = 1e-4,
) -> Tensor:
    """The parameters (parameters, regressions): θ of all actions, then h and c, then s. `reward` (rows,) and `weight`
    (rows, regressions) are in the order of `rows`; `penalty` α and `with_scores` are (regressions,). Converged when the
    norm of the gradient is at most the tolerance times its norm at the mean reward."""
    return rows.by_feature(_fitted(rows, reward, weight, penalty, logistic, with_scores, tolerance))


@torch.no_grad()
def predict_logged(
    rows: RegressionRows,
    reward: Tensor,
    weight: Tensor,
    penalty: Tensor,
    *,
    logistic: bool,
    with_scores: Tensor | None = None,
    tolerance: float = 1e-4,
) -> Tensor:
    """η of the logged actions, (rows, regressions), under the regressions of `fit_regressions`. Needs less memory than
    their parameters, if there are many actions."""
    return rows.predict(_fitted(rows, reward, weight, penalty, logistic, with_scores, tolerance))


def _fitted(
    rows: RegressionRows,
    reward: Tensor,
    weight: Tensor,
    penalty: Tensor,
    logistic: bool,
    with_scores: Tensor | None,
    tolerance: float,
) -> Tensor:
    """The rotated parameters."""
    of_theta, of_shared, of_scores = rows.rotated_sizes
    ridge = penalty.repeat(of_theta + of_shared + of_scores, 1)
    ridge[of_theta + of_shared - 1] = 0  # c
    ridge[of_theta + of_shared :] = _SCORE_PENALTY
    if with_scores is not None:
        ridge[of_theta + of_shared :, ~with_scores] = _SWITCHED_OFF
    mean = (weight * reward[:, None]).sum(0) / weight.sum(0)
    start = torch.zeros_like(ridge)
    start[of_theta + of_shared - 1] = mean.clamp(1e-6, 1 - 1e-6).logit() if logistic else mean
    limits = Limits(tolerance=tolerance)
    return minimise(rows, reward[:, None], weight, ridge, start, logistic=logistic, limits=limits)[0]
