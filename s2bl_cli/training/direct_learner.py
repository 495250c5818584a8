"""The direct method: regress the rewards on the known rows, and take the action with the highest prediction.

`dm-s2bl` adds information from the logging policy, learned from all rows, with or without feedback. A copy π̂₀ of the
logging policy is fitted to the logged propensities, and its log-probability is a feature of the regression, with an
unpenalised slope. The copy is fitted to the propensities because a propensity is a label without noise, while a drawn
action is a noisy one. The known rows decide how useful the copy is: its slope is positive for a good logging policy,
negative for an adverse one, and 0 for an uninformative one. `dm` is the regression without the copy.

The copy is a network with the policy's architecture. The regression is linear in the features before the last layer
(the contexts, if the policy is linear), so the policy is the same network with a different last layer. Rewards that are
not linear in these features need features of their own. An mlp therefore has an equal number of additional units,
fitted to the rewards, next to the units of the copy. The known rows decide whether they are used. An image network has
the body of the copy, or one fitted to the rewards if there is no copy or nothing to copy (`reward_body.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from s2bl_cli.contract.checkpoints import Result, RewardLink
from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.objectives import doubly_robust
from s2bl_cli.policies.contexts import context_tensor
from s2bl_cli.policies.network import PolicyNetwork, network_from, network_tensors, on_device
from s2bl_cli.policies.stacked import STACKABLE
from s2bl_cli.registry import REGULARISERS, RISKS
from s2bl_cli.reward_models.action_regression import (
    RegressionRows,
    fit_regressions,
    predict_logged,
    regression_rows,
)
from s2bl_cli.reward_models.reward_network import PENALTIES as NETWORK_PENALTIES
from s2bl_cli.reward_models.reward_network import RewardNetwork, fit_reward_network, loss_of
from s2bl_cli.row_hash import uniform_hash
from s2bl_cli.training.candidates import Candidate, Fold
from s2bl_cli.training.data import TrainingData, TrainRows
from s2bl_cli.training.gradient_learner import GradientLearner, start_network
from s2bl_cli.training.interruption import Interrupted
from s2bl_cli.training.learner import Run
from s2bl_cli.training.reward_body import fit_to_rewards, propensities_follow_context
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.steps import steps_per_pass
from s2bl_cli.training.validation import HeldOut
from s2bl_cli.training.value_choice import LoggedRows, Predicted, is_clear, near_the_best

# Every second value is tried, then the neighbours of the best one.
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4)
_FOLDS = 5  # of the cross-validation that selects one of them
_FOLD_SEED = 0xD3
_COPY_BATCH = 512  # propensities are labels without noise, so few steps with large batches are enough
_COPY_PASSES = 10  # over all rows, within these limits:
_LEAST_COPY_STEPS, _MOST_COPY_STEPS = {"linear": 1200, "mlp": 2500}, 4000
_COPY_LR, _LOGIT_STEP = 0.02, 2.4  # for Adam; the second is the maximum change of a logit in one step
_ROWS_AT_ONCE = 4096
_CELLS_AT_ONCE = 1 << 22  # rows × actions: 32 MB
_PARAMETERS_AT_ONCE = 1 << 26  # of regressions fitted together, 256 MB
_ROUGH = 0.01  # the tolerance of regressions that are only compared
_NU = 0.001  # truncation in estimates on held-out rows
_NOTHING_ELSE = 1e9  # a penalty that leaves only the scores and the mean

Floats = npt.NDArray[np.float64]


class DirectLearner:
    """Fits one reward model per candidate. The penalty is the candidate's, or selected by cross-validation."""

    def __init__(self, settings: TrainSettings, spec: NetworkSpec, *, uses_copy: bool) -> None:
        self._settings, self._spec, self._uses_copy = settings, spec, uses_copy
        has_more_units = uses_copy and spec.model == "mlp"
        policy = replace(spec, hidden=tuple(2 * units for units in spec.hidden)) if has_more_units else spec
        self.networks: tuple[NetworkSpec, ...] = (policy, spec)

    def fit(self, data: TrainingData, candidates: Sequence[Candidate], run: Run) -> Iterator[tuple[Candidate, Result]]:
        sample = data.statistics.sample
        for seed, of_seed in groupby(run.unfinished(candidates), lambda candidate: candidate.fold.seed):
            if self._needs_reward_body(data, seed, run):
                yield from self._fit_to_rewards(data, list(of_seed), run)
                continue
            network = self._copy(data, seed, run) if self._uses_copy else start_network(self._spec, data, seed, run)
            copied = Copied.of(network, sample.rows.context, sample.rows.action, run.device)
            for candidate in of_seed:
                if run.should_stop():
                    raise Interrupted
                yield candidate, self._result(candidate, sample, copied)

    @property
    def _has_body(self) -> bool:
        """Whether the policy is an image network, whose features are learned."""
        return self._spec.model not in STACKABLE

    def _needs_reward_body(self, data: TrainingData, seed: int, run: Run) -> bool:
        """Whether the network has a body that a copy of the logging policy cannot provide."""
        if not self._has_body or not self._uses_copy:
            return self._has_body
        return not propensities_follow_context(data, start_network(self._spec, data, seed, run), run.device)

    @property
    def _linear(self) -> "DirectLearner":
        """The regression on the contexts, without a copy."""
        return DirectLearner(self._settings, replace(self._spec, model="linear", hidden=()), uses_copy=False)

    def _fit_to_rewards(
        self, data: TrainingData, candidates: Sequence[Candidate], run: Run
    ) -> Iterator[tuple[Candidate, Result]]:
        """The body is fitted to the rewards, once per fold. The regression keeps the ranking of its last layer: the
        body has seen the rewards, so they cannot show whether another layer is better."""
        sample = data.statistics.sample
        for fold, of_fold in groupby(candidates, lambda candidate: candidate.fold):
            cost_model = partial(self._linear.cost_model, data, run=run)
            network = fit_to_rewards(
                self._settings, self._spec, data, fold, run, cost_model, on_all_rows=self._uses_copy
            )
            copied = Copied.of(network, sample.rows.context, sample.rows.action, run.device)
            for candidate in of_fold:
                yield candidate, self._result(candidate, sample, copied, Choice(_NOTHING_ELSE, with_copy=True))

    def _copy(self, data: TrainingData, seed: int, run: Run) -> PolicyNetwork:
        """π̂₀. It uses no feedback, so all folds of a seed share it."""
        settings, match = self._settings, REGULARISERS.load("match")
        if self._spec.model in STACKABLE:
            lr = min(_COPY_LR, _LOGIT_STEP / self._spec.context.features)
            batch_size = max(_COPY_BATCH, settings.batch_size)
            settings = replace(settings, lr=lr, batch_size=batch_size)
            if settings.steps is None and settings.epochs is None:
                steps = _COPY_PASSES * steps_per_pass(data.statistics.rows, batch_size)
                least = _LEAST_COPY_STEPS[self._spec.model]
                settings = replace(settings, steps=min(max(steps, least), _MOST_COPY_STEPS))
        learner = GradientLearner(settings, self._spec, RISKS.load("none"), match, validates=False)
        values = {"lam": 1.0, **{h.name: h.default for h in match.hyperparameters}}
        copy_run = replace(run, stage=f"copying the logging policy ({self._spec.model})", keeps_tensors=True)
        (result,) = copy_run.fit(learner, data, [Candidate(Fold(seed), 0, values)])
        return on_device(network_from(self._spec, result.tensors, "the copy"), run.device)

    def cost_model(self, data: TrainingData, fold: Fold, run: Run) -> "DirectModel":
        """The regression head of the direct method, cross-fitted on the known rows that policies of the fold learn
        from."""
        if self._needs_reward_body(data, fold.seed, run):
            return self._linear.cost_model(data, fold, run)
        sample = data.statistics.sample
        network = (
            self._copy(data, fold.seed, run) if self._uses_copy else start_network(self._spec, data, fold.seed, run)
        )
        copied = Copied.of(network, sample.rows.context, sample.rows.action, run.device)
        learned = sample.learned(fold)
        rewards = Rewards.of(-sample.rows.cost[learned].astype(np.float64))
        rows = self._rows(sample, copied, learned)
        part = _parts_of(sample.number[learned], fold.seed)
        weight = _weights(sample.take(learned))
        regression, _ = self._selected(rows, rewards, _at_least_two(part), PENALTIES, sample, learned, copied)
        learns = (part[:, None] != np.arange(_FOLDS + 1)).astype(np.float64)  # the last one learns from all
        learns[:, ~learns.any(axis=0)] = 1  # or of very few rows, a model would have none
        parameters = rewards.fit(rows, (learns * weight[:, None])[rows.order], [regression] * (_FOLDS + 1))
        return DirectModel(fold, copied, rewards, [Head.of(column, rows) for column in parameters.T])

    def _rows(self, sample: TrainRows, copied: "Copied", learned: npt.NDArray[np.bool_]) -> RegressionRows:
        scores = copied.logged[learned, None][:, : int(self._uses_copy or self._has_body)]
        return regression_rows(copied.features[learned], scores, sample.rows.action[learned], self._spec.actions)

    def _selected(
        self,
        rows: RegressionRows,
        rewards: "Rewards",
        fold: npt.NDArray[np.int64],
        penalties: Sequence[float],
        sample: TrainRows,
        learned: npt.NDArray[np.bool_],
        copied: "Copied",
    ) -> tuple["Choice", Floats]:
        """The regression on the learned rows, and its losses on other folds."""
        weight = _weights(sample.take(learned))
        if not self._has_body:
            return _selected(rows, rewards, fold, penalties, weight)
        logged = LoggedRows(
            sample.rows.action[learned].astype(np.int64),
            sample.rows.propensity[learned].astype(np.float64),
            rewards.scaled,
            weight,
        )
        return _selected_by_value(rows, rewards, fold, penalties, logged, copied, np.flatnonzero(learned))

    def _result(
        self, candidate: Candidate, sample: TrainRows, copied: "Copied", regression: "Choice | None" = None
    ) -> Result:
        """`copied`: the copy, evaluated on the sample's rows. `regression`: the given one, else selected."""
        learned = sample.learned(candidate.fold)
        rewards = Rewards.of(-sample.rows.cost[learned].astype(np.float64))
        rows = self._rows(sample, copied, learned)
        fold = _at_least_two(_parts_of(sample.number[learned], candidate.fold.seed))
        given = candidate.hyperparameters["penalty"]
        weight = _weights(sample.take(learned))
        losses = np.empty(0)
        if regression is None:
            penalties = PENALTIES if given is None else (given,)
            regression, losses = self._selected(rows, rewards, fold, penalties, sample, learned, copied)
        parameters = rewards.fit(rows, weight[rows.order, None], [regression])[:, 0]
        model: Head | Units = Head.of(parameters, rows)
        if self._spec.model == "mlp":
            network = fit_reward_network(
                copied.standardised(sample.rows.context[learned]),
                copied.logged[learned, None][:, : int(self._uses_copy)],
                torch.from_numpy(sample.rows.action[learned].astype(np.int64)).to(rows.x.device),
                torch.from_numpy(rewards.scaled).to(rows.x.device),
                torch.from_numpy(fold).to(rows.x.device),
                torch.from_numpy(weight).to(rows.x.device),
                actions=self._spec.actions,
                hidden=self._spec.hidden,
                penalties=NETWORK_PENALTIES if given is None else (given,),
                logistic=rewards.logistic,
                seed=candidate.fold.seed,
            )
            model = Units(network) if float(network.held_out_loss.mean()) < losses.mean() else model
        return Result(
            tensors=self._policy_tensors(model, copied.network),
            held_out=self._held_out(model, rewards, sample.take(~learned), copied, np.flatnonzero(~learned)),
            curve=[],
            best_epoch=1,
            link=RewardLink(shift=rewards.shift, scale=rewards.scale, logistic=rewards.logistic),
        )

    def _policy_tensors(self, model: "Head | Units", network: PolicyNetwork) -> Tensors:
        """The tensors of the policy's network: the copy's units and, next to them, the reward units, if there are
        any."""
        own_units, copied_units = model.layers(network), [_weight_and_bias(layer) for layer in _linear_layers(network)]
        tensors = network_tensors(network)
        names = [name.removesuffix(".weight") for name, p in network.named_parameters() if name.endswith(".weight")]
        if self.networks[0] == self._spec:  # the model has only one of the two
            changed = dict(zip(names[-len(own_units) :], own_units, strict=True))
        else:
            reward_units = own_units if isinstance(model, Units) else [torch.zeros_like(w) for w in copied_units]
            copied_last = model.slope * copied_units[-1] if isinstance(model, Units) else own_units[-1]
            changed = dict(zip(names, _side_by_side([*copied_units[:-1], copied_last], reward_units), strict=True))
        for name, layer in changed.items():
            whole = layer.to(torch.float32).cpu().numpy()
            tensors[f"{name}.weight"], tensors[f"{name}.bias"] = whole[:, :-1].copy(), whole[:, -1].copy()
        return tensors

    def _held_out(
        self,
        model: "Head | Units",
        rewards: "Rewards",
        held_out: TrainRows,
        copied: "Copied",
        index: npt.NDArray[np.int64],
    ) -> Floats | None:
        """The columns of `HeldOut` for the policy that takes the best action. `index`: the rows' indices in the
        sample."""
        parts, importance = [], _weights(held_out)
        at_once = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // self._spec.actions))
        for start in range(0, len(index), at_once):
            part = slice(start, start + at_once)
            eta = model.predict(copied, held_out.rows.context[part], torch.from_numpy(index[part]))
            action, cost = held_out.rows.action[part], -rewards.expected(eta).cpu().numpy()  # (rows, actions)
            best, row = eta.argmax(-1).cpu().numpy(), np.arange(len(cost))
            weight = (action == best) / np.maximum(held_out.rows.propensity[part], _NU)
            columns = (weight, held_out.rows.cost[part], cost[row, best], cost[row, action], importance[part])
            parts.append(np.stack(HeldOut(*columns)))
        return np.concatenate(parts, axis=1).astype(np.float64) if parts else None


