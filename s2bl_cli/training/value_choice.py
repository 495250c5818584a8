"""The choice among reward models: by the value of acting on them first, and by their losses where values agree.

A reward model can predict the logged actions well and still rank the other actions badly. On an adverse log, for
example, the best actions are hardly ever logged. So the value of taking each model's best action decides first. It is
estimated on rows that the model was not trained on:

    mean of q̂(x, â) + 1[a = â]/max(ν, p)·(r − q̂(x, a)),   â the model's best action

This is the doubly robust estimate. q̂ is the model with the smallest loss, the same for all models. Values are noisy, so
all models within one standard error of the best value count as equally good. The error is that of the paired difference
to the best model. Among these models, the one with the smallest loss is chosen.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_NU = 0.001  # truncation of propensities
_NEAR = 1.0  # standard errors

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class LoggedRows(NamedTuple):
    """Rows with feedback."""

    action: Ints  # (rows,)
    propensity: Floats
    reward: Floats
    weight: Floats  # 1/P(known | x, a), with a mean of 1

    def take(self, rows: npt.NDArray[np.bool_]) -> "LoggedRows":
        return LoggedRows._make(column[rows] for column in self)

    def scores(self, best: Ints, expected: Floats, expected_logged: Floats) -> Floats:
        """The terms of the doubly robust value of the policy that takes the actions `best`: (rows,). `expected`: the
        expected rewards of these actions, `expected_logged`: of the logged ones."""
        importance = (best == self.action) / np.maximum(self.propensity, _NU)
        scores: Floats = expected + importance * (self.reward - expected_logged)
        return scores


class Predicted(NamedTuple):
    """What a reward model predicts for rows that it was not trained on."""

    best: Ints  # (rows,) the action with the highest expected reward
    loss: Floats  # (rows,) of the logged action

    def take(self, rows: npt.NDArray[np.bool_]) -> "Predicted":
        return Predicted._make(column[rows] for column in self)


def near_the_best(models: Sequence[Predicted], expected: Floats, rows: LoggedRows) -> list[int]:
    """The models whose values are not clearly below the best one. `expected`: (rows, actions), the expected rewards
    under the model with the smallest loss."""
    index = np.arange(len(rows.action))
    logged = expected[index, rows.action]
    scores = [rows.weight * rows.scores(model.best, expected[index, model.best], logged) for model in models]
    best = max(scores, key=lambda values: values.mean())
    return [number for number, values in enumerate(scores) if not is_clear(best - values, _NEAR)]


def is_clear(differences: Floats, errors: float = 1.0) -> bool:
    """Whether the mean of paired differences is above 0 by more than so many standard errors."""
    return bool(differences.mean() > errors * differences.std() / np.sqrt(len(differences)))
