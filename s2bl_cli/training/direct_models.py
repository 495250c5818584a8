"""The models of the direct method: a regression of the rewards on the features of a network, as a policy.

`direct_learner.py` fits them, and `regression_choice.py` chooses their penalties.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from s2bl_cli.policies.contexts import context_tensor
from s2bl_cli.policies.network import PolicyNetwork
from s2bl_cli.reward_models.action_regression import (
    RegressionRows,
    fit_regressions,
    predict_logged,
    principal_axes,
)
from s2bl_cli.reward_models.reward_network import RewardNetwork, loss_of
from s2bl_cli.row_hash import uniform_hash
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import TrainRows

FOLDS = 5  # of the cross-validation that chooses a regression, and of the cross-fitting
ROUGH = 0.01  # the tolerance of regressions that are only compared
_FOLD_SEED = 0xD3
ROWS_AT_ONCE = 4096
CELLS_AT_ONCE = 1 << 22  # rows × actions: 32 MB

Floats = npt.NDArray[np.float64]


class Choice(NamedTuple):
    """A regression: its penalty α, and whether it uses the copy of the logging policy."""

    penalty: float
    with_copy: bool


@dataclass(frozen=True)
class Rewards:
    """Rewards scaled for a regression. If there are two values, they become 0 and 1, for the logistic loss. Otherwise
    the rewards are standardised, for the squared loss. The policy therefore does not depend on their unit and
    offset."""

    scaled: Floats
    shift: float
    scale: float
    logistic: bool

    @classmethod
    def of(cls, reward: Floats) -> "Rewards":
        low, high = float(reward.min()), float(reward.max())
        is_binary = low < high and bool(np.isin(reward, (low, high)).all())
        shift, scale = (low, high - low) if is_binary else (float(reward.mean()), float(reward.std()) or 1.0)
        return cls((reward - shift) / scale, shift, scale, is_binary)

    def expected(self, eta: Tensor) -> Tensor:
        """The expected rewards in the user's unit."""
        return self.scaled_expected(eta) * self.scale + self.shift

    def scaled_expected(self, eta: Tensor) -> Tensor:
        return eta.sigmoid() if self.logistic else eta

    def losses_of(self, eta: Tensor, action: npt.NDArray[np.int64]) -> Floats:
        """The loss of every row. `eta` (rows, actions) and the logged actions are in the original order."""
        reward = torch.from_numpy(self.scaled).to(eta)
        of_logged = eta.gather(1, torch.from_numpy(action).to(eta.device)[:, None]).squeeze(1)
        return loss_of(of_logged, reward, logistic=self.logistic).to(torch.float64).cpu().numpy()

    def fit(self, rows: RegressionRows, weight: Floats, choices: Sequence["Choice"], tolerance: float = 1e-4) -> Tensor:
        """The parameters of regressions. `weight`: (rows, regressions), in the order of `rows`."""
        given, options = self._given(rows, weight, choices)
        return fit_regressions(*given, **options, tolerance=tolerance)

    def losses(self, rows: RegressionRows, weight: Floats, choices: Sequence["Choice"]) -> Floats:
        """The loss of every row under regressions that are fitted roughly: (rows, regressions)."""
        given, options = self._given(rows, weight, choices)
        eta, reward = predict_logged(*given, **options, tolerance=ROUGH), given[1][:, None]
        loss = loss_of(eta, reward, logistic=self.logistic)
        return loss.to(torch.float64).cpu().numpy()

    def _given(
        self, rows: RegressionRows, weight: Floats, choices: Sequence["Choice"]
    ) -> tuple[tuple[RegressionRows, Tensor, Tensor, Tensor], dict[str, Any]]:
        reward, weights = (torch.from_numpy(values).to(rows.x) for values in (self.scaled[rows.order], weight))
        penalty = rows.x.new_tensor([choice.penalty for choice in choices])
        with_scores = torch.tensor([choice.with_copy for choice in choices], device=rows.x.device)
        return (rows, reward, weights, penalty), {"logistic": self.logistic, "with_scores": with_scores}


@dataclass(frozen=True)
class Copied:
    """A network evaluated on some rows: the inputs of its last layer, and its log-probabilities minus their mean over
    all rows and actions. For a uniform policy the result is 0, so the regression cannot confuse it with c."""

    network: PolicyNetwork
    features: Tensor  # (rows, features)
    mean: Tensor  # ()
    logged: Tensor  # (rows,) log π̂₀ of the logged actions

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        network: PolicyNetwork,
        context: npt.NDArray[np.generic],
        action: npt.NDArray[np.integer],
        device: torch.device,
    ) -> "Copied":
        features: list[Tensor] = []
        hook = linear_layers(network)[-1].register_forward_hook(lambda layer, given, out: features.append(given[0]))
        network.eval()
        total, logged = torch.zeros((), dtype=torch.float64, device=device), []
        actions = linear_layers(network)[-1].out_features
        at_once = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // actions))
        for start in range(0, len(context), at_once):
            part = slice(start, start + at_once)
            log_pi0 = log_softmax(network(context_tensor(context[part], device)).to(torch.float64), dim=-1)
            taken = torch.from_numpy(action[part].astype(np.int64)).to(device)
            total += log_pi0.sum()
            logged.append(log_pi0.gather(1, taken[:, None]).squeeze(1))
        hook.remove()
        mean = total / (len(context) * actions)
        return cls(network, torch.cat(features), mean, torch.cat(logged) - mean)

    @cached_property
    def axes(self) -> Tensor:
        return principal_axes(self.features)

    @torch.no_grad()
    def log_pi0(self, rows: Tensor) -> Tensor:
        """(rows, actions)"""
        logits = linear_layers(self.network)[-1](self.features[rows])
        return log_softmax(logits.to(torch.float64), dim=-1) - self.mean

    def standardised(self, context: npt.NDArray[np.generic]) -> Tensor:
        """(rows, features), standardised as in the network."""
        flat = context_tensor(context, self.features.device).flatten(1).to(torch.float32)
        return (flat - self.network.shift) * self.network.scale


