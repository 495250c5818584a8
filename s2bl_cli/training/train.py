"""A log in, policies out: read, choose if asked to, train."""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from s2bl_cli.console import Console
from s2bl_cli.contract.lineage import Source, Step, step_of
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.policies import LoadedPolicy, NetworkSpec, Policy
from s2bl_cli.errors import ContractError, SettingError
from s2bl_cli.models.network import build_network, moments_of_parts
from s2bl_cli.models.settings import parse_hidden
from s2bl_cli.registry import SELECTORS
from s2bl_cli.settings import recorded
from s2bl_cli.training.groups import Group, fold_groups, holdout_groups
from s2bl_cli.training.held_out import joined
from s2bl_cli.training.interruption import noted_signals
from s2bl_cli.training.journal import Journal
from s2bl_cli.training.log_facts import KnownRows, LogFacts, count_log
from s2bl_cli.training.outcomes import Outcome
from s2bl_cli.training.precision import is_bf16
from s2bl_cli.training.resident_log import ResidentLog
from s2bl_cli.training.run_options import RunOptions
from s2bl_cli.training.selectors import HeldOut
from s2bl_cli.training.settings import AUTO_TRANSLATIONS, Combination, TrainSettings
from s2bl_cli.training.stage import Left, Setup, TrainLog, Watcher, epochs_in_all, run_stage
from s2bl_cli.training.streamed_log import StreamedLog, is_better_streamed
from s2bl_cli.training.watching import ProgressWatcher

_COLUMNS = ("context", "action", "propensity", "cost", "split")  # never `label`


@dataclass(frozen=True)
class Trained:
    """One policy, and how it came to be kept."""

    policy: Policy
    seed: int
    combination: Combination
    estimate: float | None  # by which it was chosen
    curves: list[tuple[int, str, float]]

    def told(self, settings: TrainSettings) -> str:
        """`seed 0, λ 0.3, ν 0.001, chosen by snips 0.71`, for people."""
        chosen = "" if self.estimate is None else f", chosen by {settings.selector} {self.estimate:.4f}"
        return f"seed {self.seed}, {self.combination.told(settings.reg_name)}{chosen}"


class TrainingRun:
    """One run of `s2bl train`: watched by a progress bar, kept in a checkpoint, left when a signal asks for it."""

    def __init__(
        self,
        log: Log,
        settings: TrainSettings,
        options: RunOptions,
        device: torch.device,
        prior: LoadedPolicy | None,
        target: str,
    ) -> None:
        self._log, self._settings, self._options = log, settings, options
        self._device, self._prior = device, prior
        self._journal: Journal | None = None
        self._checkpoint = None if target == "-" else f"{target.removesuffix('.safetensors')}.checkpoint"

    def policies(self, console: Console) -> list[Trained]:
        options = self._options
        journal = Journal(
            self._checkpoint, self._identity, every_epochs=options.checkpoint_every,
            every_minutes=options.checkpoint_minutes,
        )  # fmt: skip
        if options.resume:
            console.say(f"going on from {self._checkpoint}" if journal.resume() else "no checkpoint: starting anew")
        with contextlib.ExitStack() as bars, noted_signals() as interruption:

            def watch(what: str, epochs: int) -> Watcher:
                title = f"{what} {self._settings.name}"
                return ProgressWatcher(bars.enter_context(console.progress(title, epochs, "epochs")))

            try:
                trained = train_policies(
                    self._log,
                    self._settings,
                    self._device,
                    watch,
                    journal=journal,
                    stream=options.stream,
                    prior=self._prior,
                    compiled=options.compile,
                    is_wanted_elsewhere=interruption.requested,
                )
            except Left:
                if self._checkpoint is None:
                    console.warn("stopped; with -o - nothing is kept to go on from")
                else:
                    console.warn(
                        f"stopped; to go on, give the same command with --resume (state in {self._checkpoint})"
                    )
                interruption.leave()
                raise
        self._journal = journal
        return trained

    def written(self) -> None:
        """The policies are safe: nothing is left to go on from."""
        if self._journal is not None:
            self._journal.remove()

    def _identity(self) -> Step:
        """What a checkpoint must share with the run: everything that the policies depend on."""
        sources = self._log.sources if self._prior is None else (*self._log.sources, self._prior.source)
        settings = {**recorded(self._settings.resolved()), **self._log.recorded_names}
        if is_streamed(self._log, self._settings.resolved(), self._options.stream):
            settings["stream"] = "on"
        return step_of("train", settings, sources)


