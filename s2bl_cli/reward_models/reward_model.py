"""A model of the expected reward E[r | x, a] of every action.

    model = fit_reward_model(context, action, reward, actions=10)
    model.predict(context)            # (rows, actions) expected rewards

    fold = assign_folds(known, folds=5, seed=0)
    models = cross_fit(context[known], action[known], reward[known], fold[known], actions=10)
    models.predict(context, fold)     # each row by the model that has not learned from it

Costs are scaled from their range to [0, 1] and fitted by `action_logits`. So predictions lie inside the range of
the known rewards. Arrays in, arrays out; torch computes on the device that is given.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.policies.context_tensor import Contexts, context_tensor
from s2bl_cli.reward_models.action_logits import NO_FOLD, ActionLogits, fit_action_logits
from s2bl_cli.reward_models.settings import RewardModelSettings

CPU = torch.device("cpu")

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class RewardModel:
    """Expected rewards of all actions; of one model, or of one per fold."""

    logits: ActionLogits
    low: float  # the smallest known reward
    high: float  # the largest
    device: torch.device

    def predict(self, context: Contexts, fold: Ints | None = None) -> npt.NDArray[np.float32]:
        """(rows, actions) rewards. With folds, each row by the model that skipped the row's fold."""
        x = context_tensor(context, self.device)
        if fold is None or self.logits.folds == 1:
            return self._rewards(x, 0)
        order = np.argsort(fold, kind="stable")
        ends = np.searchsorted(fold[order], np.arange(self.logits.folds + 1))
        x = x[torch.from_numpy(order).to(self.device)]
        parts = [self._rewards(x[ends[j] : ends[j + 1]], j) for j in range(self.logits.folds)]
        sorted_rewards = np.concatenate(parts)
        rewards = np.empty_like(sorted_rewards)
        rewards[order] = sorted_rewards
        return rewards

    def _rewards(self, x: torch.Tensor, fold: int) -> npt.NDArray[np.float32]:
        scaled: npt.NDArray[np.float32] = self.logits.probabilities(x, fold).cpu().numpy()
        scaled *= np.float32(self.high - self.low)
        scaled += np.float32(self.low)
        return scaled


def fit_reward_model(
    context: npt.NDArray[np.generic],
    action: Ints,
    reward: Floats,
    actions: int,
    settings: RewardModelSettings | None = None,
    device: torch.device = CPU,
) -> RewardModel:
    """One model, learned from all of the rows (whose rewards are known)."""
    return cross_fit(context, action, reward, np.full(len(action), NO_FOLD), actions, settings, device, folds=1)


def cross_fit(
    context: npt.NDArray[np.generic],
    action: Ints,
    reward: Floats,
    fold: Ints,
    actions: int,
    settings: RewardModelSettings | None = None,
    device: torch.device = CPU,
    *,
    folds: int | None = None,
) -> RewardModel:
    """One model per fold, each learned from the rows of the other folds."""
    settings = settings or RewardModelSettings()
    low, high = float(np.min(reward)), float(np.max(reward))
    scaled = (np.asarray(reward, np.float64) - low) / (high - low) if high > low else np.zeros(len(reward))
    logits = fit_action_logits(
        context, action, scaled, fold, actions, settings.folds if folds is None else folds, settings, device
    )
    return RewardModel(logits, low, high, device)


def assign_folds(known: npt.NDArray[np.bool_], folds: int, seed: int) -> npt.NDArray[np.int32]:
    """A fold for every row, known rows and missing ones each spread evenly; the same for the same seed."""
    fold = np.empty(len(known), np.int32)
    rng = np.random.default_rng([seed, 0])
    for rows in (np.flatnonzero(known), np.flatnonzero(~known)):
        fold[rng.permutation(rows)] = np.arange(len(rows)) % folds
    return fold
