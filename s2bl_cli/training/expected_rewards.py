"""Expected rewards of rows whose feedback is missing, in [0, 1], from models fitted on the known rows.

A reward is the cost with its sign changed, scaled by the range of the known costs: 1 for the lowest, 0 for the highest.
They fill in costs (`pseudo`) and make reward weights (`cce`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.reward_models.reward_model import assign_folds, cross_fit, fit_reward_model
from s2bl_cli.reward_models.settings import RewardModelSettings
from s2bl_cli.training.calibration import calibrate, trust_in
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.statistics import Statistics, TrainRows

_LARGEST_WEIGHT = 20.0  # of a row: rarer actions would drown the others

Floats = npt.NDArray[np.floating[Any]]


class Expectation(NamedTuple):
    """A fitted model of missing rewards."""

    reward: Callable[[LogArrays], Floats]  # rows → rewards: (rows,)
    trust: float  # in [0, 1]: how well it does on known rows that it has not seen
    needs_contexts: bool


@dataclass(frozen=True)
class ExpectedRewards:
    """Of every fold. Which of the two columns the objective needs is said once, here."""

    folds: Sequence[Fold]
    expectations: Sequence[Expectation]  # one per fold
    mean_rewards: Sequence[float]  # of the known rows that the fold's policies learn from
    known_shares: Sequence[float]  # of all rows, those they learn from
    lowest_cost: float
    highest_cost: float
    actions: int
    fills_costs: bool
    weights_rewards: bool
    scales: Sequence[float] = ()  # 1/mean weight over the log; none yet: 1

    def costs(self, train_rows: TrainRows) -> npt.NDArray[np.float32] | None:
        """Known costs where the fold's policies may see them, else expected ones: (G, rows)."""
        if not self.fills_costs:
            return None
        rewards = np.stack([self._rewards(train_rows, g)[0] for g in range(len(self.folds))])
        return (self.highest_cost - rewards * (self.highest_cost - self.lowest_cost)).astype(np.float32)

    def reward_weights(self, train_rows: TrainRows) -> npt.NDArray[np.float32] | None:
        """(r − r̄)₊/(k·p), known rows weighted up by as much as the expectation is not to be trusted: (G, rows)."""
        if not self.weights_rewards:
            return None
        return np.stack([self._weights(train_rows, g) for g in range(len(self.folds))]).astype(np.float32)

    def scaled_by(self, parts: Iterable[TrainRows]) -> "ExpectedRewards":
        """With weights of mean 1 over these parts: λ then means the same on every log."""
        totals, rows = np.zeros(len(self.folds)), 0
        for part in parts:
            totals += [self._weights(part, g).sum(dtype=np.float64) for g in range(len(self.folds))]
            rows += part.rows.rows
        return replace(self, scales=[rows / total if total > 0 else 0.0 for total in totals])

    def reward_of(self, cost: Floats) -> Floats:
        extent = self.highest_cost - self.lowest_cost
        reward: Floats = (self.highest_cost - cost) / extent if extent > 0 else np.zeros(len(cost))
        return reward

    def _rewards(self, train_rows: TrainRows, g: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Rewards of all rows, and which of them are known to the fold's policies."""
        part, number = train_rows
        learned = part.known & ~self.folds[g].holds_out(number)
        expected = np.clip(self.expectations[g].reward(part), 0, 1)
        return np.where(learned, self.reward_of(part.cost), expected), learned

    def _weights(self, train_rows: TrainRows, g: int) -> Floats:
        rewards, learned = self._rewards(train_rows, g)
        weight = np.maximum(rewards - self.mean_rewards[g], 0)
        # Of mean 1 over the log where π₀ has full support: how often π₀ takes an action says nothing of its worth.
        weight *= np.minimum(1 / (self.actions * train_rows.rows.propensity.astype(np.float64)), _LARGEST_WEIGHT)
        trust, share = self.expectations[g].trust, self.known_shares[g]
        weight *= np.where(learned, (1 - trust * (1 - share)) / share if share else 0.0, trust)
        scaled: Floats = weight * self.scales[g] if self.scales else weight
        return scaled


def fit_expected_rewards(
    model: Callable[..., Expectation],
    statistics: Statistics,
    known: TrainRows,
    folds: Sequence[Fold],
    device: torch.device,
    *,
    fills_costs: bool,
    weights_rewards: bool,
) -> ExpectedRewards:
    """Fit the model for each fold on the known rows that its policies learn from. `known` has contexts."""
    low, high, actions = statistics.lowest_cost, statistics.highest_cost, len(statistics.action_counts)
    bare = ExpectedRewards(folds, (), (), (), low, high, actions, fills_costs, weights_rewards)
    expectations, means, shares = [], [], []
    for fold in folds:
        rows = known.rows.take(~fold.holds_out(known.number))
        reward = bare.reward_of(rows.cost)
        expectations.append(model(rows, reward, seed=fold.seed, actions=actions, device=device))
        means.append(float(reward.mean()) if rows.rows else 0.0)
        shares.append(statistics.learned_count(fold) / statistics.rows)  # `known` may be a sample
    return replace(bare, expectations=expectations, mean_rewards=means, known_shares=shares)


def by_propensity(rows: LogArrays, reward: Floats, *, seed: int, actions: int, device: torch.device) -> Expectation:
    """E[r | p]: a good logging policy is surer where it is right."""
    curve = calibrate(rows.propensity, reward, seed)
    return Expectation(lambda part: curve(part.propensity), curve.trust, needs_contexts=False)


def by_logistic(rows: LogArrays, reward: Floats, *, seed: int, actions: int, device: torch.device) -> Expectation:
    """E[r | x, a], one logistic regression per action: the paper's cost model."""
    settings = RewardModelSettings(seed=seed)
    if rows.rows < 2 * settings.folds or reward.min() == reward.max():
        level = float(reward.mean()) if rows.rows else 0.0
        return Expectation(lambda part: np.full(part.rows, level), 0.0, needs_contexts=False)
    fold = assign_folds(np.ones(rows.rows, bool), settings.folds, seed)
    logged = np.arange(rows.rows), rows.action
    unseen = cross_fit(rows.context, rows.action, reward, fold, actions, settings, device).predict(rows.context, fold)
    model = fit_reward_model(rows.context, rows.action, reward, actions, settings, device)
    return Expectation(
        lambda part: model.predict(part.context)[np.arange(part.rows), part.action],
        trust_in(unseen[logged] - reward.mean(), reward - reward.mean()),
        needs_contexts=True,
    )
