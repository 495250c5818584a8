"""Trains policies by stochastic gradients: risk + λ·regulariser. Linear and mlp policies are stacked, others run
alone."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from s2bl_cli.contract.checkpoints import Result
from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.objectives.hyperparameters import Values
from s2bl_cli.objectives.terms import FILLED_COSTS, PRIOR, REWARD_WEIGHT, Objective, Regulariser, Risk
from s2bl_cli.policies.network import PolicyNetwork, build_network, network_from, on_device, parameter_count
from s2bl_cli.policies.single import SinglePolicy, is_bf16
from s2bl_cli.policies.stacked import STACKABLE, StackedPolicies
from s2bl_cli.policies.trainable import TrainablePolicies
from s2bl_cli.registry import COST_MODELS, OPTIMIZERS, REGULARISERS, RISKS, SELECTORS
from s2bl_cli.training.batches import Batches, CostModel
from s2bl_cli.training.candidates import Candidate, Fold
from s2bl_cli.training.convergence import undertrained
from s2bl_cli.training.cost_scale import CostScale, cost_scale
from s2bl_cli.training.data import TrainingData
from s2bl_cli.training.expected_rewards import ExpectedRewards, fit_expected_rewards, scaled
from s2bl_cli.training.interruption import Interrupted
from s2bl_cli.training.learner import Run
from s2bl_cli.training.loop import TrainState, check_finite
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.steps import settings_for, steps_of
from s2bl_cli.training.validation import HeldOutPredictions, Tracker, fold_models

Stack = list[list[Candidate]]  # by fold: policies that are stepped together

# Number of parameters trained together: with their gradients and the optimizer's state they need 16 bytes each.
_MOST_TOGETHER = 1 << 27


class GradientLearner:
    """Fits the objective of the settings, or other given terms; in that case it need not predict held-out rows."""

    def __init__(
        self,
        settings: TrainSettings,
        spec: NetworkSpec,
        risk: Risk | None = None,
        regulariser: Regulariser | None = None,
        *,
        validates: bool = True,
        reg_on_known: bool | None = None,
        cost_model: Callable[[Fold], CostModel] | None = None,
    ) -> None:
        """`cost_model`: fits the cost model of a fold, for terms that need expected costs of all actions."""
        self._settings, self._spec, self._validates = settings, spec, validates
        self.networks: tuple[NetworkSpec, ...] = (spec,)
        self._reg_on_known = settings.reg_rows == "known" if reg_on_known is None else reg_on_known
        self._cost_model = cost_model
        self._risk = risk or settings.risk_term
        self._regulariser = regulariser or settings.regulariser_term

    def fit(self, data: TrainingData, candidates: Sequence[Candidate], run: Run) -> Iterator[tuple[Candidate, Result]]:
        settings = self._settings = settings_for(self._settings, self._spec, data.statistics)
        if self._regulariser.needs and not any(candidate.hyperparameters["lam"] for candidate in candidates):
            # λ = 0: the regulariser has no effect.
            plain = GradientLearner(settings, self._spec, self._risk, REGULARISERS.load("none"))
            yield from plain.fit(data, candidates, run)
            return
        batch = min(settings.batch_size, data.statistics.rows)
        bf16 = is_bf16(settings.precision, self._spec, batch, run.device)
        stacks = self._stacks(data, candidates, alone=bf16 or run.compiled)
        epochs = steps_of(settings, data.statistics.rows).epochs
        activity = run.stage if settings.name in run.stage else f"{run.stage} {settings.name}"
        with run.console.progress(activity, len(stacks) * epochs, "epochs") as advance:
            for number, stack in enumerate(stacks):
                if run.unfinished([candidate for row in stack for candidate in row]):
                    yield from self._fit_stack(data, stack, run, bf16, number * epochs, advance)

    def _stacks(self, data: TrainingData, candidates: Sequence[Candidate], *, alone: bool) -> list[Stack]:
        """Candidates that can be stacked are grouped as far as memory allows. Seeds with fewer known rows than a batch
        get their own stack. Otherwise all policies would use their smaller batch, and none would equal the one trained
        alone."""
        if alone or self._spec.model not in STACKABLE:
            return [[[candidate]] for candidate in candidates]
        by_fold = {fold: list(of_fold) for fold, of_fold in groupby(candidates, lambda candidate: candidate.fold)}
        batch_of: dict[int, int] = {}  # by seed
        for fold in by_fold:
            learned = data.statistics.learned_count(fold)
            batch_of[fold.seed] = min(batch_of.get(fold.seed, self._settings.batch_size), learned)
        capacity = max(1, _MOST_TOGETHER // parameter_count(self._spec))  # policies
        stacks: dict[tuple[int, int], Stack] = {}
        for fold, of_fold in by_fold.items():
            for row in _parts(of_fold, capacity):
                stacks.setdefault((batch_of[fold.seed], len(row)), []).append(row)
        return [stack for (_, size), rows in stacks.items() for stack in _parts(rows, max(1, capacity // size))]

    def _fit_stack(
        self, data: TrainingData, stack: Stack, run: Run, bf16: bool, epochs_before: int, advance: Any
    ) -> Iterator[tuple[Candidate, Result]]:
        settings, folds = self._settings, [row[0].fold for row in stack]
        key = stack[0][0].key
        scales = [cost_scale(settings, data.statistics, fold) for fold in folds]
        batches = Batches(
            data,
            folds,
            scales,
            self._expected_rewards(data, folds, run.device),
            self._risk,
            self._regulariser,
            settings,
            run.device,
            self._reg_on_known,
            [] if self._cost_model is None else [self._cost_model(fold) for fold in folds],
        )
        prior = self._prior(data, folds, run, bf16=bf16) if PRIOR in self._regulariser.needs else None
        starts = [start_network(self._spec, data, fold.seed, run) for fold in folds]
        policies = self._policies(starts, len(stack[0]), bf16=bf16, compiled=run.compiled)
        optimizer = OPTIMIZERS.load(settings.optimizer)(policies.parameters, settings.weight_decay)
        objective = self._objective(data, stack, scales, run.device)
        tracker = self._tracker(batches, stack, run.device)
        state = TrainState(policies, optimizer)
        saved = run.checkpoint.progress.current
        if saved is not None and (saved.stage, saved.key) == (run.stage, key):
            run.checkpoint.expect(state.matches(saved) and tracker.matches(saved.results))
            state.load(saved)
            tracker.results = saved.results

        nu = min(candidate.hyperparameters.get("nu") or 0.0 for row in stack for candidate in row)
        while state.epoch < batches.steps.epochs and tracker.in_patience(state.epoch):
            started_at = time.monotonic()
            try:
                metrics = state.train_epoch(batches, objective, prior, run.should_stop)
            except Interrupted:
                run.checkpoint.progress.current = state.saved(run.stage, key, tracker.results)
                raise
            check_finite(metrics, state.epoch, settings.lr or 0.0, nu)
            tracker.epoch_done(state.epoch, metrics, policies)
            rows = batches.steps.in_epoch(state.epoch - 1) * settings.batch_size
            rate = rows / max(time.monotonic() - started_at, 1e-9)
            advance(epochs_before + state.epoch, f"loss {metrics['loss'].mean().item():.4f} {rate:,.0f} rows/s")
            if run.checkpoint.is_due(state.epoch):
                run.checkpoint.progress.current = state.saved(run.stage, key, tracker.results)
                run.checkpoint.write()
        results = list(tracker.finished(state.epoch, policies))
        still_falls = undertrained(policies, batches, objective, self._spec.actions).flatten().tolist()
        for (candidate, result), falls in zip(results, still_falls, strict=True):
            result.undertrained = falls
            yield candidate, result

    def _policies(
        self, starts: Sequence[PolicyNetwork], policies: int, *, bf16: bool, compiled: bool
    ) -> TrainablePolicies:
        if self._spec.model in STACKABLE and not bf16 and not compiled:
            return StackedPolicies(starts, policies)
        return SinglePolicy(starts[0], bf16=bf16, compiled=compiled)

    def _objective(
        self, data: TrainingData, stack: Stack, scales: Sequence[CostScale], device: torch.device
    ) -> Objective:
        """The hyperparameters of the stack's policies: one number if all agree, otherwise a tensor (G, C, 1)."""
        costs = [h.name for h in self._risk.hyperparameters if h.is_cost]

        def values_of(candidate: Candidate, scale: CostScale) -> Values:
            given = candidate.hyperparameters
            mean = partial(data.mean_of_propensities, fold=candidate.fold, on_known=self._reg_on_known)
            scaled = {name: float(scale(given[name] or 0.0)) for name in costs}
            return {**given, **scaled, **self._regulariser.derive(given, mean)}

        values = [[values_of(candidate, scale) for candidate in row] for row, scale in zip(stack, scales, strict=True)]

        def number(name: str) -> float | Tensor | None:
            by_policy = [[policy_values[name] for policy_values in row] for row in values]
            first = by_policy[0][0]
            if all(value == first for row in by_policy for value in row):
                return first
            return torch.tensor(by_policy, dtype=torch.float32, device=device).unsqueeze(-1)

        numbers = SimpleNamespace(**{name: number(name) for name in values[0][0]})
        lam = getattr(numbers, "lam", 0.0)
        lam = lam if isinstance(lam, float) else lam.squeeze(-1)
        return Objective(self._risk, self._regulariser, lam, numbers)

    def _tracker(self, batches: Batches, stack: Stack, device: torch.device) -> Tracker:
        settings, predictions = self._settings, None
        if self._validates and any(fold.start < fold.stop for fold in batches.folds):
            needs_model = SELECTORS.load(settings.selector).needs_model
            known = batches.data.statistics.sample
            models = fold_models(known, batches.folds, self._spec.actions, device) if needs_model else []
            predictions = HeldOutPredictions(
                partial(batches.rows, 0), settings.selection_nu, models, settings.select_act, self._spec.actions
            )
        patience = settings.patience if self._validates else None
        return Tracker(stack, predictions, settings.selector, patience, batches.scales)

    def _expected_rewards(
        self, data: TrainingData, folds: Sequence[Fold], device: torch.device
    ) -> list[ExpectedRewards]:
        if not {FILLED_COSTS, REWARD_WEIGHT} & {*self._risk.needs, *self._regulariser.needs}:
            return []
        model = COST_MODELS.load(self._settings.cost_model or "")
        has_weights = REWARD_WEIGHT in self._regulariser.needs
        expected = [
            fit_expected_rewards(model, data.statistics.without_held_out(fold), fold, device, with_baseline=has_weights)
            for fold in folds
        ]
        return scaled(expected, data.scan(), in_memory=not data.streamed) if has_weights else expected

    def _prior(self, data: TrainingData, folds: Sequence[Fold], run: Run, *, bf16: bool) -> Sequence[Tensor]:
        """θ₀ of lpr: the parameters of the given policy, or of one fitted to the logged actions of the regularised
        rows."""
        if run.prior is not None:
            tensors = [run.prior.policy.tensors] * len(folds)
        else:
            # Plain cross-entropy with the logged actions: wce sharpened with β = 0.
            terms = RISKS.load("none"), REGULARISERS.load("wce")
            imitation = GradientLearner(self._settings, self._spec, *terms, validates=False)
            candidates = [Candidate(fold, 0, {"lam": 1.0, "sharpen": 0.0, "cap": 1.0}) for fold in folds]
            prior_run = replace(run, stage=f"{run.stage}-prior", keeps_tensors=True)
            tensors = [result.tensors for result in prior_run.fit(imitation, data, candidates)]
        networks = [on_device(network_from(self._spec, prior, "the prior"), run.device) for prior in tensors]
        return self._policies(networks, 1, bf16=bf16, compiled=run.compiled).parameters


def start_network(spec: NetworkSpec, data: TrainingData, seed: int, run: Run) -> PolicyNetwork:
    """The initial network. Contexts are standardised with the train rows' moments or, if there is a prior, with the
    prior's, so that parameters are comparable."""
    torch.manual_seed(seed)
    network = build_network(spec)
    tensors = vars(data.statistics) if run.prior is None else run.prior.policy.tensors
    network.standardise_with(tensors["shift"], tensors["scale"])
    return on_device(network, run.device)


def _parts(rows: list[Any], size: int) -> list[Any]:
    """Split into consecutive parts of at most `size` rows."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
