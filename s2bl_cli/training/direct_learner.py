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
from dataclasses import replace
from functools import partial
from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.checkpoints import Result, RewardLink
from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.objectives import doubly_robust
from s2bl_cli.objectives.regularisers.match import BALANCE
from s2bl_cli.policies.network import PolicyNetwork, network_from, network_tensors, on_device
from s2bl_cli.policies.stacked import STACKABLE
from s2bl_cli.registry import REGULARISERS, RISKS
from s2bl_cli.reward_models.action_regression import RegressionRows, regression_rows
from s2bl_cli.reward_models.reward_network import PENALTIES as NETWORK_PENALTIES
from s2bl_cli.reward_models.reward_network import fit_reward_network
from s2bl_cli.training.candidates import Candidate, Fold
from s2bl_cli.training.data import TrainingData, TrainRows
from s2bl_cli.training.direct_models import (
    CELLS_AT_ONCE,
    FOLDS,
    ROWS_AT_ONCE,
    Choice,
    Copied,
    DirectModel,
    Floats,
    Head,
    Rewards,
    Units,
    linear_layers,
    parts_of,
    side_by_side,
    weight_and_bias,
)
from s2bl_cli.training.gradient_learner import GradientLearner, start_network
from s2bl_cli.training.interruption import Interrupted
from s2bl_cli.training.learner import Run
from s2bl_cli.training.regression_choice import PENALTIES, at_least_two, choose_by_loss, choose_by_value
from s2bl_cli.training.reward_body import fit_to_rewards, propensities_follow_context
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.steps import steps_per_pass
from s2bl_cli.training.validation import HeldOut
from s2bl_cli.training.value_choice import LoggedRows, is_clear

