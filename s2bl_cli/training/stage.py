"""A stage: all policies of some groups trained on one log; dense ones side by side, others one after another."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from s2bl_cli.contract.logs.reading import LogArrays
from s2bl_cli.contract.policies import NetworkSpec, Policy
from s2bl_cli.cost_models.cost_model import CostModel, fit_cost_model
from s2bl_cli.errors import SettingError
from s2bl_cli.models.network import PolicyNetwork, build_network, on_device
from s2bl_cli.objectives.batches import Knobs
from s2bl_cli.objectives.objective import Objective, objective_of
from s2bl_cli.registry import COST_MODELS, OPTIMIZERS, SCHEDULES
from s2bl_cli.training.cost_filling import Filler, filler_of
from s2bl_cli.training.fitting import EpochNews, Fit, Part, check_finite
from s2bl_cli.training.groups import Group, TrainRows
from s2bl_cli.training.held_out import held_out, joined
from s2bl_cli.training.journal import Journal, Place
from s2bl_cli.training.learners.dense_learner import DenseLearner
from s2bl_cli.training.learners.learner import Learner
from s2bl_cli.training.learners.network_learner import NetworkLearner
from s2bl_cli.training.log_facts import KnownRows, LogFacts, count_log
from s2bl_cli.training.outcomes import Outcome, Tracker
from s2bl_cli.training.rows import Filling, Rows, rows_on_device
from s2bl_cli.training.sampling import generators_of
from s2bl_cli.training.selectors import HeldOut
from s2bl_cli.training.settings import DEFAULT_SMOOTHING, Combination, TrainSettings

Grid = Sequence[Sequence[Combination]]  # a group: its policies

# Parameters that may be trained side by side: with their gradients and an optimizer's state they need 16 bytes each.
_MOST_TOGETHER = 1 << 27


class TrainLog(Protocol):
    """Where train rows come from: memory or a stream."""

    def scan(self, *, contexts: bool = False) -> Iterator[TrainRows]: ...
    def known_rows(self) -> TrainRows: ...
    def steps_to_an_epoch(self, batch_size: int) -> int: ...
    def epochs(self, rows_of: Callable[[TrainRows], Rows], batch_size: int) -> Callable[[int], Iterator[Part]]: ...


class Watcher(Protocol):
    """Whoever keeps an eye on a stage."""

    def begin(self, fit: Fit, unit: int) -> None:
        """Before a unit's first epoch."""
        ...

    def epoch_done(self, fit: Fit, news: EpochNews) -> None: ...


@dataclass(frozen=True)
class Setup:
    """What the stages of a run share. `settings` are resolved."""

    log: TrainLog
    settings: TrainSettings
    spec: NetworkSpec
    start_tensors: dict[str, Tensor]  # the standardisation: shift and scale
    prior: Policy | None
    device: torch.device
    bf16: bool = False
    compiled: bool = False
    is_wanted_elsewhere: Callable[[], bool] = lambda: False


class Left(Exception):  # noqa: N818 (no error: somebody asked for it)
    """The run was asked to leave, and has kept its place in the journal."""


class Unit(NamedTuple):
    """Policies that take their steps together: groups by their places, and the grid of their numbers."""

    groups: tuple[int, ...]
    grid: Grid