@dataclass(frozen=True)
class Head:
    """A regression on the features before a network's last layer."""

    theta: Tensor  # (actions, features + 1), one row per action
    shared: Tensor  # (features + 1,)
    slope: Tensor  # (scores,): 1 with a copy, else 0

    @classmethod
    def of(cls, parameters: Tensor, rows: RegressionRows) -> "Head":
        theta, shared, slope = torch.split(parameters, rows.sizes)
        return cls(theta.view(rows.actions, -1), shared, slope)

    def predict(self, copied: Copied, context: npt.NDArray[np.generic], rows: Tensor) -> Tensor:
        """η of all actions: (rows, actions)."""
        return self.eta(copied, rows)

    def eta(self, copied: Copied, rows: Tensor) -> Tensor:
        weight = (self.theta + self.shared).T.to(copied.features)
        return copied.features[rows] @ weight[:-1] + weight[-1] + self.slope.sum() * copied.log_pi0(rows)

    def layers(self, network: PolicyNetwork) -> list[Tensor]:
        """The network's last layer, whose logits equal η up to a term that does not depend on the action."""
        return [self.theta + self.slope.sum() * weight_and_bias(linear_layers(network)[-1])]


@dataclass(frozen=True)
class Units:
    """A network whose units are fitted to the rewards."""

    network: RewardNetwork

    @property
    def slope(self) -> float:
        return self.network.slope

    def predict(self, copied: Copied, context: npt.NDArray[np.generic], rows: Tensor) -> Tensor:
        return self.network.predict(copied.standardised(context), copied.log_pi0(rows))

    def layers(self, network: PolicyNetwork) -> list[Tensor]:
        return self.network.layers


@dataclass(frozen=True)
class DirectModel:
    """Expected costs of all actions. A known row is predicted by a head that was not trained on it."""

    fold: Fold
    copied: Copied  # on the rows that the heads were fitted on
    rewards: Rewards
    heads: Sequence[Head]  # one per part, which was not trained on that part, and one trained on all rows

    def __call__(self, train_rows: TrainRows) -> npt.NDArray[np.float32]:
        """(rows, actions), in the unit of the log."""
        rows, learned = train_rows.rows, train_rows.learned(self.fold)
        part = np.where(learned, parts_of(train_rows.number, self.fold.seed), FOLDS)
        device, actions = self.copied.features.device, self.heads[0].theta.shape[0]
        costs = np.empty((rows.rows, actions), np.float32)
        at_once = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // actions))
        for start in range(0, rows.rows, at_once):
            these = slice(start, start + at_once)
            context = rows.context[these]
            seen = Copied.of(self.copied.network, context, rows.action[these], device)
            seen = replace(seen, mean=self.copied.mean)
            for number in np.unique(part[these]):
                chosen = np.flatnonzero(part[these] == number)
                eta = self.heads[number].predict(seen, context, torch.from_numpy(chosen).to(device))
                costs[start + chosen] = -self.rewards.expected(eta).cpu().numpy()
        return costs


def parts_of(number: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """The cross-validation and cross-fitting part of each known row, by its number."""
    return (uniform_hash(number, seed ^ _FOLD_SEED) * FOLDS).astype(np.int64)


def linear_layers(network: PolicyNetwork) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


def weight_and_bias(layer: nn.Linear) -> Tensor:
    """(units, inputs + 1)"""
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()


def side_by_side(first: Sequence[Tensor], second: Sequence[Tensor]) -> list[Tensor]:
    """Two networks as one, whose logits are the sum of theirs: (units, inputs + 1) per layer, the bias last."""
    layers = []
    for number, pair in enumerate(zip(first, second, strict=True)):
        one, other = (layer.to(torch.float32) for layer in pair)
        biases = [one[:, -1:], other[:, -1:]]
        is_first, is_last = number == 0, number == len(first) - 1
        if is_last:
            layers.append(torch.cat([one[:, :-1], other[:, :-1], biases[0] + biases[1]], dim=1))
        else:
            weights = [one[:, :-1], other[:, :-1]]
            weight = torch.cat(weights) if is_first else torch.block_diag(*weights)  # type: ignore[no-untyped-call]
            layers.append(torch.cat([weight, torch.cat(biases)], dim=1))
    return layers