_COPY_BATCH = 512  # propensities are labels without noise, so few steps with large batches are enough
_COPY_PASSES = 10  # over all rows, within these limits:
_LEAST_COPY_STEPS, _MOST_COPY_STEPS = {"linear": 1200, "mlp": 2500}, 3000
_COPY_LR, _LOGIT_STEP = 0.02, 2.4  # for Adam; the second is the maximum change of a logit in one step
# β of the copy, by what the known rows say about the logging policy. Large weights make the gradients of an mlp noisy,
# and an mlp can match all actions.
_GOOD, _UNCLEAR, _ADVERSE = 0.0, 0.5, {"linear": 1.0, "mlp": 0.5}
_CLEAR = 3.0  # standard errors
# A penalty is the precision of a prior, which does not depend on the number of rows: it is chosen on a part of many.
_COMPARED_CELLS, _LEAST_COMPARED, _MOST_COMPARED = 1 << 22, 5_000, 30_000  # rows × features, rows, rows
_NU = 0.001  # truncation in estimates on held-out rows
_NOTHING_ELSE = 1e9  # a penalty that leaves only the scores and the mean


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
            for candidate in of_seed:
                if run.should_stop():
                    raise Interrupted
                yield candidate, self._result(candidate, sample, self._copied(data, candidate.fold, run), run)

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
                yield candidate, self._result(candidate, sample, copied, run, Choice(_NOTHING_ELSE, with_copy=True))

    def _copied(self, data: TrainingData, fold: Fold, run: Run) -> Copied:
        """The copy, or without one the initial network, on the known rows. Usually the same for all folds and methods;
        only the latest is kept."""
        balance = self._balance(data.statistics.sample, fold) if self._uses_copy else None
        key = (self._spec, balance, fold.seed)
        latest = run.shared.get("copied")
        if latest is None or latest[0] != key:
            run.shared.pop("copied", None)
            network = (
                start_network(self._spec, data, fold.seed, run)
                if balance is None
                else self._copy(data, fold.seed, balance, run)
            )
            rows = data.statistics.sample.rows
            latest = run.shared["copied"] = key, Copied.of(network, rows.context, rows.action, run.device)
        copied: Copied = latest[1]
        return copied

    def _balance(self, sample: TrainRows, fold: Fold) -> float:
        """β of the copy. The actions that a good logging policy takes often are the best ones, so the copy has to match
        these most closely; with an adverse one, it has to match the rare ones. The sign of the covariance of reward and
        log p shows which it is, on the rows that policies of the fold learn from. An image network has one copy for all
        folds, to save time."""
        if self._has_body:
            return _UNCLEAR
        known = sample.take(sample.learned(fold))
        weight, log_p = _weights(known), np.log(known.rows.propensity.astype(np.float64))
        reward = -known.rows.cost.astype(np.float64)
        products = weight * (reward - np.average(reward, weights=weight)) * (log_p - np.average(log_p, weights=weight))
        if is_clear(products, _CLEAR):
            return _GOOD
        return _ADVERSE[self._spec.model] if is_clear(-products, _CLEAR) else _UNCLEAR

    def _copy(self, data: TrainingData, seed: int, balance: float, run: Run) -> PolicyNetwork:
        """π̂₀. Its propensities are matched without feedback; only `balance` depends on some."""
        settings, match = self._settings, REGULARISERS.load("match")
        match = match.exact if data.has_pi0 else match
        if self._spec.model in STACKABLE:
            lr = min(_COPY_LR, _LOGIT_STEP / self._spec.context.features)
            batch_size = max(_COPY_BATCH, settings.batch_size)
            settings = replace(settings, lr=lr, batch_size=batch_size)
            if settings.steps is None:
                passes, most = (_COPY_PASSES, _MOST_COPY_STEPS) if settings.epochs is None else (settings.epochs, None)
                steps = passes * steps_per_pass(data.statistics.rows, batch_size)
                steps = max(steps if most is None else min(steps, most), _LEAST_COPY_STEPS[self._spec.model])
                settings = replace(settings, steps=steps, epochs=None)
        learner = GradientLearner(settings, self._spec, RISKS.load("none"), match, validates=False)
        stage = f"copying the logging policy ({self._spec.model}, β {balance:g})"
        copy_run = replace(run, stage=stage, keeps_tensors=True)
        (result,) = copy_run.fit(learner, data, [Candidate(Fold(seed), 0, {"lam": 1.0, BALANCE.name: balance})])
        return on_device(network_from(self._spec, result.tensors, "the copy"), run.device)

    def cost_model(self, data: TrainingData, fold: Fold, run: Run) -> "DirectModel":
        """The regression head of the direct method, cross-fitted on the known rows that policies of the fold learn
        from."""
        if self._needs_reward_body(data, fold.seed, run):
            return self._linear.cost_model(data, fold, run)
        sample = data.statistics.sample
        copied = self._copied(data, fold, run)
        learned = sample.learned(fold)
        rewards = Rewards.of(-sample.rows.cost[learned].astype(np.float64))
        rows = self._rows(sample, copied, learned)
        part = parts_of(sample.number[learned], fold.seed)
        weight = _weights(sample.take(learned))
        parts = at_least_two(part)
        regression, _ = self._selected(rows, rewards, parts, PENALTIES, sample, fold, copied, run)
        learns = (part[:, None] != np.arange(FOLDS + 1)).astype(np.float64)  # the last one learns from all
        learns[:, ~learns.any(axis=0)] = 1  # or of very few rows, a model would have none
        parameters = rewards.fit(rows, (learns * weight[:, None])[rows.order], [regression] * (FOLDS + 1))
        return DirectModel(fold, copied, rewards, [Head.of(column, rows) for column in parameters.T])

    def _rows(self, sample: TrainRows, copied: "Copied", learned: npt.NDArray[np.bool_]) -> RegressionRows:
        scores = copied.logged[learned, None][:, : int(self._uses_copy or self._has_body)]
        features = copied.features if learned.all() else copied.features[learned]
        return regression_rows(features, scores, sample.rows.action[learned], self._spec.actions, copied.axes)

    def _compared(self, rows: int) -> npt.NDArray[np.bool_]:
        """The rows that regressions are compared on: (rows,)."""
        of_cells = _COMPARED_CELLS // max(1, self._spec.context.features)
        most = min(max(of_cells, _LEAST_COMPARED), _MOST_COMPARED)
        compared: npt.NDArray[np.bool_] = np.arange(rows) % max(1, -(-rows // most)) == 0
        return compared

    def _selected(
        self,
        rows: RegressionRows,
        rewards: "Rewards",
        fold: npt.NDArray[np.int64],
        penalties: Sequence[float],
        sample: TrainRows,
        of: Fold,
        copied: "Copied",
        run: Run,
    ) -> tuple["Choice", Floats]:
        """The regression on the rows that policies of a fold learn from, and the losses of the compared rows on other
        parts (`fold`)."""
        learned = sample.learned(of)
        weight = _weights(sample.take(learned))
        if not self._has_body:
            compared = self._compared(len(fold))
            if not compared.all():
                rows = self._rows(sample, copied, _where(learned, compared))
            of_compared = replace(rewards, scaled=rewards.scaled[compared])
            # Other methods compare some of the same regressions. Only hidden units differ with and without a copy.
            features = (self._spec, self._uses_copy and bool(self._spec.hidden))
            losses = run.shared.setdefault(("losses of regressions", features, of), {})
            return choose_by_loss(rows, of_compared, fold[compared], penalties, weight[compared], losses)
        logged = LoggedRows(
            sample.rows.action[learned].astype(np.int64),
            sample.rows.propensity[learned].astype(np.float64),
            rewards.scaled,
            weight,
        )
        return choose_by_value(rows, rewards, fold, penalties, logged, copied, np.flatnonzero(learned))

    def _result(
        self,
        candidate: Candidate,
        sample: TrainRows,
        copied: "Copied",
        run: Run,
        regression: "Choice | None" = None,
    ) -> Result:
        """`copied`: the copy, evaluated on the sample's rows. `regression`: the given one, else selected."""
        learned = sample.learned(candidate.fold)
        rewards = Rewards.of(-sample.rows.cost[learned].astype(np.float64))
        rows = self._rows(sample, copied, learned)
        fold = at_least_two(parts_of(sample.number[learned], candidate.fold.seed))
        given = candidate.hyperparameters["penalty"]
        weight = _weights(sample.take(learned))
        losses = np.empty(0)
        if regression is None:
            penalties = PENALTIES if given is None else (given,)
            regression, losses = self._selected(rows, rewards, fold, penalties, sample, candidate.fold, copied, run)
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
            of_network = network.held_out_loss.cpu().numpy()[self._compared(len(fold))]
            model = Units(network) if of_network.mean() < losses.mean() else model
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
        own_units, copied_units = model.layers(network), [weight_and_bias(layer) for layer in linear_layers(network)]
        tensors = network_tensors(network)
        names = [name.removesuffix(".weight") for name, p in network.named_parameters() if name.endswith(".weight")]
        if self.networks[0] == self._spec:  # the model has only one of the two
            changed = dict(zip(names[-len(own_units) :], own_units, strict=True))
        else:
            reward_units = own_units if isinstance(model, Units) else [torch.zeros_like(w) for w in copied_units]
            copied_last = model.slope * copied_units[-1] if isinstance(model, Units) else own_units[-1]
            changed = dict(zip(names, side_by_side([*copied_units[:-1], copied_last], reward_units), strict=True))
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
        at_once = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // self._spec.actions))
        for start in range(0, len(index), at_once):
            part = slice(start, start + at_once)
            eta = model.predict(copied, held_out.rows.context[part], torch.from_numpy(index[part]))
            action, cost = held_out.rows.action[part], -rewards.expected(eta).cpu().numpy()  # (rows, actions)
            best, row = eta.argmax(-1).cpu().numpy(), np.arange(len(cost))
            weight = (action == best) / np.maximum(held_out.rows.propensity[part], _NU)
            columns = (weight, held_out.rows.cost[part], cost[row, best], cost[row, action], importance[part])
            parts.append(np.stack(HeldOut(*columns)))
        return np.concatenate(parts, axis=1).astype(np.float64) if parts else None


def _where(mask: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The chosen ones of the mask's rows, as a mask."""
    some = np.zeros_like(mask)
    some[np.flatnonzero(mask)[chosen]] = True
    return some


def _weights(rows: TrainRows) -> Floats:
    """1/P(known | x, a) of the known rows, with a mean of 1."""
    return np.ones(rows.rows.rows) if rows.o is None or not len(rows.o) else rows.o / rows.o.mean(dtype=np.float64)


DM = partial(DirectLearner, uses_copy=False)
DM_S2BL = partial(DirectLearner, uses_copy=True)


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


DR = partial(DoublyRobustLearner, uses_copy=False)
DR_S2BL = partial(DoublyRobustLearner, uses_copy=True)