def run_stage(
    setup: Setup, name: str, groups: Sequence[Group], grid: Grid, watcher: Watcher, journal: Journal
) -> list[list[Outcome]]:
    """Train every policy of the grid: (groups, policies). Raises `Left` where it was asked to leave."""
    settings = setup.settings
    facts = _facts(setup, groups, grid)
    _check_groups(settings, groups, facts)
    filler = _filler(setup, groups, facts)
    reg_on_known = settings.reg_rows == "known"

    def rows_of(train_rows: TrainRows) -> Rows:
        filling = Filling(None, None)
        if filler is not None:
            filling = filler.fill(train_rows, costs=settings.risk == "pseudo", merits=settings.reg == "cce")
        return rows_on_device(train_rows, groups, facts, filling, reg_on_known=reg_on_known, device=setup.device)

    epochs = setup.log.epochs(rows_of, settings.batch_size)
    units = _units(setup, groups, facts.learned_known, grid)
    outcomes: list[list[Outcome]] = [[] for _ in groups]
    for number, unit in enumerate(units):
        place = (name, number)
        shape = (len(unit.grid), len(unit.grid[0]))
        before = journal.finished(place, shape)
        if before is not None:
            for g, of_group in zip(unit.groups, before, strict=True):
                outcomes[g] += of_group
            continue
        own_epochs = epochs if len(unit.groups) == len(groups) else _of_groups(epochs, unit.groups)
        own_groups = [groups[g] for g in unit.groups]
        prior = None
        if settings.reg == "lpr":
            prior = journal.prior(place, setup.device) or _prior(setup, own_groups, own_epochs)
            if prior is None:
                journal.write_done()
                raise Left
        fit = _fit_of(setup, unit, own_groups, facts, own_epochs, prior)
        held = _HeldOutRows(setup, fit, unit, own_groups) if settings.held_share or settings.folds else None
        tracker = Tracker(fit, shape, held, settings.selector, settings.patience)
        journal.take_up(place, fit, tracker)
        watcher.begin(fit, number)
        _run_unit(fit, tracker, place, watcher, journal, settings.lr or 0, min(c.nu for row in unit.grid for c in row))
        found = tracker.outcomes()
        journal.unit_done(place, found)
        for g, of_group in zip(unit.groups, found, strict=True):
            outcomes[g] += of_group
    return outcomes


def epochs_in_all(setup: Setup, groups: Sequence[Group], grid: Grid, known: KnownRows) -> int:
    """Of the units of a stage, one after another."""
    learned = [int((~group.holds_out(known.number)).sum()) for group in groups]
    return len(_units(setup, groups, learned, grid)) * (setup.settings.epochs or 0)


def _units(setup: Setup, groups: Sequence[Group], learned_known: Sequence[int], grid: Grid) -> list[Unit]:
    """Linear and fully connected policies go together, unless a seed has fewer known rows than a batch and another has
    not as few: the smallest batch would be everyone's, and nobody's policy what it would be alone."""
    if not _is_dense(setup) or _parameters(setup.spec) * sum(map(len, grid)) > _MOST_TOGETHER:
        return [Unit((g,), [[combination]]) for g, of_group in enumerate(grid) for combination in of_group]
    of_seeds: dict[int, list[int]] = {}
    for g, group in enumerate(groups):
        of_seeds.setdefault(group.seed, []).append(g)
    batches = {min(setup.settings.batch_size, *(learned_known[g] for g in own)) for own in of_seeds.values()}
    if len(batches) == 1:
        return [Unit(tuple(range(len(grid))), grid)]
    return [Unit(tuple(own), [grid[g] for g in own]) for own in of_seeds.values()]


def _check_groups(settings: TrainSettings, groups: Sequence[Group], facts: LogFacts) -> None:
    """Which rows are held out is chance: of few rows it may be none or all."""
    known = len(facts.known.c)
    for group, learned in zip(groups, facts.learned_known, strict=True):
        if settings.uses_feedback and learned == 0:
            raise SettingError(
                f"--seed {group.seed} holds out all {known} rows with feedback and leaves none to learn from: "
                f"lower --holdout, or take another seed"
            )
        if settings.held_share and learned == known:
            raise SettingError(
                f"--seed {group.seed} holds out none of the {known} rows with feedback: raise --holdout, or choose by "
                f"--folds"
            )


def _of_groups(epochs: Callable[[int], Iterator[Part]], groups: Sequence[int]) -> Callable[[int], Iterator[Part]]:
    """Groups that stand beside one another."""
    own = slice(groups[0], groups[-1] + 1)
    return lambda epoch: (Part(part.rows.of_groups(own), part.steps) for part in epochs(epoch))


def _facts(setup: Setup, groups: Sequence[Group], grid: Grid) -> LogFacts:
    betas = sorted({c.sharpen for of_group in grid for c in of_group if c.sharpen is not None})
    return count_log(
        setup.log.scan(),
        groups,
        setup.spec.actions,
        reg_on_known=setup.settings.reg_rows == "known",
        betas=betas,
        cap=setup.settings.cap,
    )


def _filler(setup: Setup, groups: Sequence[Group], facts: LogFacts) -> Filler | None:
    if setup.settings.cost_model is None:
        return None
    model = COST_MODELS.load(setup.settings.cost_model)
    known = setup.log.known_rows()
    filler = filler_of(model, facts, groups, known, setup.spec.actions, setup.device)
    if setup.settings.reg != "cce":
        return filler
    return filler.scaled_by(setup.log.scan(contexts=setup.settings.cost_model != "propensity"))


