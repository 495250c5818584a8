"""What to expect of missing feedback: rewards in [0, 1] for every row, from models fitted on the known rows.

A reward is the cost turned round and scaled by the range of the known costs: 1 for the lowest, 0 for the highest.
The rewards serve `pseudo` as costs and `cce` as merits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.logs.reading import LogArrays
from s2bl_cli.cost_models.cost_model import assign_folds, cross_fit, fit_cost_model
from s2bl_cli.cost_models.settings import CostModelSettings
from s2bl_cli.training.calibration import calibrate, trust_in
from s2bl_cli.training.groups import Group, TrainRows
from s2bl_cli.training.log_facts import LogFacts
from s2bl_cli.training.rows import Filling

_LARGEST_WEIGHT = 20.0  # of a merit: rarer actions would drown the others

Floats = npt.NDArray[np.floating[Any]]


class Expectation(NamedTuple):
    """A fitted model of missing rewards."""

    reward: Callable[[LogArrays], Floats]  # rows → rewards: (rows,)
    trust: float  # in [0, 1]: how well it does on known rows that it has not seen


@dataclass(frozen=True)
class Filler:
    """Fills in rows, part by part."""

    groups: Sequence[Group]
    expectations: Sequence[Expectation]  # one a group
    mean_rewards: Sequence[float]  # of the known rows that the group learns from
    known_shares: Sequence[float]  # of all rows, those it learns from
    lowest_cost: float
    highest_cost: float
    actions: int
    merit_scales: Sequence[float] = ()  # 1/mean merit over the log; none yet: 1

    def fill(self, train_rows: TrainRows, *, costs: bool, merits: bool) -> Filling:
        """For all rows of the part: known rewards where the group may see them, else expected ones."""
        cost, merit = [], []
        for g in range(len(self.groups)):
            rewards, learned = self._rewards(train_rows, g)
            cost.append(self.highest_cost - rewards * (self.highest_cost - self.lowest_cost))
            merit.append(self._merits(train_rows.rows, rewards, learned, g) if merits else rewards)
        return Filling(
            np.stack(cost).astype(np.float32) if costs else None,
            np.stack(merit).astype(np.float32) if merits else None,
        )

    def scaled_by(self, parts: Iterable[TrainRows]) -> "Filler":
        """With merits of mean 1 over these parts: λ then means the same on every log."""
        totals, rows = np.zeros(len(self.groups)), 0
        for part in parts:
            merit = self.fill(part, costs=False, merits=True).merit
            assert merit is not None
            totals += merit.sum(axis=1, dtype=np.float64)
            rows += part.rows.rows
        return replace(self, merit_scales=[rows / total if total > 0 else 0.0 for total in totals])

    def reward_of(self, cost: Floats) -> Floats:
        spread = self.highest_cost - self.lowest_cost
        reward: Floats = (self.highest_cost - cost) / spread if spread > 0 else np.zeros(len(cost))
        return reward

    def _rewards(self, train_rows: TrainRows, g: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Rewards of all rows, and which of them are known to the group."""
        part, number = train_rows
        learned = self.groups[g].learns_from(part, number)
        expected = np.clip(self.expectations[g].reward(part), 0, 1)
        return np.where(learned, self.reward_of(part.cost), expected), learned

    def _merits(self, part: LogArrays, rewards: Floats, learned: npt.NDArray[np.bool_], g: int) -> Floats:
        """(r − r̄)₊/(k·p), known rows weighted up by as much as the expectation is not to be trusted."""
        merit = np.maximum(rewards - self.mean_rewards[g], 0)
        # Of mean 1 over the log where π₀ has full support: how often π₀ takes an action says nothing of its worth.
        merit *= np.minimum(1 / (self.actions * part.propensity.astype(np.float64)), _LARGEST_WEIGHT)
        trust, share = self.expectations[g].trust, self.known_shares[g]
        merit *= np.where(learned, (1 - trust * (1 - share)) / share if share else 0.0, trust)
        scaled: Floats = merit * self.merit_scales[g] if self.merit_scales else merit
        return scaled


def filler_of(
    model: Callable[..., Expectation],
    facts: LogFacts,
    groups: Sequence[Group],
    known: TrainRows,
    actions: int,
    device: torch.device,
) -> Filler:
    """Fit the model for each group on the known rows that it learns from."""
    low, high = facts.lowest_cost, facts.highest_cost
    if low == high == -1.0:
        high = 0.0  # every known action was right on the usual scale: a reward of 1, not of 0
    bare = Filler(groups, (), (), (), low, high, actions)
    expectations, means, shares = [], [], []
    for group in groups:
        rows = known.rows.take(~group.holds_out(known.number))
        reward = bare.reward_of(rows.cost)
        expectations.append(model(rows, reward, seed=group.seed, actions=actions, device=device))
        means.append(float(reward.mean()) if rows.rows else 0.0)
        shares.append(rows.rows / facts.rows)
    return replace(bare, expectations=expectations, mean_rewards=means, known_shares=shares)


def by_propensity(rows: LogArrays, reward: Floats, *, seed: int, actions: int, device: torch.device) -> Expectation:
    """E[r | p]: a logging policy that knows its business is surer where it is right."""
    curve = calibrate(rows.propensity, reward, seed)
    return Expectation(lambda part: curve(part.propensity), curve.trust)


def by_logistic(rows: LogArrays, reward: Floats, *, seed: int, actions: int, device: torch.device) -> Expectation:
    """E[r | x, a], one logistic regression an action: the paper's cost model."""
    settings = CostModelSettings(seed=seed)
    if rows.rows < 2 * settings.folds or reward.min() == reward.max():
        level = float(reward.mean()) if rows.rows else 0.0
        return Expectation(lambda part: np.full(part.rows, level), 0.0)
    fold = assign_folds(np.ones(rows.rows, bool), settings.folds, seed)
    own = np.arange(rows.rows), rows.action
    unseen = cross_fit(rows.context, rows.action, reward, fold, actions, settings, device).predict(rows.context, fold)
    model = fit_cost_model(rows.context, rows.action, reward, actions, settings, device)
    return Expectation(
        lambda part: model.predict(part.context)[np.arange(part.rows), part.action],
        trust_in(unseen[own] - reward.mean(), reward - reward.mean()),
    )
