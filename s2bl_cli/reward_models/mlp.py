"""A reward model with hidden layers, shared by all actions."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.policies.contexts import Contexts, context_tensor
from s2bl_cli.reward_models.linear_maps import Standardisation
from s2bl_cli.reward_models.linear_model import Link, Scores, sampled_rows
from s2bl_cli.reward_models.reward_model import CPU, Floats, Ints, shifts_to_the_mean
from s2bl_cli.reward_models.reward_network import RewardNetwork, fit_reward_network
from s2bl_cli.reward_models.settings import RewardModelSettings

HIDDEN = (100,)
_PENALTIES = (1.0, 10.0, 100.0)
_LEAST_ROWS = 20  # with fewer rows, the mean reward is predicted
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class FoldNetwork:
    """The network of a fold: η = shift + unit·(output of the network)."""

    network: RewardNetwork | None  # None: η is the shift
    shift: float
    unit: float = 1.0

    def eta(self, x: Tensor, scores: Tensor) -> Tensor:
        """(rows, actions)"""
        if self.network is None:
            return torch.full_like(scores, self.shift)
        return self.shift + self.unit * self.network.predict(x, scores)


@dataclass(frozen=True)
class NetworkModel:
    """One network per fold."""

    standardise: Standardisation
    networks: list[FoldNetwork]
    actions: int
    link: Link
    scores: Scores | None
    device: torch.device

    @torch.no_grad()
    def predict(
        self, context: Contexts, fold: Ints | None = None, scores: Tensor | None = None
    ) -> npt.NDArray[np.float32]:
        """(rows, actions) rewards. With folds, each row is predicted by the network that skipped its fold."""
        x = self.standardise(context_tensor(context, self.device))
        given = torch.zeros(len(x), self.actions, dtype=torch.float64, device=self.device)
        if self.scores is not None:
            assert scores is not None, "a model that was fitted with scores needs those of all actions"
            given = self.scores.standardised(scores.to(given))
        by_fold = np.zeros(len(x), np.int64) if fold is None or len(self.networks) == 1 else np.asarray(fold)
        rewards = np.empty((len(x), self.actions), np.float32)
        for j, network in enumerate(self.networks):
            rows = np.flatnonzero(by_fold == j)
            chosen = torch.from_numpy(rows).to(x.device)
            rewards[rows] = self.link.rewards(network.eta(x[chosen], given[chosen]))
        return rewards


def cross_fit(
    context: npt.NDArray[np.generic],
    action: Ints,
    reward: Floats,
    fold: Ints,
    actions: int,
    settings: RewardModelSettings | None = None,
    device: torch.device = CPU,
    weight: Floats | None = None,
    score: Floats | None = None,
) -> NetworkModel:
    """E[r | x, a] from the network η(x, a) of `reward_network.py`, with one hidden layer of 100 units: 1/(1 + exp(−η))
    for rewards of two values, scaled to 0 and 1, else η.

    Fitted by Adam on cross-entropy or squared loss.
    Domain: any finite rewards.
    Strength: the penalty and the number of steps are chosen by cross-validation, for each fold on the other folds.
    Limits: penalty → ∞ is the mean reward plus what the scores explain.
    Source: `reward_network.py`; cross-fitting: Chernozhukov et al. 2018.
    """
    settings = settings or RewardModelSettings()
    low, high = float(np.min(reward)), float(np.max(reward))
    link = Link(logistic=low < high and bool(np.isin(reward, (low, high)).all()), low=low, scale=high - low)
    chosen = sampled_rows(context, settings.most_cells, settings.seed, 1)
    context, action, fold = context[chosen], np.asarray(action)[chosen], np.asarray(fold)[chosen]
    value = link.values(reward)[chosen]
    weights = np.ones(len(value)) if weight is None else np.asarray(weight, np.float64)[chosen]
    score = None if score is None else np.asarray(score, np.float64)[chosen]
    standardise = Standardisation(context, device)
    x = standardise(context_tensor(context, device))
    scores = None if score is None else Scores.of(score)
    logged = x.new_zeros(len(x), 0)
    if score is not None and scores is not None:
        logged = scores.standardised(torch.from_numpy(score).to(device))[:, None]
    rows = _Rows(x, torch.from_numpy(action.astype(np.int64)).to(device), value, weights, logged)
    networks = [
        _fold_network(rows.take(np.flatnonzero(fold != j)), fold[fold != j], actions, link, settings.seed)
        for j in range(settings.folds)
    ]
    return NetworkModel(standardise, networks, actions, link, scores, device)


class _Rows(NamedTuple):
    x: Tensor  # (rows, features)
    action: Tensor
    value: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]
    score: Tensor  # (rows, 1) of the logged actions, or (rows, 0)

    def take(self, rows: npt.NDArray[np.int64]) -> "_Rows":
        chosen = torch.from_numpy(rows).to(self.x.device)
        return _Rows(self.x[chosen], self.action[chosen], self.value[rows], self.weight[rows], self.score[chosen])


def _fold_network(rows: _Rows, fold: Ints, actions: int, link: Link, seed: int) -> FoldNetwork:
    """Fitted on these rows; `fold` is that of each row."""
    _, inner = np.unique(fold, return_inverse=True)
    if len(rows.value) < _LEAST_ROWS or rows.value.min() == rows.value.max():
        mean = float(np.average(rows.value, weights=rows.weight)) if len(rows.value) else 0.0
        return FoldNetwork(None, float(np.log(mean / (1 - mean))) if link.logistic and 0 < mean < 1 else mean)
    inner = inner if inner.max() else np.arange(len(inner)) % 2
    weight = rows.weight / rows.weight.mean()
    # Squared losses are compared with a penalty, so they need a unit: that of the rewards of these rows.
    unit, centre = (1.0, 0.0) if link.logistic else (float(rows.value.std()), float(rows.value.mean()))
    network = fit_reward_network(
        rows.x,
        rows.score,
        rows.action,
        torch.from_numpy((rows.value - centre) / unit).to(rows.x.device),
        torch.from_numpy(inner.astype(np.int64)).to(rows.x.device),
        torch.from_numpy(weight).to(rows.x.device),
        actions=actions,
        hidden=HIDDEN,
        penalties=_PENALTIES,
        logistic=link.logistic,
        seed=seed,
    )
    fitted = FoldNetwork(network, centre, unit)
    return replace(fitted, shift=centre + _shift(fitted, rows, link))


def _shift(network: FoldNetwork, rows: _Rows, link: Link) -> float:
    """What makes the mean prediction equal the mean reward of the rows."""
    logged = []
    for start in range(0, len(rows.value), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        actions = len(network.network.layers[-1]) if network.network is not None else 1
        scores = rows.score[part].sum(1, keepdim=True).expand(-1, actions)  # right for the logged action
        logged.append(network.eta(rows.x[part], scores).gather(1, rows.action[part, None]))
    total = rows.weight.sum(keepdims=True)
    mean, weight = rows.value @ rows.weight / total, torch.from_numpy(rows.weight)[:, None]
    return float(shifts_to_the_mean(torch.cat(logged), weight, mean, total, logistic=link.logistic)[0])