def _fit_of(
    setup: Setup,
    unit: Unit,
    groups: Sequence[Group],
    facts: LogFacts,
    epochs: Callable[[int], Iterator[Part]],
    prior: Sequence[Tensor] | None,
) -> Fit:
    settings = setup.settings
    objective = _objective(setup, unit, facts)
    learner = _learner(setup, unit, groups)
    assert settings.lr is not None
    assert settings.epochs is not None
    return Fit(
        learner=learner,
        objective=objective,
        optimizer=OPTIMIZERS.load(settings.optimizer or "")(learner.parameters, settings.lr, settings.weight_decay),
        schedule=SCHEDULES.load(settings.schedule or ""),
        generators=[generators_of(group.seed, setup.device) for group in groups],
        parts=epochs,
        steps_to_an_epoch=setup.log.steps_to_an_epoch(settings.batch_size),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        mixed=settings.sampling == "mixed",
        exact=settings.reg_form == "exact",
        prior=prior,
        base_lr=settings.lr,
        is_wanted_elsewhere=setup.is_wanted_elsewhere,
    )


def _learner(setup: Setup, unit: Unit, groups: Sequence[Group]) -> Learner:
    starts = [start_network(setup, group.seed) for group in groups]
    if _is_dense(setup):
        return DenseLearner(starts, len(unit.grid[0]))
    return NetworkLearner(starts[0], bf16=setup.bf16, compiled=setup.compiled)


def _parameters(spec: NetworkSpec) -> int:
    sizes = (spec.context.features, *spec.hidden, spec.actions)
    return sum((inputs + 1) * units for inputs, units in pairwise(sizes))


def _is_dense(setup: Setup) -> bool:
    """Whether the gradient is one that is written out."""
    return setup.spec.model == "linear" or (setup.spec.model == "mlp" and not setup.bf16 and not setup.compiled)


def start_network(setup: Setup, seed: int) -> PolicyNetwork:
    torch.manual_seed(seed)
    network = build_network(setup.spec)
    for name in ("shift", "scale"):
        getattr(network, name).copy_(setup.start_tensors[name])
    return on_device(network, setup.device)


def _objective(setup: Setup, unit: Unit, facts: LogFacts) -> Objective:
    """The numbers of the unit's policies as knobs: one number where all agree, else a tensor (G, C, 1)."""
    settings, grid = setup.settings, unit.grid

    def knob(values: list[list[float]]) -> float | Tensor:
        first = values[0][0]
        if all(value == first for row in values for value in row):
            return first
        return torch.tensor(values, dtype=torch.float32, device=setup.device).unsqueeze(-1)

    lam = knob([[c.lam for c in row] for row in grid])
    sharpen: float | Tensor | None = None
    unit_p: float | Tensor = 1.0
    if settings.sharpen is not None:
        betas = facts.betas  # of the whole stage: a unit may have some of them
        sharpen = knob([[c.sharpen or 0.0 for c in row] for row in grid])
        means = facts.sharpened_means[list(unit.groups)]
        unit_p = knob(
            [
                [max(means[g, betas.index(c.sharpen)], 1e-300) ** (1 / c.sharpen) if c.sharpen else 1.0 for c in row]
                for g, row in enumerate(grid)
            ]
        )
    knobs = Knobs(
        nu=knob([[c.nu for c in row] for row in grid]),
        translation=knob([[c.translation or 0.0 for c in row] for row in grid]),
        smoothing=knob([[_smoothing(settings, facts.learned_known[g])] * len(grid[0]) for g in unit.groups]),
        sharpen=sharpen,
        cap=settings.cap,
        sharpen_unit=unit_p,
    )
    lam = lam.squeeze(-1) if isinstance(lam, Tensor) else lam
    return objective_of(settings.risk or "", settings.reg or "", lam, knobs, exact=settings.reg_form == "exact")


def _smoothing(settings: TrainSettings, known: int) -> float:
    """Given, by default, or from the number of known rows: γ = 1/(2√n) of ix, λ = 1/√n of ls."""
    if settings.smoothing is not None:
        return settings.smoothing
    default = DEFAULT_SMOOTHING.get(settings.risk or "", 0.0)
    if default is not None:
        return default
    return 1 / ((2 if settings.risk == "ix" else 1) * math.sqrt(max(known, 1)))


