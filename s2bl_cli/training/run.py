"""One run of `s2bl train`: fit policies to a log, select, and refit."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from s2bl_cli.console import Console, counted
from s2bl_cli.contract.acts import PLAIN, Act
from s2bl_cli.contract.checkpoints import Result
from s2bl_cli.contract.history import HistoryRow, write_history
from s2bl_cli.contract.lineage import Step, step_of
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.policies import LoadedPolicy, NetworkSpec, Policy
from s2bl_cli.contract.scores import LOGGING_POLICY, Score, write_scores
from s2bl_cli.contract.settings_text import data_settings, encode_settings, named_settings, train_settings
from s2bl_cli.contract.tensor_files import Layout
from s2bl_cli.errors import ContractError, SettingError
from s2bl_cli.metrics.estimate import IntervalSettings
from s2bl_cli.objectives.hyperparameters import NU, Values
from s2bl_cli.objectives.methods import GRADIENT_LEARNER
from s2bl_cli.objectives.terms import FILLED_COSTS, PI0, REWARD_WEIGHT
from s2bl_cli.policies.network import network_from, policy_layout
from s2bl_cli.policies.settings import parse_hidden
from s2bl_cli.registry import SELECTORS, load_target
from s2bl_cli.settings import flag, recorded
from s2bl_cli.training.acting import FoldPolicy, choose_act
from s2bl_cli.training.candidates import Candidate, Fold, candidates_of, folds_of
from s2bl_cli.training.comparison import Choice
from s2bl_cli.training.cost_scale import cost_scale, outside, range_warnings
from s2bl_cli.training.data import SAMPLE_BYTES, TrainingData, needs_streaming
from s2bl_cli.training.diagnosis import Finding, diagnose
from s2bl_cli.training.interruption import Interrupted, noted_signals
from s2bl_cli.training.learner import Checkpoint, Learner, Run
from s2bl_cli.training.missing_feedback import (
    TESTED_ROWS,
    fit_feedback_weights,
    missingness_warning,
    one_sided_warning,
)
from s2bl_cli.training.settings import AUTO, RunOptions, TrainSettings, check_rules, default_select_on
from s2bl_cli.training.steps import settings_for, steps_of
from s2bl_cli.training.validation import Selector

_COLUMNS = ("context", "action", "propensity", "cost", "split", "cluster")  # never `label`


@dataclass(frozen=True)
class TrainedPolicy:
    """A policy, and the estimate by which it was selected, if any."""

    policy: Policy
    candidate: Candidate
    estimate: float | None
    curve: list[tuple[int, str, float]]  # epoch, quantity, value
    findings: tuple[Finding, ...] = ()
    choice: Choice | None = None  # only for `--method auto`

    @property
    def seed(self) -> int:
        return self.candidate.fold.seed

    @property
    def hyperparameters(self) -> dict[str, float]:
        """The hyperparameters that the lineage records, without those that are off."""
        return {
            name: value
            for name, value in self.candidate.hyperparameters.items()
            if value is not None and flag(name)[2:] in self.policy.lineage.settings
        }

    def described(self, settings: TrainSettings) -> str:
        """`seed 0, λ 0.3, ν 0.001, selected by snips 0.71`, for display. The table of `auto` shows the
        hyperparameters."""
        if self.choice is not None:
            return f"seed {self.seed}"
        parts = [f"{settings.declared[name].symbol} {value:g}" for name, value in self.hyperparameters.items()]
        parts += [] if settings.act is None else [f"acts by {self.policy.acts.text}"]
        selected = "" if self.estimate is None else f", selected by {settings.selector} {self.estimate:.4f}"
        return ", ".join([f"seed {self.seed}", *parts]) + selected


@dataclass(frozen=True)
class TrainingRun:
    """A log and the settings to train with."""

    log: Log
    settings: TrainSettings
    stream: str = "off"
    prior: LoadedPolicy | None = None

    def policies(self, run: Run) -> list[TrainedPolicy]:
        """One policy per seed and candidate, or the selected policy of each seed. Raises Interrupted."""
        data = self.data(run.checkpoint.progress.streamed)
        run.checkpoint.start(self.identity, streamed=data.streamed, layouts=self.layouts)
        self.check(data)
        self.weigh_known(data, run)
        return self.policies_from(data, run)

    @property
    def learner(self) -> Learner:
        learner: Learner = load_target(self.settings.learner)(self.settings, self.spec)
        return learner

    @property
    def layouts(self) -> list[Layout]:
        """The layouts of the tensors that a checkpoint may contain."""
        return [policy_layout(network) for network in self.learner.networks]

    def policies_from(self, data: TrainingData, run: Run) -> list[TrainedPolicy]:
        """Like `policies`, but with data that is already checked and weighted."""
        settings, learner = self.settings, self.learner
        spec = learner.networks[0]
        if settings.cost_scale == "range" and settings.declared_range is None and settings.risk_term.needs:
            scales = [cost_scale(settings, data.statistics, fold) for fold in folds_of(settings)]
            for warning in range_warnings(data.statistics, scales):
                run.console.warn(f"{self.log.name}: {warning}")
        candidates = [candidate for fold in folds_of(settings) for candidate in self.candidates(data, fold)]
        keeps_tensors = settings.folds is None or settings.chooses_act
        choosing = run if settings.folds is None else replace(run, stage="choosing", keeps_tensors=keeps_tensors)
        results = choosing.fit(learner, data, candidates)
        estimates = {} if settings.select is None else self._estimates(data, candidates, results)
        selected = {seed: max(by_number, key=by_number.__getitem__) for seed, by_number in estimates.items()}
        values = {candidate.number: candidate.hyperparameters for candidate in candidates}
        of_folds = list(zip(candidates, results, strict=True))
        if settings.folds is not None:
            candidates = [
                candidate
                for seed in settings.seed_list
                for candidate in self.candidates(data, Fold(seed))
                if selected.get(seed, candidate.number) == candidate.number
            ]
            results = run.fit(learner, data, candidates)
        trained = []
        for candidate, result in zip(candidates, results, strict=True):
            if selected.get(candidate.fold.seed, candidate.number) == candidate.number:
                act = self._act(candidate, of_folds, data, spec, run.device)
                of_seed = estimates.get(candidate.fold.seed, {})
                policy = self._policy(candidate, result, data, spec, act)
                policy = replace(policy, searched=_searched(of_seed, values))
                estimate = of_seed.get(candidate.number)
                findings = tuple(self._findings(policy, candidate, result, data, run.device))
                trained.append(TrainedPolicy(policy, candidate, estimate, result.curve, findings))
        return trained

    def _findings(
        self, policy: Policy, candidate: Candidate, result: Result, data: TrainingData, device: torch.device
    ) -> Iterator[Finding]:
        """What went wrong in gradient training, as far as the train rows show it."""
        steps = steps_of(settings_for(self.settings, self.spec, data.statistics), data.statistics.rows).total
        if result.undertrained:
            option = "--steps" if self.settings.epochs is None else "--epochs"
            yield Finding(f"undertrained: the loss would still fall after {counted(steps, 'step')}; raise {option}")
        elif self.settings.learner == GRADIENT_LEARNER and steps and self.settings.act is None:
            nu = float(candidate.hyperparameters.get("nu", NU.default) or 0)
            yield from diagnose(policy, data, nu, device)

    def candidates(self, data: TrainingData, fold: Fold) -> list[Candidate]:
        self._check_fold(data, fold)
        known, learned = data.statistics.known, data.statistics.learned(fold)
        return candidates_of(self.settings, fold, known.c[learned], known.o[learned])

    def _estimates(
        self, data: TrainingData, candidates: Sequence[Candidate], results: Sequence[Result]
    ) -> dict[int, dict[int, float]]:
        """For each seed, the estimate of each candidate by its number, on all rows that the seed's folds held out. Ties
        go to the first candidate. Costs are on the scale of the policy that is kept."""
        held_out: dict[tuple[int, int], list[Any]] = {}  # by seed and candidate number
        for candidate, result in zip(candidates, results, strict=True):
            if result.held_out is not None:
                held_out.setdefault((candidate.fold.seed, candidate.number), []).append(result.held_out)
        settings = self.settings
        selector: Selector = SELECTORS.load(settings.selector)
        kept = {c.fold.seed: c.fold if settings.folds is None else Fold(c.fold.seed) for c in candidates}
        scales = {seed: cost_scale(settings, data.statistics, fold) for seed, fold in kept.items()}
        epochs = 1 if settings.patience is None else steps_of(self._suited(data), data.statistics.rows).epochs
        tried = epochs * len({candidate.number for candidate in candidates})
        estimates: dict[int, dict[int, float]] = {}
        for (seed, number), parts in held_out.items():
            estimate = selector(np.concatenate(parts, axis=1), scales[seed], tried)
            estimates.setdefault(seed, {})[number] = estimate if estimate > -math.inf else -math.inf  # NaN too
        usable = [seed for seed, by_number in estimates.items() if max(by_number.values()) > -math.inf]
        if len(usable) < len(self.settings.seed_list):
            raise SettingError(
                f"--select {self.settings.selector}: no held-out row has any weight to select by; hold out more with "
                f"--holdout"
            )
        return estimates

    def _act(
        self,
        candidate: Candidate,
        of_folds: Sequence[tuple[Candidate, Result]],
        data: TrainingData,
        spec: NetworkSpec,
        device: torch.device,
    ) -> Act:
        """How a policy acts: as given, or whichever way is best for its fold policies on rows that they were not
        trained on."""
        if not self.settings.chooses_act:
            return self.settings.given_act
        same = (candidate.fold.seed, candidate.number)
        policies = [
            FoldPolicy(other.fold, result.tensors)
            for other, result in of_folds
            if (other.fold.seed, other.number) == same
        ]
        nu = float(candidate.hyperparameters.get("nu", NU.default) or 0)
        return choose_act(policies, data, spec, nu, self.settings.selector, device)

    # --- data, model and lineage ---

    def data(self, streamed: bool | None) -> TrainingData:
        """`streamed`: as recorded in the checkpoint; None: decide now."""
        needs_pi0, has_pi0 = PI0 in self.settings.regulariser_term.needs, self.log.spec.has("pi0")
        uses_pi0 = needs_pi0 or (self.settings.copies_logging_policy and has_pi0)
        columns = (*_COLUMNS, "pi0") if uses_pi0 else _COLUMNS
        if needs_pi0 and not has_pi0:
            raise ContractError(
                f"{self.log.name}: --reg-form exact needs the whole logging distribution, a column 'pi0', which it "
                f"lacks: use --reg-form sampled, or make logs with --store-distribution"
            )
        if streamed is None:
            streamed = self.stream == "on" or (self.stream == "auto" and needs_streaming(self.log, columns))
        needs = (*self.settings.risk_term.needs, *self.settings.regulariser_term.needs)
        needs_known = (
            self.settings.learner != GRADIENT_LEARNER
            or FILLED_COSTS in needs
            or REWARD_WEIGHT in needs
            or SELECTORS.load(self.settings.selector).needs_model
        )
        fitting = SAMPLE_BYTES // (2 * self.log.spec.context.byte_width)
        contrast_rows = fitting if self.settings.missing_model else min(TESTED_ROWS, fitting)
        return TrainingData(
            self.log,
            columns,
            streamed=streamed,
            sample_known=needs_known,
            contrast_rows=contrast_rows if self.settings.sees_feedback else 0,
        )

    def weigh_known(self, data: TrainingData, run: Run) -> bool:
        """With --missing-model, weight known rows, and warn if its model does not fit; without it, warn if missing
        feedback depends on context or action. Warn too if only some outcomes seem to have been reported. False after a
        warning."""
        contrast = data.take_contrast()
        known = contrast.rows.rows.known
        if known.all() or not known.any():
            return True
        weights = None
        if self.settings.missing_model:
            weights = fit_feedback_weights(contrast, data.statistics, run.device)
            data.weigh_known(weights)
        warnings = [
            missingness_warning(contrast, has_clusters=data.has_clusters, weights=weights),
            one_sided_warning(data.statistics, self.settings.declared_range),
        ]
        for warning in filter(None, warnings):
            run.console.warn(f"{self.log.name}: {warning}")
        return not any(warnings)

    @property
    def spec(self) -> NetworkSpec:
        settings, log_spec = self.settings, self.log.spec
        hidden = parse_hidden(settings.model, settings.hidden)
        return NetworkSpec(settings.model, log_spec.context, log_spec.actions, hidden, settings.width)

    def _suited(self, data: TrainingData) -> TrainSettings:
        """The settings with the defaults that depend on the log filled in. Only gradient learners have such
        defaults."""
        is_gradient = self.settings.learner == GRADIENT_LEARNER
        return settings_for(self.settings, self.spec, data.statistics) if is_gradient else self.settings

    def identity(self) -> Step:
        """What a checkpoint must have in common with the run: everything that the policies depend on."""
        settings = {**recorded(self.settings), **self.log.recorded_names}
        if self.stream != "auto":
            settings["stream"] = self.stream
        return step_of("train", settings, self._sources())

    def _sources(self) -> Any:
        return self.log.sources if self.prior is None else (*self.log.sources, self.prior.source)

    def _policy(self, candidate: Candidate, result: Result, data: TrainingData, spec: NetworkSpec, act: Act) -> Policy:
        """The policy with its lineage: the settings that would train it alone, with its seed and hyperparameters."""
        settings = self._suited(data)
        alone = recorded(settings) | self.log.recorded_names | ({"stream": "on"} if data.streamed else {})
        alone |= {"seed": candidate.fold.seed, "seeds": None}
        numbers = {flag(name)[2:]: value for name, value in candidate.hyperparameters.items()}
        alone |= {name: value for name, value in numbers.items() if name in alone and value is not None}
        scale = cost_scale(settings, data.statistics, candidate.fold)
        is_by_range = settings.cost_scale == "range" and settings.declared_range is None and scale.width > 0
        if is_by_range and settings.risk_term.needs:
            alone["reward-range"] = scale.reward_range
        if settings.folds is not None or settings.patience is None:
            alone |= {"folds": None, "select": None, "holdout": settings.held_share or None}
            alone |= {"act": None if settings.act is None else act.text, "select-on": default_select_on(act)}
        return Policy(
            network=spec,
            training_rows=data.statistics.rows,
            training_known=len(data.statistics.known.c),
            lineage=step_of("train", alone, self._sources()),
            tensors=result.tensors,
            action_names=self.log.spec.action_names,
            asked=self._asked(candidate, alone),
            acts=act,
            sketch=data.statistics.sketch,
        )

    def _asked(self, candidate: Candidate, alone: dict[str, Any]) -> dict[str, Any]:
        """The settings as requested, if the lineage records a value derived from them: grids from which one value was
        selected, and words such as `auto` that became numbers. Runs are repetitions if these agree."""
        settings, texts = self.settings, recorded(self.settings)
        is_selected = settings.select is not None
        names = [
            flag(name)[2:]
            for name, value in candidate.hyperparameters.items()
            if is_selected or value not in settings.points[name]
        ]
        names += ["act"] if settings.chooses_act else []
        names += ["reward-range"] if alone["reward-range"] != texts["reward-range"] else []
        names += ["select", "select-on", "folds", "holdout"] if is_selected else []
        asked = {name: texts[name] for name in names if texts.get(name) is not None}
        by_log = [name for name in ("steps", "lr") if texts[name] is None and alone[name] is not None]
        return asked | dict.fromkeys(by_log, AUTO)

    # --- checks ---

    def check(self, data: TrainingData) -> None:
        settings, known = self.settings, len(data.statistics.known.c)
        _, highest = data.statistics.cost_range
        risk_limit, selector_limit = settings.risk_term.largest_cost, SELECTORS.load(settings.selector).largest_cost
        is_raw = settings.cost_scale == "none"
        excluded = outside(data.statistics, settings.declared_range)
        holds_out = settings.held_share or settings.folds
        check_rules(
            (
                settings.uses_feedback and not known,
                f"no train row has feedback, and {settings.name} learns from feedback; use a log with some, or "
                f"--method wce-only",
            ),
            (
                len(excluded),
                f"known rewards must be in [{settings.reward_range}] (--reward-range), found {len(excluded):,} others, "
                f"such as {float(excluded[0]) if len(excluded) else 0:g}; clip them, or declare a range that contains "
                f"all possible rewards",
            ),
            (
                is_raw and highest > risk_limit,
                f"--risk {settings.risk} is for costs of at most {risk_limit:g}, found {highest:g}; use another risk, "
                f"or --cost-scale range",
            ),
            (
                is_raw and highest > selector_limit,
                f"--select {settings.selector} is for costs of at most {selector_limit:g}, found {highest:g}; use "
                f"another selector, or --cost-scale range",
            ),
            (
                holds_out and known < 2 * (settings.folds or 5),
                f"{known} rows with feedback are too few to hold some out; drop --select, --patience, --folds and "
                f"--act auto",
            ),
            error=lambda faults: ContractError(f"{self.log.name}: {faults}"),
        )
        if self.prior is not None:
            self._check_prior(self.prior, self.spec)

    def _check_prior(self, prior: LoadedPolicy, spec: NetworkSpec) -> None:
        mismatch = prior.policy.misfit(spec.actions, spec.context, self.log.spec.action_names, "the log's")
        given, wanted = _described(prior.policy.network), _described(spec)
        if mismatch is None and given != wanted:
            mismatch = f"its model is {given}, not {wanted}"
        if mismatch is not None:
            raise ContractError(f"{prior.name} is no prior for {self.log.name}: {mismatch}")
        network_from(spec, prior.policy.tensors, prior.name)  # checks that every tensor matches the model

    def _check_fold(self, data: TrainingData, fold: Fold) -> None:
        """Rows are held out at random. If there are few rows, none or all of them may be held out."""
        known, learned = len(data.statistics.known.c), data.statistics.learned_count(fold)
        check_rules(
            (
                self.settings.uses_feedback and learned == 0,
                f"--seed {fold.seed} holds out all {known} rows with feedback and leaves none to learn from: lower "
                f"--holdout, or take another seed",
            ),
            (
                self.settings.held_share and learned == known,
                f"--seed {fold.seed} holds out none of the {known} rows with feedback: raise --holdout, or select by "
                f"--folds",
            ),
        )


def _searched(estimates: Mapping[int, float], values: Mapping[int, Values]) -> tuple[tuple[Values, float | None], ...]:
    """The hyperparameters of each candidate and its estimate; None if no held-out row has any weight."""
    return tuple((values[n], estimate if math.isfinite(estimate) else None) for n, estimate in estimates.items())


def _described(spec: NetworkSpec) -> str:
    """`mlp 256,64`, `resnet-v1 of width 16`."""
    if spec.model.startswith("resnet"):
        return f"{spec.model} of width {spec.width}"
    return f"{spec.model} {','.join(map(str, spec.hidden))}".rstrip()


class TrainingJob(Protocol):
    """A job of the train command: one method, or `auto`."""

    @property
    def prior(self) -> LoadedPolicy | None: ...

    def identity(self) -> Step: ...

    def policies(self, run: Run) -> list[TrainedPolicy]: ...


def train_with_checkpoint(
    training: TrainingJob,
    options: RunOptions,
    checkpoint: Checkpoint,
    device: torch.device,
    console: Console,
) -> list[TrainedPolicy]:
    """Train as the command does. Ctrl-C and SIGTERM stop it between two steps and write the checkpoint."""
    if options.resume:
        is_there = checkpoint.resume(training.identity)
        console.say(f"resuming from {checkpoint.path}" if is_there else "no checkpoint: starting from the beginning")
    with noted_signals() as should_stop:
        run = Run(
            device,
            checkpoint=checkpoint,
            should_stop=should_stop,
            console=console,
            compiled=options.compile,
            prior=training.prior,
        )
        try:
            return training.policies(run)
        except Interrupted:
            checkpoint.write()
            if checkpoint.path is None:
                console.warn("stopped; with -o - there is no checkpoint to resume from")
            else:
                console.warn(f"stopped; to continue, run the same command with --resume (state in {checkpoint.path})")
            raise


def write_curves(
    trained: Sequence[TrainedPolicy], names: Sequence[str], settings: TrainSettings, target: str, *, force: bool
) -> None:
    """Write the learning curves as a history file."""
    rows = [
        HistoryRow(name, settings.name, policy.seed, recorded, epoch, quantity, value)
        for policy, name in zip(trained, names, strict=True)
        for recorded in [encode_settings(train_settings(policy.policy.lineage))]
        for epoch, quantity, value in policy.curve
    ]
    write_history(rows, trained[0].policy.lineage, target, force=force)


def write_comparison(trained: Sequence[TrainedPolicy], target: str, *, force: bool) -> None:
    """Write the comparisons of `auto` as a scores file: one score per candidate and seed, and one for the logging
    policy."""
    scores = [
        _comparison_score(policy, choice, row)
        for policy in trained
        if (choice := policy.choice) is not None
        for row in choice.comparison
    ]
    write_scores(scores, trained[0].policy.lineage, target, force=force)


def _comparison_score(trained: TrainedPolicy, choice: Choice, row: dict[str, Any]) -> Score:
    policy, log = trained.policy, trained.policy.lineage.inputs[0]
    settings = dict(choice.settings.get(row["candidate"], {}))
    if settings:  # in the same form as evaluate
        settings |= {"select-on": None, "act": None if settings["act"] == PLAIN.text else settings["act"]}
    data = data_settings(policy.lineage)
    if settings:
        rows, known = policy.training_rows, policy.training_known
        data |= {"rho": round(known / rows, 6), "known": known, "missing": rows - known}
    return Score(
        policy=row["candidate"],
        policy_sha256=None,
        log=log.name or "log",
        log_sha256=log.sha256,
        method=settings.get("method", LOGGING_POLICY),
        seed=trained.seed if settings else None,
        split="train",
        metric="dr",
        label=None,
        settings=encode_settings({**named_settings(settings), **data}),
        value=row["value"],
        stderr=row["stderr"],
        low=row["low"],
        high=row["high"],
        level=IntervalSettings().level,
        interval=IntervalSettings().kind,
        rows=choice.rows,
        note="cross-validated on known rows",
    )