def _weights(rows: TrainRows) -> Floats:
    """1/P(known | x, a) of the known rows, with a mean of 1."""
    return np.ones(rows.rows.rows) if rows.o is None or not len(rows.o) else rows.o / rows.o.mean(dtype=np.float64)


DM = partial(DirectLearner, uses_copy=False)
DM_S2BL = partial(DirectLearner, uses_copy=True)


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
        eta, reward = predict_logged(*given, **options, tolerance=_ROUGH), given[1][:, None]
        loss = loss_of(eta, reward, logistic=self.logistic)
        return loss.to(torch.float64).cpu().numpy()

    def _given(
        self, rows: RegressionRows, weight: Floats, choices: Sequence["Choice"]
    ) -> tuple[tuple[RegressionRows, Tensor, Tensor, Tensor], dict[str, Any]]:
        reward, weights = (torch.from_numpy(values).to(rows.x) for values in (self.scaled[rows.order], weight))
        penalty = rows.x.new_tensor([choice.penalty for choice in choices])
        with_scores = torch.tensor([choice.with_copy for choice in choices], device=rows.x.device)
        return (rows, reward, weights, penalty), {"logistic": self.logistic, "with_scores": with_scores}


def _parts_of(number: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """The cross-validation and cross-fitting part of each known row, by its number."""
    return (uniform_hash(number, seed ^ _FOLD_SEED) * _FOLDS).astype(np.int64)


def _at_least_two(part: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Rows of one part, such as a single cluster, are divided: else a fold would have nothing to learn from."""
    return np.arange(len(part)) % _FOLDS if len(np.unique(part)) < 2 else part


class Choice(NamedTuple):
    """A regression: its penalty α, and whether it uses the copy of the logging policy."""

    penalty: float
    with_copy: bool


def _selected(
    rows: RegressionRows,
    rewards: Rewards,
    fold: npt.NDArray[np.int64],
    penalties: Sequence[float],
    weight: Floats,
) -> tuple[Choice, Floats]:
    """The regression that best predicts the rewards of other folds, and its losses there, in the original order of the
    rows. The copy is dropped only if that is better by more than one standard error: a copy fitted to few rows may
    mislead, but few known rows cannot show it."""
    losses: dict[Choice, Floats] = {}
    single = rows.in_single_precision()

    def best(with_copy: bool, tried: Sequence[float]) -> Choice:
        _add_losses(losses, single, rewards, fold, weight, [Choice(penalty, with_copy) for penalty in tried])
        return min((choice for choice in losses if choice.with_copy == with_copy), key=lambda c: losses[c].sum())

    bests = []
    for with_copy in (True, False) if rows.scores.shape[1] else (False,):
        coarse = penalties.index(best(with_copy, penalties[::2]).penalty)
        bests.append(best(with_copy, [*penalties[max(coarse - 1, 0) : coarse], *penalties[coarse + 1 : coarse + 2]]))
    choice = bests[-1 if is_clear(losses[bests[0]] - losses[bests[-1]]) else 0]
    by_row = np.empty(len(rows.order))
    by_row[rows.order] = losses[choice]
    return choice, by_row


def _selected_by_value(
    rows: RegressionRows,
    rewards: Rewards,
    fold: npt.NDArray[np.int64],
    penalties: Sequence[float],
    logged: LoggedRows,
    copied: "Copied",
    index: npt.NDArray[np.int64],
) -> tuple[Choice, Floats]:
    """The regression that best predicts the rewards of other folds, among those whose best actions are worth most
    there (`value_choice.py`). As above, the copy is dropped only if that is clearly better. `index`: of the rows in
    `copied`; all arrays are in the original order of the rows."""
    with_copy = (True, False) if rows.scores.shape[1] else (False,)
    choices = [Choice(penalty, uses) for uses in with_copy for penalty in penalties]
    single, learns = rows.in_single_precision(), fold[:, None] != np.arange(_FOLDS)
    weight = (learns * logged.weight[:, None])[rows.order]
    models: list[Predicted] = []
    expected, least = np.empty((0, 0)), np.inf  # of the regression with the smallest loss
    for choice in choices:
        parameters = rewards.fit(single, weight, [choice] * _FOLDS, tolerance=_ROUGH)
        eta = parameters.new_empty(len(index), rows.actions)
        for number, column in enumerate(parameters.T):
            held_out = np.flatnonzero(fold == number)
            at = torch.from_numpy(index[held_out]).to(eta.device)
            eta[torch.from_numpy(held_out).to(eta.device)] = Head.of(column, rows).eta(copied, at).to(eta)
        model = Predicted(eta.argmax(1).cpu().numpy(), rewards.losses_of(eta, logged.action) * logged.weight)
        models.append(model)
        if model.loss.sum() < least:
            least = float(model.loss.sum())
            expected = rewards.scaled_expected(eta).to(torch.float64).cpu().numpy()
    near = near_the_best(models, expected, logged)
    bests = [
        min(of_kind, key=lambda number: models[number].loss.sum())
        for uses in with_copy
        if (of_kind := [number for number in near if choices[number].with_copy == uses])
    ]
    chosen = bests[-1 if is_clear(models[bests[0]].loss - models[bests[-1]].loss) else 0]
    return choices[chosen], models[chosen].loss


def _add_losses(
    losses: dict[Choice, Floats],
    rows: RegressionRows,
    rewards: Rewards,
    fold: npt.NDArray[np.int64],
    weight: Floats,
    choices: Sequence[Choice],
) -> None:
    """Add the loss of each row, in the order of `rows`, under a regression on the other folds."""
    weight = weight[rows.order, None]
    at_once = max(1, _PARAMETERS_AT_ONCE // (_FOLDS * sum(rows.rotated_sizes)))
    for start in range(0, len(choices), at_once):
        part = choices[start : start + at_once]
        learns = fold[rows.order][:, None] != np.repeat(np.arange(_FOLDS), len(part))  # (rows, folds × choices)
        by_fold = np.where(learns, 0.0, rewards.losses(rows, learns * weight, [*part] * _FOLDS) * weight)
        held_out = by_fold.reshape(len(learns), _FOLDS, -1).sum(axis=1)  # (rows, choices)
        losses |= dict(zip(part, held_out.T, strict=True))


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
        hook = _linear_layers(network)[-1].register_forward_hook(lambda layer, given, out: features.append(given[0]))
        network.eval()
        total, logged = torch.zeros((), dtype=torch.float64, device=device), []
        actions = _linear_layers(network)[-1].out_features
        at_once = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // actions))
        for start in range(0, len(context), at_once):
            part = slice(start, start + at_once)
            log_pi0 = log_softmax(network(context_tensor(context[part], device)).to(torch.float64), dim=-1)
            taken = torch.from_numpy(action[part].astype(np.int64)).to(device)
            total += log_pi0.sum()
            logged.append(log_pi0.gather(1, taken[:, None]).squeeze(1))
        hook.remove()
        mean = total / (len(context) * actions)
        return cls(network, torch.cat(features), mean, torch.cat(logged) - mean)

    @torch.no_grad()
    def log_pi0(self, rows: Tensor) -> Tensor:
        """(rows, actions)"""
        logits = _linear_layers(self.network)[-1](self.features[rows])
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
        weight = (self.theta + self.shared).T
        return copied.features[rows].to(weight) @ weight[:-1] + weight[-1] + self.slope.sum() * copied.log_pi0(rows)

    def layers(self, network: PolicyNetwork) -> list[Tensor]:
        """The network's last layer, whose logits equal η up to a term that does not depend on the action."""
        return [self.theta + self.slope.sum() * _weight_and_bias(_linear_layers(network)[-1])]


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
        part = np.where(learned, _parts_of(train_rows.number, self.fold.seed), _FOLDS)
        device, actions = self.copied.features.device, self.heads[0].theta.shape[0]
        costs = np.empty((rows.rows, actions), np.float32)
        at_once = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // actions))
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


class DoublyRobustLearner:
    """Trains policies by gradient descent on the terms of `objectives/doubly_robust.py`. The reward model is that of
    the direct method with a linear model or, for an image network, on the body of the copy."""

    def __init__(self, settings: TrainSettings, spec: NetworkSpec, *, uses_copy: bool) -> None:
        is_linear = spec.model in STACKABLE or not uses_copy
        model_spec = replace(spec, model="linear", hidden=()) if is_linear else spec
        self._settings, self._spec, self._uses_copy = settings, spec, uses_copy
        self._model = DirectLearner(settings, model_spec, uses_copy=uses_copy)
        self.networks: tuple[NetworkSpec, ...] = (spec, model_spec)

    def fit(self, data: TrainingData, candidates: Sequence[Candidate], run: Run) -> Iterator[tuple[Candidate, Result]]:
        learner = GradientLearner(
            self._settings,
            self._spec,
            doubly_robust.RISK,
            doubly_robust.REGULARISER,
            reg_on_known=not self._uses_copy,
            cost_model=lambda fold: self._model.cost_model(data, fold, run),
        )
        # The weight of the model's expected cost is 1: only the correction has a weight that can be chosen.
        weighted = [replace(one, hyperparameters={**one.hyperparameters, "lam": 1.0}) for one in candidates]
        given = {one.key: one for one in candidates}
        yield from ((given[one.key], result) for one, result in learner.fit(data, weighted, run))


def _linear_layers(network: PolicyNetwork) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


def _weight_and_bias(layer: nn.Linear) -> Tensor:
    """(units, inputs + 1)"""
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()


def _side_by_side(first: Sequence[Tensor], second: Sequence[Tensor]) -> list[Tensor]:
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


DR = partial(DoublyRobustLearner, uses_copy=False)
DR_S2BL = partial(DoublyRobustLearner, uses_copy=True)