def _prior(setup: Setup, groups: Sequence[Group], epochs: Callable[[int], Iterator[Part]]) -> list[Tensor] | None:
    """θ₀ of lpr: of the given policy, or fitted to the logged actions of the rows that the regulariser is on. None
    if the run was asked to leave meanwhile."""
    settings = setup.settings
    if setup.prior is not None:
        network = start_network(setup, 0)
        network.load_state_dict({name: torch.from_numpy(value) for name, value in setup.prior.tensors.items()})
        learner: Learner = NetworkLearner(network, bf16=False, compiled=False)
        if _is_dense(setup):
            learner = DenseLearner([network] * len(groups), 1)
        return _stacked_prior(learner, len(groups))
    # Plain cross-entropy with the logged actions: wce sharpened by β = 0.
    plain = Combination(1.0, 0.0, 0.0, None)
    imitation = replace(settings, risk="none", reg="wce", lam=None, sharpen="0", method=None, prior=None,
                        cost_model=None, translation=None, smoothing=None, patience=None, select=None,
                        holdout=None, folds=None)  # fmt: skip
    own = replace(setup, settings=imitation)
    unit = Unit(tuple(range(len(groups))), [[plain] for _ in groups])
    fit = _fit_of(own, unit, groups, _no_facts(len(groups)), epochs, None)
    for _ in range(fit.epochs):
        if fit.run_epoch() is None:
            return None
    return _stacked_prior(fit.learner, len(groups))


def _no_facts(groups: int) -> LogFacts:
    import numpy as np

    nothing = KnownRows(np.empty(0, np.int64), np.empty(0, np.float32))
    return LogFacts(0, nothing, (0,) * groups, (0,) * groups, np.zeros((groups, 1)), (0.0,), np.ones((groups, 1)))


def _stacked_prior(learner: Learner, groups: int) -> list[Tensor]:
    own = [learner.prior_of(group) for group in range(groups)]
    return [torch.cat(values) if groups > 1 else values[0] for values in zip(*own, strict=True)]


def _run_unit(
    fit: Fit, tracker: Tracker, place: Place, watcher: Watcher, journal: Journal, lr: float, nu: float
) -> None:
    """The epochs of a unit, or those that are left."""
    while fit.progress.epoch < fit.epochs and not tracker.is_out_of_patience:
        news = fit.run_epoch()
        if news is None:
            journal.write(place, fit, tracker)
            raise Left
        check_finite(news, fit.progress.epoch, lr, nu)
        tracker.epoch_done(news)
        watcher.epoch_done(fit, news)
        journal.epoch_done(place, fit, tracker)


class _HeldOutRows:
    """What the policies of a unit do on the rows held out, in every part of the log."""

    def __init__(self, setup: Setup, fit: Fit, unit: Unit, groups: Sequence[Group]) -> None:
        self._setup, self._fit, self._unit, self._groups = setup, fit, unit, groups
        self._models: list[CostModel] | None = None

    def __call__(self) -> list[list[HeldOut]]:
        settings = self._setup.settings
        nu = [[c.nu for c in row] for row in self._unit.grid]
        parts = []
        for part in self._fit.parts(0):
            expected = self._expected_costs(part.rows) if settings.selector == "dr" else None
            argmax = settings.select_on == "argmax"
            parts.append(held_out(self._fit.learner, part.rows, nu, argmax=argmax, expected=expected))
        return [[joined([part[g][c] for part in parts]) for c in range(len(row))] for g, row in enumerate(nu)]

    def _expected_costs(self, rows: Rows) -> list[Tensor]:
        """q̂ of the held-out rows by models that have not seen their feedback: (held rows, actions) a group."""
        if self._models is None:
            known = self._setup.log.known_rows()
            self._models = [self._model(known.rows.take(~group.holds_out(known.number))) for group in self._groups]
        held = [rows.context[own].cpu().numpy() for own in rows.held]
        costs = [model.predict(context) for model, context in zip(self._models, held, strict=True)]
        return [torch.from_numpy(cost).to(self._setup.device) for cost in costs]

    def _model(self, learned: LogArrays) -> CostModel:
        return fit_cost_model(
            learned.context, learned.action, learned.cost, self._setup.spec.actions, device=self._setup.device
        )
