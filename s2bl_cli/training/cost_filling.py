"""What to expect of missing feedback: rewards in [0, 1] for every row, from models fitted on the known rows.

A reward is the cost turned round and scaled by the range of the known costs: 1 for the lowest, 0 for the highest.
The rewards serve `pseudo` as costs and `cce` as merits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.logs.reading import LogArrays
from s2bl_cli.cost_models.cost_model import fit_cost_model
from s2bl_cli.cost_models.settings import CostModelSettings
from s2bl_cli.training.calibration import calibrate
from s2bl_cli.training.groups import Group, TrainRows
from s2bl_cli.training.log_facts import LogFacts
from s2bl_cli.training.rows import Filling

Floats = npt.NDArray[np.floating[Any]]
Expected = Callable[[LogArrays], Floats]  # rows → rewards in [0, 1]: (rows,)


@dataclass(frozen=True)
class Filler:
    """Fills in rows, part by part."""

    groups: Sequence[Group]
    expected: Sequence[Expected]  # one a group
    mean_reward: Sequence[float]  # of the known rows that the group learns from
    lowest_cost: float
    highest_cost: float

    def fill(self, train_rows: TrainRows, *, costs: bool, merits: bool) -> Filling:
        """For all rows of the part: known rewards where the group may see them, else expected ones."""
        part, number = train_rows
        known_reward = self._reward(part.cost)
        rewards = np.stack(
            [
                np.where(group.learns_from(part, number), known_reward, np.clip(expected(part), 0, 1))
                for group, expected in zip(self.groups, self.expected, strict=True)
            ]
        )  # (G, rows)
        mean = np.asarray(self.mean_reward)[:, None]
        merit = np.divide(np.maximum(rewards - mean, 0), mean, out=np.zeros(rewards.shape), where=mean > 0)
        cost = self.highest_cost - rewards * (self.highest_cost - self.lowest_cost)
        return Filling(cost.astype(np.float32) if costs else None, merit.astype(np.float32) if merits else None)

    def _reward(self, cost: Floats) -> Floats:
        spread = self.highest_cost - self.lowest_cost
        return (self.highest_cost - cost) / spread if spread > 0 else np.zeros(len(cost))


def filler_of(
    model: Callable[..., Expected], facts: LogFacts, groups: Sequence[Group], known: TrainRows, **needs: Any
) -> Filler:
    """Fit the model for each group on the known rows that it learns from."""
    low, high = facts.lowest_cost, facts.highest_cost
    if low == high == -1.0:
        high = 0.0  # every known action was right on the usual scale: a reward of 1, not of 0
    filler = Filler(groups, (), (), low, high)
    expected, means = [], []
    for group in groups:
        rows = known.rows.take(~group.holds_out(known.number))
        reward = filler._reward(rows.cost)
        expected.append(model(rows, reward, seed=group.seed, **needs))
        means.append(float(reward.mean()) if rows.rows else 0.0)
    return Filler(groups, expected, means, low, high)


def by_propensity(rows: LogArrays, reward: Floats, *, seed: int, actions: int, device: torch.device) -> Expected:
    """E[r | p]: a logging policy that knows its business is surer where it is right."""
    curve = calibrate(rows.propensity, reward, seed)
    return lambda part: curve(part.propensity)


def by_logistic(rows: LogArrays, reward: Floats, *, seed: int, actions: int, device: torch.device) -> Expected:
    """E[r | x, a], one logistic regression an action: the paper's cost model."""
    if rows.rows == 0 or reward.min() == reward.max():
        level = float(reward.mean()) if rows.rows else 0.0
        return lambda part: np.full(part.rows, level)
    model = fit_cost_model(rows.context, rows.action, reward, actions, CostModelSettings(seed=seed), device)
    return lambda part: model.predict(part.context)[np.arange(part.rows), part.action]