def train_policies(
    log: Log,
    settings: TrainSettings,
    device: torch.device,
    watch: Callable[[str, int], Watcher],
    *,
    journal: Journal | None = None,
    stream: str = "off",
    prior: LoadedPolicy | None = None,
    compiled: bool = False,
    is_wanted_elsewhere: Callable[[], bool] = lambda: False,
) -> list[Trained]:
    """Learn from the log's train rows: one policy for each seed and combination, or the chosen one of each seed."""
    settings = settings.resolved()
    columns = _columns(settings)
    if settings.reg_form == "exact" and not log.spec.has("pi0"):
        raise ContractError(
            f"{log.name}: --reg-form exact needs the whole logging distribution, a column 'pi0', which it lacks: "
            f"use --reg-form sampled, or make logs with --store-distribution"
        )
    streams = is_streamed(log, settings, stream)
    train_log: TrainLog = StreamedLog(log, columns) if streams else ResidentLog(log, columns)
    hidden = parse_hidden(settings.model, settings.hidden)
    spec = NetworkSpec(settings.model, log.spec.context, log.spec.actions, hidden, settings.width)
    facts = count_log(train_log.scan(), [Group(0)], spec.actions, reg_on_known=False)
    _check_rows(facts, log, settings)
    setup = Setup(
        log=train_log,
        settings=settings,
        spec=spec,
        start_tensors=_standardisation(train_log, spec, prior, log),
        prior=None if prior is None else prior.policy,
        device=device,
        bf16=is_bf16(settings.precision, spec, min(settings.batch_size, facts.rows), device),
        compiled=compiled,
        is_wanted_elsewhere=is_wanted_elsewhere,
    )
    chosen = _run(setup, facts.known, watch, journal or Journal())
    sources = log.sources if prior is None else (*log.sources, prior.source)
    names = {**log.recorded_names, **({"stream": "on"} if streams else {})}
    return [
        Trained(
            replace(
                _policy(outcome, spec, facts, settings, seed, combination, sources, names),
                action_names=log.spec.action_names,
            ),
            seed,
            combination,
            estimate,
            outcome.curves,
        )
        for seed, combination, estimate, outcome in chosen
    ]


def is_streamed(log: Log, settings: TrainSettings, stream: str) -> bool:
    """Whether the log is read anew each epoch: on request, or where it would fill the memory."""
    return stream == "on" or (stream == "auto" and is_better_streamed(log, _columns(settings)))


def _columns(settings: TrainSettings) -> tuple[str, ...]:
    return (*_COLUMNS, "pi0") if settings.reg_form == "exact" else _COLUMNS


_Chosen = tuple[int, Combination, float | None, Outcome]


def _run(setup: Setup, known: KnownRows, watch: Callable[[str, int], Watcher], journal: Journal) -> list[_Chosen]:
    settings = setup.settings
    seeds = settings.seed_list
    if settings.folds is not None:
        best = _cross_validated(setup, known, watch, journal)
        translation = None if settings.translation == "auto" else settings.translation  # there is no choice left
        decided = replace(settings, folds=None, select=None, select_on="sampled", translation=translation)
        final = replace(setup, settings=decided)
        groups = [Group(seed) for seed in seeds]
        grid = [[_combinations(settings, known, group)[place]] for group, (place, _) in zip(groups, best, strict=True)]
        watcher = watch("training", epochs_in_all(final, groups, grid, known))
        outcomes = run_stage(final, "training", groups, grid, watcher, journal)
        return [
            (seed, combination, estimate, outcome)
            for seed, (_, estimate), [combination], [outcome] in zip(seeds, best, grid, outcomes, strict=True)
        ]
    groups = holdout_groups(seeds, settings.held_share)
    grid = [_combinations(settings, known, group) for group in groups]
    watcher = watch("training", epochs_in_all(setup, groups, grid, known))
    outcomes = run_stage(setup, "training", groups, grid, watcher, journal)
    chosen: list[_Chosen] = []
    for seed, combinations, of_group in zip(seeds, grid, outcomes, strict=True):
        if settings.select is None:
            chosen += [(seed, c, None, outcome) for c, outcome in zip(combinations, of_group, strict=True)]
        else:
            place, estimate = _best(settings, [outcome.held for outcome in of_group])
            chosen.append((seed, combinations[place], estimate, of_group[place]))
    return chosen


def _cross_validated(
    setup: Setup, known: KnownRows, watch: Callable[[str, int], Watcher], journal: Journal
) -> list[tuple[int, float]]:
    """The place of the best combination for each seed, by the estimate on all known rows, each held out once."""
    settings = setup.settings
    assert settings.folds is not None
    groups = fold_groups(settings.seed_list, settings.folds)
    grid = [_combinations(settings, known, group) for group in groups]
    noted = journal.noted_choice(len(settings.seed_list), len(grid[0]))
    if noted is not None:
        return noted
    watcher = watch("choosing", epochs_in_all(setup, groups, grid, known))
    outcomes = run_stage(setup, "choosing", groups, grid, watcher, journal)
    best = []
    for s in range(len(settings.seed_list)):
        of_seed = outcomes[s * settings.folds : (s + 1) * settings.folds]
        held = [joined([_held(fold[c]) for fold in of_seed]) for c in range(len(grid[0]))]
        best.append(_best(settings, held))
    journal.note_choice(best)
    return best


