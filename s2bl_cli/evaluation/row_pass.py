"""One pass over a log's contexts for all policies at once.

What estimators need later is kept, two float32 numbers a row and policy: π(a|x) of the logged action and
q̂(x,π). Everything else is reduced on the way. Contexts are held a batch at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.logs.arrays import LogArrays, log_arrays
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.parquet_files import damaged
from s2bl_cli.contract.probabilities import ProbabilityFile
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.candidates import LOGGING_CANDIDATE, UNIFORM_CANDIDATE, Candidate
from s2bl_cli.evaluation.class_means import RunningClassMeans
from s2bl_cli.evaluation.divergences import exact_kl, log_of
from s2bl_cli.evaluation.fitted_models import FittedModels
from s2bl_cli.evaluation.metrics.metric import Metric
from s2bl_cli.evaluation.policy_bank import PolicyBank, Probabilities
from s2bl_cli.evaluation.selection import SelectedRows
from s2bl_cli.running_moments import RunningMoments

_NUMBERS_AT_ONCE = 1 << 22  # rows × actions of one policy

Floats = npt.NDArray[np.float32]
Advance = Callable[[int, str], None]


@dataclass
class PolicyRows:
    """What the pass finds out about one policy."""

    pi: Floats  # (rows,) of the logged action
    f: Floats | None  # (rows,) q̂(x,π) as a cost; None without a model, or where only the logged action's π is known
    classes: RunningClassMeans
    label_means: dict[str, RunningMoments] = field(default_factory=dict)
    kl: RunningMoments = field(default_factory=RunningMoments)
    reverse_kl: RunningMoments = field(default_factory=RunningMoments)
    unsupported: RunningMoments = field(default_factory=RunningMoments)


@dataclass(frozen=True)
class PassResult:
    policies: list[PolicyRows]  # in the candidates' order
    q: Floats | None  # (rows,) the model's cost of the logged action
    observed: Floats | None  # (rows,) P(known | x, a)


def pass_over(
    log: Log,
    rows: SelectedRows,
    candidates: Sequence[Candidate],
    models: FittedModels,
    metrics: Sequence[Metric],
    device: torch.device,
    advance: Advance,
    *,
    with_divergences: bool,
    with_observation: bool,
) -> PassResult:
    """`metrics` are those with labels; they are measured where the rows have labels."""
    never_logged = np.bincount(rows.action, minlength=log.spec.actions) == 0
    found = [_empty(candidate, rows.rows, log, models) for candidate in candidates]
    result = PassResult(
        found,
        np.empty(rows.rows, np.float32) if models.cost is not None else None,
        np.empty(rows.rows, np.float32) if with_observation and models.observation is not None else None,
    )
    groups = _Groups(candidates, log, rows, device)
    for place, batch in _batches(log, rows):
        fold, each = models.fold[place], np.arange(batch.rows)
        costs = None if models.cost is None else models.cost.predict(batch.context, fold)  # (batch, actions)
        if result.q is not None and costs is not None:
            result.q[place] = costs[each, batch.action]
        if result.observed is not None and models.observation is not None:
            result.observed[place] = models.observation.probability(batch.context, batch.action, fold)
        log_pi0 = None if batch.pi0 is None or not with_divergences else log_of(batch.pi0)
        for members, pi in groups.probabilities(batch):
            _check_numbers(pi, [candidates[i].name for i in members], log)
            for own, i in zip(pi, members, strict=True):  # own: (batch, actions)
                one = found[i]
                one.pi[place] = own[each, batch.action]
                if one.f is not None and costs is not None:
                    one.f[place] = np.einsum("ba,ba->b", own, costs)
                one.unsupported.add(own[:, never_logged].sum(axis=1))
                _add_labelled(one, own, batch, metrics)
                if log_pi0 is not None and batch.pi0 is not None:
                    forward, backward = exact_kl(own, batch.pi0, log_pi0)
                    one.kl.add(forward)
                    one.reverse_kl.add(backward)
        if groups.logging is not None and batch.pi0 is None:
            found[groups.logging].pi[place] = batch.propensity
            _add_draws(found[groups.logging], batch, metrics)
        advance(int(place.stop), "")
    return result


def _empty(candidate: Candidate, rows: int, log: Log, models: FittedModels) -> PolicyRows:
    is_whole = candidate is not LOGGING_CANDIDATE or log.spec.has("pi0")
    f = np.empty(rows, np.float32) if models.cost is not None and is_whole else None
    return PolicyRows(np.empty(rows, np.float32), f, RunningClassMeans(log.spec.actions))


class _Groups:
    """Candidates by how their probabilities come about."""

    def __init__(self, candidates: Sequence[Candidate], log: Log, rows: SelectedRows, device: torch.device) -> None:
        loaded = [(i, one.loaded) for i, one in enumerate(candidates) if one.loaded is not None]
        self._networks = [i for i, _ in loaded]
        self._bank = PolicyBank([policy for _, policy in loaded], device)
        self._files = [
            (i, _aligned(one.probabilities, log, rows))
            for i, one in enumerate(candidates)
            if one.probabilities is not None
        ]
        self._uniform = [i for i, one in enumerate(candidates) if one is UNIFORM_CANDIDATE]
        self.logging = next((i for i, one in enumerate(candidates) if one is LOGGING_CANDIDATE), None)
        self._actions = log.spec.actions

    def probabilities(self, batch: LogArrays) -> Iterator[tuple[list[int], Probabilities]]:
        for members, pi in self._bank.probabilities(batch.context):
            yield [self._networks[member] for member in members], pi
        for i, pieces in self._files:
            pieces.send(None)
            yield [i], pieces.send(batch.rows)[None]
        for i in self._uniform:
            uniform = np.full((1, 1, self._actions), 1 / self._actions, np.float32)
            yield [i], np.broadcast_to(uniform, (1, batch.rows, self._actions))
        if self.logging is not None and batch.pi0 is not None:
            yield [self.logging], batch.pi0[None]


def _aligned(file: ProbabilityFile, log: Log, rows: SelectedRows) -> Any:
    """A generator of the file's rows for the next so many selected ones: ask with None, then send the number."""
    chosen = np.ones(file.rows, bool) if file.rows == rows.rows else rows.mask
    waiting: Floats = np.empty((0, log.spec.actions), np.float32)
    start = 0
    pieces = file.batches(log.spec.actions, max(64, _NUMBERS_AT_ONCE // log.spec.actions))
    while True:
        count = yield
        while len(waiting) < count:
            piece = next(pieces, None)
            if piece is None:
                raise damaged(file.name, ValueError(f"{start} rows, where its footer says {file.rows}"))
            waiting = np.concatenate([waiting, piece[chosen[start : start + len(piece)]]])
            start += len(piece)
        taken, waiting = waiting[:count], waiting[count:]
        yield taken


def _batches(log: Log, rows: SelectedRows) -> Iterator[tuple[slice, LogArrays]]:
    """The selected rows in order, few enough at a time for (rows, actions); and their places among the selected."""
    at_once = max(64, _NUMBERS_AT_ONCE // log.spec.actions)
    start = done = 0
    for arrow in log.batches(("context", "action", "propensity", "label", "pi0")):
        batch = log_arrays(arrow, log.spec)
        batch = batch.take(rows.mask[start : start + arrow.num_rows])
        start += arrow.num_rows
        for first in range(0, batch.rows, at_once):
            part = _part(batch, first, first + at_once)
            yield slice(done, done + part.rows), part
            done += part.rows


def _part(batch: LogArrays, first: int, last: int) -> LogArrays:
    if first == 0 and last >= batch.rows:
        return batch
    chosen = np.zeros(batch.rows, bool)
    chosen[first:last] = True
    return batch.take(chosen)


def _check_numbers(pi: Probabilities, names: Sequence[str], log: Log) -> None:
    sums = pi.sum(axis=(1, 2))
    if not np.isfinite(sums).all():
        name = names[int(np.argmin(np.isfinite(sums)))]
        raise ContractError(f"{name}: its probabilities on {log.name} are not numbers; train the policy again")


def _add_labelled(one: PolicyRows, pi: npt.NDArray[Any], batch: LogArrays, metrics: Sequence[Metric]) -> None:
    if batch.label is None:
        return
    values: dict[Any, npt.NDArray[Any]] = {}  # some metrics are of the same values: the likeliest action is found once
    for metric in metrics:
        if metric.of_policy not in values:
            values[metric.of_policy] = metric.of_policy(pi, batch.label)
        if metric.by_class:
            one.classes.add(values[metric.of_policy], batch.label)
        else:
            one.label_means.setdefault(metric.name, RunningMoments()).add(values[metric.of_policy])


def _add_draws(one: PolicyRows, batch: LogArrays, metrics: Sequence[Metric]) -> None:
    if batch.label is None:
        return
    for metric in metrics:
        if metric.of_draws is not None:
            values = metric.of_draws(batch.action, batch.label)
            one.label_means.setdefault(metric.name, RunningMoments()).add(values)
