"""A model of the expected cost E[c | x, a] of every action.

    model = fit_cost_model(context, action, cost, actions=10)
    model.predict(context)            # (rows, actions) expected costs

    fold = assign_folds(known, folds=5, seed=0)
    models = cross_fit(context[known], action[known], cost[known], fold[known], actions=10)
    models.predict(context, fold)     # each row by the model that has not learned from it

Costs are scaled from their range to [0, 1] and fitted by `action_logits`. So predictions lie inside the range of
the known costs. Arrays in, arrays out; torch computes on the device that is given.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.cost_models.action_logits import NO_FOLD, ActionLogits, fit_action_logits
from s2bl_cli.cost_models.settings import CostModelSettings
from s2bl_cli.policies.context_tensor import context_tensor

CPU = torch.device("cpu")

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class CostModel:
    """Expected costs of all actions; of one model, or of one a fold."""

    logits: ActionLogits
    low: float  # the smallest known cost
    high: float  # the largest
    device: torch.device

    def predict(self, context: npt.NDArray[np.generic], fold: Ints | None = None) -> npt.NDArray[np.float32]:
        """(rows, actions) costs. With folds, each row by the model that skipped the row's fold."""
        x = context_tensor(context, self.device)
        if fold is None or self.logits.folds == 1:
            return self._costs(x, 0)
        order = np.argsort(fold, kind="stable")
        ends = np.searchsorted(fold[order], np.arange(self.logits.folds + 1))
        x = x[torch.from_numpy(order).to(self.device)]
        parts = [self._costs(x[ends[j] : ends[j + 1]], j) for j in range(self.logits.folds)]
        sorted_costs = np.concatenate(parts)
        costs = np.empty_like(sorted_costs)
        costs[order] = sorted_costs
        return costs

    def _costs(self, x: torch.Tensor, fold: int) -> npt.NDArray[np.float32]:
        scaled: npt.NDArray[np.float32] = self.logits.probabilities(x, fold).cpu().numpy()
        scaled *= np.float32(self.high - self.low)
        scaled += np.float32(self.low)
        return scaled


def fit_cost_model(
    context: npt.NDArray[np.generic],
    action: Ints,
    cost: Floats,
    actions: int,
    settings: CostModelSettings | None = None,
    device: torch.device = CPU,
) -> CostModel:
    """One model, learned from all of the rows (whose costs are known)."""
    return cross_fit(context, action, cost, np.full(len(action), NO_FOLD), actions, settings, device, folds=1)


def cross_fit(
    context: npt.NDArray[np.generic],
    action: Ints,
    cost: Floats,
    fold: Ints,
    actions: int,
    settings: CostModelSettings | None = None,
    device: torch.device = CPU,
    *,
    folds: int | None = None,
) -> CostModel:
    """One model a fold, each learned from the rows of the other folds."""
    settings = settings or CostModelSettings()
    low, high = float(np.min(cost)), float(np.max(cost))
    scaled = (np.asarray(cost, np.float64) - low) / (high - low) if high > low else np.zeros(len(cost))
    logits = fit_action_logits(
        context, action, scaled, fold, actions, settings.folds if folds is None else folds, settings, device
    )
    return CostModel(logits, low, high, device)


def assign_folds(known: npt.NDArray[np.bool_], folds: int, seed: int) -> npt.NDArray[np.int32]:
    """A fold for every row, known rows and missing ones each spread evenly; the same for the same seed."""
    fold = np.empty(len(known), np.int32)
    rng = np.random.default_rng([seed, 0])
    for rows in (np.flatnonzero(known), np.flatnonzero(~known)):
        fold[rng.permutation(rows)] = np.arange(len(rows)) % folds
    return fold