def _held(outcome: Outcome) -> HeldOut:
    assert outcome.held is not None
    return outcome.held


def _best(settings: TrainSettings, held: Sequence[HeldOut | None]) -> tuple[int, float]:
    """The place of the highest estimate (the first of equals), and the estimate."""
    estimate = SELECTORS.load(settings.selector)
    values = [-math.inf if rows is None else estimate(rows) for rows in held]
    if max(values) == -math.inf:
        raise SettingError(
            f"--select {settings.selector}: no held-out row has any weight to choose by; hold out more with --holdout"
        )
    place = int(np.argmax(values))
    return place, values[place]


def _combinations(settings: TrainSettings, known: KnownRows, group: Group) -> list[Combination]:
    """The grid with banditnet's translations in numbers, from the costs that the group may see."""
    if settings.risk != "banditnet":
        return list(settings.combinations)
    costs = known.c[~group.holds_out(known.number)]
    if settings.translation == "auto":
        low, high = (float(costs.min()), float(costs.max())) if len(costs) else (0.0, 0.0)
        values = [low + part * (high - low) for part in AUTO_TRANSLATIONS]
        return [c._replace(translation=value) for c in dict.fromkeys(settings.combinations) for value in values]
    mean = float(costs.mean(dtype=np.float64)) if len(costs) else 0.0
    return [c if c.translation is not None else c._replace(translation=mean) for c in settings.combinations]


def _check_rows(facts: LogFacts, log: Log, settings: TrainSettings) -> None:
    if facts.rows == 0:
        raise ContractError(f"{log.name}: it has no train rows to learn from (its rows are all of the test split)")
    if settings.uses_feedback and not len(facts.known.c):
        raise ContractError(
            f"{log.name}: no train row has feedback, and {settings.name} learns from feedback; "
            f"use a log with some, or --method wce-only"
        )
    if settings.risk in ("ls", "wnll") and facts.highest_cost > 0:
        raise ContractError(
            f"{log.name}: --risk {settings.risk} is for costs of at most 0, found {facts.highest_cost:g}; "
            f"use another risk, or shift the costs"
        )
    if settings.select == "ls-bound" and facts.highest_cost > 0:
        raise ContractError(
            f"{log.name}: --select ls-bound is for costs of at most 0, found {facts.highest_cost:g}; "
            f"use another selector, or shift the costs"
        )
    if (settings.held_share or settings.folds) and len(facts.known.c) < 2 * (settings.folds or 5):
        raise ContractError(
            f"{log.name}: {len(facts.known.c)} rows with feedback are too few to hold some out; drop --select, "
            f"--patience and --folds"
        )


def _standardisation(
    train_log: TrainLog, spec: NetworkSpec, prior: LoadedPolicy | None, log: Log
) -> dict[str, torch.Tensor]:
    """Shift and scale from the train rows; with a prior, the prior's, so that parameters mean the same."""
    if prior is not None:
        misfit = prior.policy.misfit(spec.actions, spec.context, log.spec.action_names, "the log's")
        own, wanted = _model_words(prior.policy.network), _model_words(spec)
        if misfit is None and own != wanted:
            misfit = f"its model is {own}, not {wanted}"
        if misfit is not None:
            raise ContractError(f"{prior.name} is no prior for {log.name}: {misfit}")
        return {name: torch.from_numpy(prior.policy.tensors[name]) for name in ("shift", "scale")}
    network = build_network(spec)
    network.standardise_with(*moments_of_parts(rows.context for rows, _ in train_log.scan(contexts=True)))
    return {"shift": network.shift, "scale": network.scale}


def _model_words(spec: NetworkSpec) -> str:
    """`mlp 256,64`, `resnet-v1 of width 16`."""
    if spec.model.startswith("resnet"):
        return f"{spec.model} of width {spec.width}"
    return f"{spec.model} {','.join(map(str, spec.hidden))}".rstrip()


def _policy(
    outcome: Outcome,
    spec: NetworkSpec,
    facts: LogFacts,
    settings: TrainSettings,
    seed: int,
    combination: Combination,
    sources: tuple[Source, ...],
    names: dict[str, Any],
) -> Policy:
    """The lineage says what this policy alone would need: its own seed and numbers."""
    alone = recorded(settings) | names
    alone |= {"seed": seed, "seeds": None, "nu": combination.nu, "sharpen": combination.sharpen}
    alone |= {"lam": combination.lam if settings.reg != "none" else None, "translation": combination.translation}
    if settings.folds is not None or settings.patience is None:
        alone |= {"folds": None, "select": None, "select-on": "sampled"}
        if settings.held_share:
            alone |= {"holdout": settings.held_share}
    return Policy(
        network=spec,
        training_rows=facts.rows,
        training_known=len(facts.known.c),
        lineage=step_of("train", alone, sources),
        tensors=outcome.tensors,
    )
