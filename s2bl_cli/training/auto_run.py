"""One run of `s2bl train --method auto`: fit the candidates on folds, compare them, train the best one on all rows.

The resulting policy is the same as if its method had been trained alone, and its lineage has the settings to do so.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from s2bl_cli.contract.acts import GREEDY, PLAIN, Act
from s2bl_cli.contract.checkpoints import Result
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.policies import LoadedPolicy, NetworkSpec
from s2bl_cli.errors import ContractError
from s2bl_cli.objectives.hyperparameters import NU
from s2bl_cli.policies.acting import action_probabilities
from s2bl_cli.policies.contexts import context_tensor
from s2bl_cli.policies.network import network_from, on_device
from s2bl_cli.settings import number_text, recorded
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.comparison import LOGGING, Candidate, Choice, Comparison, Floats
from s2bl_cli.training.data import TrainingData, TrainRows
from s2bl_cli.training.learner import Run
from s2bl_cli.training.portfolio import of_method, portfolio
from s2bl_cli.training.run import TrainedPolicy, TrainingRun
from s2bl_cli.training.settings import AUTO, AUTO_FOLDS, KNOWN_RANGE, TrainSettings
from s2bl_cli.training.validation import HeldOut

COPY_METHOD = "match-only"  # trains the copy of the logging policy that is written if nothing beats it
_ROWS_AT_ONCE = 4096
_CELLS_AT_ONCE = 1 << 24  # rows × actions × networks: 64 MB


@dataclass(frozen=True)
class Fitted:
    """Policies with the same method, model and grid point: one per fold."""

    settings: TrainSettings  # to train the policy alone
    spec: NetworkSpec
    results: Sequence[Result]

    @property
    def loss(self) -> Floats | None:
        """The mean squared error of the reward model on the rows that each fold holds out. Of few rows, a fold may hold
        out none."""
        held_out = [HeldOut(*result.held_out) for result in self.results if result.held_out is not None]
        if not held_out or any(result.link is None for result in self.results):
            return None
        return np.array([np.average((rows.model_logged - rows.cost) ** 2, weights=rows.o) for rows in held_out])

    def name(self, act: Act) -> str:
        """`cce-s2bl (λ 0.3, linear, argmax)`."""
        settings = self.settings
        texts = {name: settings.hyperparameters.get(name) for name in settings.declared}
        given = [
            f"{h.symbol} {texts[name]}"
            for name, h in settings.declared.items()
            if texts[name] not in (None, h.default_text)
        ]
        return f"{settings.name} ({', '.join([*given, settings.model, act.text])})"


class Contender(NamedTuple):
    """Fitted policies with one way to act."""

    fitted: Fitted
    act: Act

    @property
    def settings(self) -> TrainSettings:
        """The settings to train the policy alone. How it acts determines what it is selected on."""
        acting: dict[str, Any] = {"act": self.act.text, "select_on": None}
        return replace(self.fitted.settings, **acting)


@dataclass(frozen=True)
class AutoRun:
    """A log and the settings of `auto`."""

    log: Log
    settings: TrainSettings
    stream: str = "off"
    prior: LoadedPolicy | None = None
    seconds: float | None = None  # stop fitting further candidates after this time, of which every seed has its share

    def identity(self) -> Step:
        return self._training(self.settings).identity()

    def policies(self, run: Run) -> list[TrainedPolicy]:
        """One policy per seed. Raises Interrupted."""
        whole = self._training(self.settings)
        data = whole.data(run.checkpoint.progress.streamed)
        whole.check(data)
        sample = data.statistics.sample
        known = sample.rows.rows
        if (units := len(np.unique(sample.number))) < 2 * self._folds:
            of_what = "clusters" if data.has_clusters else "rows"
            raise ContractError(
                f"{self.log.name}: {units} {of_what} with feedback are too few to compare methods in {self._folds} "
                f"folds; choose one, such as --method dm-s2bl"
            )
        spec = self.log.spec
        sizes = (data.statistics.rows, known, spec.context.features, spec.actions)
        candidates = portfolio(self.settings, *sizes, has_time_limit=self.seconds is not None)
        layouts = [layout for settings in candidates for layout in self._training(settings).layouts]
        run.checkpoint.start(self.identity, streamed=data.streamed, layouts=layouts)
        is_reliable = whole.weigh_known(data, run)
        return [self._policy(seed, candidates, data, run, is_reliable=is_reliable) for seed in self.settings.seed_list]

    @property
    def _folds(self) -> int:
        return self.settings.folds or AUTO_FOLDS

    def _training(self, settings: TrainSettings) -> TrainingRun:
        return TrainingRun(self.log, settings, self.stream)

    def _policy(
        self, seed: int, candidates: Sequence[TrainSettings], data: TrainingData, run: Run, *, is_reliable: bool
    ) -> TrainedPolicy:
        """`is_reliable`: whether known rows seem to be like the others."""
        folds = [Fold(seed, *ends) for ends in pairwise(k / self._folds for k in range(self._folds + 1))]
        seconds = math.inf if self.seconds is None else self.seconds / len(self.settings.seed_list)
        started_at = time.monotonic()
        fitted: list[Fitted] = []
        for number, settings in enumerate(candidates):
            if number and time.monotonic() - started_at > seconds:
                rest = ", ".join(f"{other.name} ({other.model})" for other in candidates[number:])
                run.console.say(f"--time is over, not compared: {rest}")
                break
            fitted += self._fit(replace(settings, seed=seed, seeds=None), folds, data, run)
        contenders = [Contender(policies, act) for policies in fitted for act in self._acts(policies.settings)]
        comparison = compare(contenders, folds, data, run.device)
        chosen = comparison.choose()
        if chosen == LOGGING:
            alone = replace(self.settings, hyperparameters={})  # those of the candidates
            winner = replace(of_method(alone, COPY_METHOD, candidates[0].model), seed=seed, seeds=None)
        else:
            winner = contenders[chosen].settings
        (trained,) = self._training(winner).policies_from(data, run)
        policy = replace(trained.policy, asked=self._asked([*(f.settings for f in fitted), winner]))
        return replace(trained, policy=policy, choice=Choice.of(comparison, chosen, is_reliable=is_reliable))

    def _fit(self, settings: TrainSettings, folds: Sequence[Fold], data: TrainingData, run: Run) -> Iterator[Fitted]:
        """Fit one candidate per grid point."""
        training = self._training(settings)
        learner = training.learner
        candidates = [candidate for fold in folds for candidate in training.candidates(data, fold)]
        stage = f"comparing {settings.name} ({settings.model})"  # a checkpoint stores the results of each stage by name
        results = replace(run, stage=stage, keeps_tensors=True).fit(learner, data, candidates)
        for final in training.candidates(data, Fold(settings.seed)):
            texts = {
                name: str(settings.declared[name].default_text) if value is None else number_text(value)
                for name, value in final.hyperparameters.items()
                if len(settings.points[name]) > 1
            }
            yield Fitted(
                replace(settings, hyperparameters=settings.hyperparameters | texts),
                learner.networks[0],
                [result for c, result in zip(candidates, results, strict=True) if c.number == final.number],
            )

    def _acts(self, settings: TrainSettings) -> tuple[Act, ...]:
        """The ways to act to compare. A policy that takes the best action of a reward model has only one."""
        if self.settings.act not in (None, AUTO):
            return (self.settings.given_act,)
        return (GREEDY,) if settings.given_act == GREEDY else (PLAIN, GREEDY)

    def _asked(self, compared: Sequence[TrainSettings]) -> dict[str, str]:
        """`auto` for every setting that the comparison decides, whatever the decision, so that policies with different
        seeds count as repetitions; and the methods that were compared."""
        given = recorded(self.settings)
        texts = [recorded(settings) for settings in compared]
        names = {name for settings in texts for name, value in settings.items() if value != given.get(name)}
        by_log = {"steps": None, "lr": None, "reward-range": KNOWN_RANGE}  # what a method may take from the log
        names |= {name for name, default in by_log.items() if given[name] == default}
        pairs = dict.fromkeys(f"{settings.name}:{settings.model}" for settings in compared[:-1])
        return {**dict.fromkeys(sorted(names - {"seed", "seeds"}), AUTO), "candidates": ",".join(pairs)}


@torch.no_grad()
def compare(
    contenders: Sequence[Contender], folds: Sequence[Fold], data: TrainingData, device: torch.device
) -> Comparison:
    """Compare on the known rows, predicting each row with policies that were not trained on it. A streamed log is
    sampled."""
    sample = data.statistics.sample
    losses = [
        (loss.mean(), contender.fitted) for contender in contenders if (loss := contender.fitted.loss) is not None
    ]
    reference = min(losses, key=lambda pair: float(pair[0]))[1] if losses else None  # has the best reward model
    parts = [sample.take(fold.holds_out(sample.number)) for fold in folds]
    mean_reward = float(np.average(0.0 - sample.rows.cost, weights=sample.o))
    by_fold = [_scores(contenders, reference, mean_reward, k, part, device) for k, part in enumerate(parts)]
    scores = [np.concatenate(columns) for columns in zip(*by_fold, strict=True)]
    numbers = np.concatenate([part.number for part in parts])
    return Comparison(
        [
            Candidate(
                contender.fitted.name(contender.act),
                of_contender,
                contender.fitted.loss,
                recorded(contender.settings),
            )
            for contender, of_contender in zip(contenders, scores, strict=True)
        ],
        reward=np.concatenate([0.0 - part.rows.cost for part in parts]).astype(np.float64),
        weight=np.concatenate([np.ones(len(part.number)) if part.o is None else part.o for part in parts]),
        fold=np.repeat(np.arange(len(parts)), [len(part.number) for part in parts]),
        cluster=np.unique(numbers, return_inverse=True)[1].reshape(-1) if data.has_clusters else None,
    )


def _scores(
    contenders: Sequence[Contender],
    reference: Fitted | None,
    mean_reward: float,
    fold: int,
    rows: TrainRows,
    device: torch.device,
) -> list[Floats]:
    """Doubly robust scores of the rows that a fold holds out, one array per contender. `mean_reward` of all rows is
    expected if no candidate has a reward model."""
    networks = {
        id(fitted): on_device(network_from(fitted.spec, fitted.results[fold].tensors, "a candidate"), device).eval()
        for fitted, _ in contenders
    }
    columns: list[list[Floats]] = [[] for _ in contenders]
    arrays, nu, actions = rows.rows, float(NU.default or 0), contenders[0].fitted.spec.actions
    at_once = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // (actions * len(networks))))
    for start in range(0, arrays.rows, at_once):
        part = slice(start, start + at_once)
        context = context_tensor(arrays.context[part], device)
        logits = {key: network(context) for key, network in networks.items()}
        action = torch.from_numpy(arrays.action[part].astype(np.int64)).to(device)[:, None]
        reward = torch.from_numpy(0.0 - arrays.cost[part].astype(np.float64)).to(device)
        p = torch.from_numpy(arrays.propensity[part].astype(np.float64)).to(device).clamp(min=nu)
        if reference is None:
            expected = reward.new_full((len(reward), actions), mean_reward)
        else:
            expected = _expected(reference, fold, part, logits[id(reference)].double(), action)
        for column, contender in zip(columns, contenders, strict=True):
            pi = action_probabilities(logits[id(contender.fitted)].double(), contender.act)
            weight = pi.gather(1, action).squeeze(1) / p
            residual = reward - expected.gather(1, action).squeeze(1)
            column.append(((pi * expected).sum(1) + weight * residual).cpu().numpy())
    return [np.concatenate(column) if column else np.empty(0) for column in columns]


def _expected(reference: Fitted, fold: int, part: slice, logits: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """q̂(x, ·) of the rows: (rows, actions). The logits of the policy equal those of the reward model up to a term that
    does not depend on the action. That term follows from q̂ of the logged action."""
    result = reference.results[fold]
    assert result.link is not None
    assert result.held_out is not None
    link = result.link
    logged = torch.from_numpy(0.0 - HeldOut(*result.held_out).model_logged[part]).to(logits)[:, None]
    from_logged = logits - logits.gather(1, action)
    if not link.logistic:
        return logged + link.scale * from_logged
    eta = torch.logit((logged - link.shift) / link.scale, eps=1e-12) + from_logged
    return link.shift + link.scale * eta.sigmoid()
