"""The direct method: a regression of the rewards on the known rows, and the policy that takes its best action.

`dm-s2bl` adds what the logging policy knows, learned from all rows, with feedback or without. A copy π̂₀ of the logging
policy is fitted to the logged propensities, and its log-probability is a feature of the regression, with a
slope that is not penalised. A propensity is a label without noise, a drawn action is a noisy one, so the copy is fitted
to the propensities. The known rows decide what the copy is worth: its slope is positive for a good logging policy,
negative for an adverse one, and 0 for one that knows nothing. `dm` is the regression without the copy.

The copy is a network of the policy's model. The regression is linear in the features before its last layer (the
contexts of a linear policy), so the policy is the same network with another last layer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, softplus

from s2bl_cli.contract.checkpoints import Result, RewardLink
from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.policies.contexts import context_tensor
from s2bl_cli.policies.network import PolicyNetwork, network_from, network_tensors, on_device
from s2bl_cli.policies.stacked import STACKABLE
from s2bl_cli.registry import REGULARISERS, RISKS
from s2bl_cli.reward_models.action_regression import RegressionRows, fit_regressions, regression_rows
from s2bl_cli.row_hash import uniform_hash
from s2bl_cli.training.candidates import Candidate, Fold
from s2bl_cli.training.data import TrainingData, TrainRows
from s2bl_cli.training.gradient_learner import GradientLearner, start_network
from s2bl_cli.training.interruption import Interrupted
from s2bl_cli.training.learner import Run
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.validation import HeldOut

PENALTIES = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4)
_FOLDS = 5  # of the cross-validation that selects one of them
_FOLD_SEED = 0xD3
_COPY_STEPS = 2000  # at least: a small log has few steps per epoch
_LOGIT_STEP = 0.8  # how far a step of Adam may move a logit, at most
_ROWS_AT_ONCE = 4096
_NU = 0.001  # truncation in estimates on held-out rows

Floats = npt.NDArray[np.float64]


class DirectLearner:
    """One regression per candidate. Its penalty is the candidate's, or selected by cross-validation."""

    def __init__(self, settings: TrainSettings, spec: NetworkSpec, *, uses_copy: bool) -> None:
        self._settings, self._spec, self._uses_copy = settings, spec, uses_copy

    def fit(self, data: TrainingData, candidates: Sequence[Candidate], run: Run) -> Iterator[tuple[Candidate, Result]]:
        sample = data.statistics.sample
        for seed, of_seed in groupby(run.unfinished(candidates), lambda candidate: candidate.fold.seed):
            network = self._copy(data, seed, run) if self._uses_copy else start_network(self._spec, data, seed, run)
            features, logits = _last_layer(network, sample.rows.context, run.device)
            for candidate in of_seed:
                if run.should_stop():
                    raise Interrupted
                yield candidate, self._result(candidate, sample, network, features, logits)

    def _copy(self, data: TrainingData, seed: int, run: Run) -> PolicyNetwork:
        """π̂₀. It sees no feedback, so all folds of a seed share it."""
        settings, match = self._settings, REGULARISERS.load("match")
        if self._spec.model in STACKABLE:
            epochs = -(-_COPY_STEPS // max(1, data.statistics.rows // settings.batch_size))
            lr = min(0.01, _LOGIT_STEP / self._spec.context.features)
            settings = replace(settings, epochs=max(settings.epochs, epochs), lr=lr)
        learner = GradientLearner(settings, self._spec, RISKS.load("none"), match, validates=False)
        values = {"lam": 1.0, **{h.name: h.default for h in match.hyperparameters}}
        copy_run = replace(run, stage=f"copying the logging policy ({self._spec.model})", keeps_tensors=True)
        (result,) = copy_run.fit(learner, data, [Candidate(Fold(seed), 0, values)])
        return on_device(network_from(self._spec, result.tensors, "the copy"), run.device)

    def _result(
        self, candidate: Candidate, sample: TrainRows, network: PolicyNetwork, features: Tensor, logits: Tensor
    ) -> Result:
        """`features` (rows, features) and `logits` (rows, actions) of the sample's rows."""
        learned = sample.learned(candidate.fold)
        rewards = Rewards.of(-sample.rows.cost[learned].astype(np.float64))
        log_pi0 = log_softmax(logits.to(torch.float64), dim=-1)
        log_pi0 = log_pi0 - log_pi0.mean()  # of a uniform policy nothing is left, and it is not mistaken for c
        rows = self._rows(sample.take(learned), features[learned], log_pi0[learned])
        fold = uniform_hash(sample.number[learned], candidate.fold.seed ^ _FOLD_SEED) * _FOLDS
        given = candidate.hyperparameters["penalty"]
        regression = _selected(rows, rewards, fold.astype(np.int64), PENALTIES if given is None else (given,))
        parameters = rewards.fit(rows, np.ones((len(rows.x), 1)), [regression])[:, 0]
        head = Head.of(parameters, rows)
        return Result(
            tensors=head.tensors(network),
            held_out=self._held_out(head, rewards, sample.take(~learned), features[~learned], log_pi0[~learned]),
            curve=[],
            best_epoch=1,
            link=RewardLink(shift=rewards.shift, scale=rewards.scale, logistic=rewards.logistic),
        )

    def _rows(self, part: TrainRows, features: Tensor, log_pi0: Tensor) -> RegressionRows:
        action = torch.from_numpy(part.rows.action.astype(np.int64)).to(log_pi0.device)
        scores = log_pi0.gather(1, action[:, None])[:, : int(self._uses_copy)]
        return regression_rows(features, scores, part.rows.action, self._spec.actions)

    def _held_out(
        self, head: "Head", rewards: "Rewards", held_out: TrainRows, features: Tensor, log_pi0: Tensor
    ) -> Floats | None:
        """The columns of `HeldOut`, of the policy that takes the best action."""
        if not held_out.rows.rows:
            return None
        eta = head.predict(features, log_pi0)
        cost = -rewards.expected(eta).cpu().numpy()  # (rows, actions)
        best, index = eta.argmax(-1).cpu().numpy(), np.arange(len(cost))
        is_best = held_out.rows.action == best
        weight = is_best / np.maximum(held_out.rows.propensity, _NU)
        columns = HeldOut(weight, held_out.rows.cost, cost[index, best], cost[index, held_out.rows.action])
        return np.stack(columns).astype(np.float64)


DM = partial(DirectLearner, uses_copy=False)
DM_S2BL = partial(DirectLearner, uses_copy=True)


@dataclass(frozen=True)
class Rewards:
    """Rewards, scaled for a regression: two values become 0 and 1, for the logistic loss; others are standardised, for
    the squared loss. So the policy does not depend on their unit and offset."""

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
        """In the user's unit."""
        return (eta.sigmoid() if self.logistic else eta) * self.scale + self.shift

    def fit(self, rows: RegressionRows, weight: Floats, choices: Sequence["Choice"], tolerance: float = 1e-4) -> Tensor:
        """Weights (rows, regressions) in the order of `rows`."""
        reward, weights = (torch.from_numpy(values).to(rows.x) for values in (self.scaled[rows.order], weight))
        return fit_regressions(
            rows,
            reward,
            weights,
            rows.x.new_tensor([choice.penalty for choice in choices]),
            logistic=self.logistic,
            with_scores=torch.tensor([choice.with_copy for choice in choices], device=rows.x.device),
            tolerance=tolerance,
        )

    def loss(self, rows: RegressionRows, eta: Tensor) -> Tensor:
        """(rows, regressions)"""
        reward = torch.from_numpy(self.scaled[rows.order]).to(eta)[:, None]
        return softplus(eta) - reward * eta if self.logistic else (eta - reward) ** 2


class Choice(NamedTuple):
    """A regression: its penalty α, and whether it sees the copy of the logging policy."""

    penalty: float
    with_copy: bool


def _selected(
    rows: RegressionRows, rewards: Rewards, fold: npt.NDArray[np.int64], penalties: Sequence[float]
) -> Choice:
    """The regression that predicts the rewards of other folds best. It does without the copy only if that is better by
    more than a standard error: a copy of few rows may mislead, but few known rows do not show it."""
    with_copy = (True, False) if rows.scores.shape[1] else (False,)
    choices = [Choice(penalty, copied) for copied in with_copy for penalty in penalties]
    if len(choices) == 1:
        return choices[0]
    learns = fold[rows.order][:, None] != np.repeat(np.arange(_FOLDS), len(choices))  # (rows, folds × choices)
    single = rows.in_single_precision()
    parameters = rewards.fit(single, learns.astype(np.float64), choices * _FOLDS, tolerance=0.01)
    losses = rewards.loss(single, single.predict(parameters)).cpu().numpy()
    held_out = np.where(learns, 0.0, losses).reshape(len(learns), _FOLDS, -1).sum(axis=1)  # (rows, choices)
    total = held_out.sum(axis=0)
    best = [int(group[total[group].argmin()]) for group in np.split(np.arange(len(choices)), len(with_copy))]
    without = held_out[:, best[0]] - held_out[:, best[-1]]
    is_clear = without.mean() > without.std() / np.sqrt(len(without))
    return choices[best[-1] if is_clear else best[0]]


@dataclass(frozen=True)
class Head:
    """A regression on the features before a network's last layer."""

    theta: Tensor  # (actions, features + 1) of each action
    shared: Tensor  # (features + 1,)
    slope: Tensor  # (scores,): 1 with a copy, else 0

    @classmethod
    def of(cls, parameters: Tensor, rows: RegressionRows) -> "Head":
        theta, shared, slope = torch.split(parameters, rows.sizes)
        return cls(theta.view(rows.actions, -1), shared, slope)

    def predict(self, features: Tensor, log_pi0: Tensor) -> Tensor:
        """η of all actions: (rows, actions)."""
        weight = (self.theta + self.shared).T
        return features.to(weight) @ weight[:-1] + weight[-1] + self.slope.sum() * log_pi0

    def tensors(self, network: PolicyNetwork) -> Tensors:
        """The policy file's: the network with a last layer whose logits are η, up to a term without the action."""
        layer = _last_linear(network)
        tensors = network_tensors(network)
        names = {id(parameter): name for name, parameter in network.named_parameters()}
        for parameter, theta in ((layer.weight, self.theta[:, :-1]), (layer.bias, self.theta[:, -1])):
            logits = theta + self.slope.sum() * parameter.detach()
            tensors[names[id(parameter)]] = logits.cpu().numpy().astype(np.float32)
        return tensors


def _last_linear(network: PolicyNetwork) -> nn.Linear:
    return [module for module in network.modules() if isinstance(module, nn.Linear)][-1]


@torch.no_grad()
def _last_layer(
    network: PolicyNetwork, context: npt.NDArray[np.generic], device: torch.device
) -> tuple[Tensor, Tensor]:
    """What goes into the last layer and what comes out of it: (rows, features) and (rows, actions)."""
    inputs: list[Tensor] = []
    hook = _last_linear(network).register_forward_hook(lambda layer, given, out: inputs.append(given[0]))
    network.eval()
    starts = range(0, len(context), _ROWS_AT_ONCE)
    logits = [network(context_tensor(context[start : start + _ROWS_AT_ONCE], device)) for start in starts]
    hook.remove()
    return torch.cat(inputs), torch.cat(logits)
