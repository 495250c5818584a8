"""The one pass over a log's contexts, for all policies at once: it writes the columns that metrics are computed from.

A batch of contexts is converted once, for the policies, the reward model and the model of missingness alike. What is
kept are the columns, at most 25 bytes per row and policy (`metrics/columns.py`), and 8 bytes per row for the models.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from s2bl_cli.contract.logs.arrays import LogArrays, log_arrays
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.parquet_files import damaged
from s2bl_cli.contract.probabilities import ProbabilityFile
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.candidates import LOGGING_CANDIDATE, UNIFORM_CANDIDATE, Candidate
from s2bl_cli.evaluation.fitted_models import FittedModels
from s2bl_cli.evaluation.policy_bank import PolicyBank
from s2bl_cli.evaluation.selection import SelectedRows
from s2bl_cli.metrics.columns import Array, Column, LogBatch, PolicyBatch, Probabilities
from s2bl_cli.metrics.sample import LoggedSample
from s2bl_cli.policies.contexts import context_tensor

_NUMBERS_AT_ONCE = 1 << 22  # rows × actions of one policy
_ABSENT = np.empty((0, 0), np.float32)

Advance = Callable[[int, str], None]
PolicyColumns = dict[str, Array]  # (rows,) each, by the column's name


def write_columns(
    log: Log,
    rows: SelectedRows,
    candidates: Sequence[Candidate],
    models: FittedModels,
    columns: Iterable[Column],
    device: torch.device,
    advance: Advance,
) -> tuple[LoggedSample, list[PolicyColumns]]:
    """The sample with the models' predictions, and for every candidate the columns that it and the log allow."""
    q, observed = (
        None if model is None else np.empty(rows.sample.rows, np.float32)
        for model in (models.reward, models.observation)
    )
    sample = replace(rows.sample, q=q, observed=observed)
    columns_of: list[PolicyColumns] = [{} for _ in candidates]
    never_logged = np.bincount(sample.action, minlength=sample.actions) == 0
    policies = _Policies(candidates, log, rows, device)
    for span, arrays in _batches(log, rows):
        context, fold = context_tensor(arrays.context, device), models.fold[span]
        batch = LogBatch(
            action=arrays.action,
            p=arrays.propensity,
            label=np.empty(0, np.int32) if arrays.label is None else arrays.label,
            q=_ABSENT if models.reward is None else models.reward.predict(context, fold),
            pi0=_ABSENT if arrays.pi0 is None else arrays.pi0,
            never_logged=never_logged,
        )
        if q is not None:
            q[span] = batch.q[batch.index, batch.action]
        if observed is not None and models.observation is not None:
            observed[span] = models.observation.probability(context, arrays.action, fold)
        measured = [column for column in columns if batch.has(column.needs)]
        for i, pi in policies.next_rows(context, batch):
            if not np.isfinite(pi.sum()):
                raise ContractError(
                    f"{candidates[i].name}: its probabilities on {log.name} are not numbers; train the policy again"
                )
            policy_batch = PolicyBatch(pi, batch)
            for column in measured:
                values = column.values(policy_batch)
                if values is not None:
                    _write(columns_of[i], column, values, span, sample.rows)
        advance(int(span.stop), "")
    return sample, columns_of


def _write(policy: PolicyColumns, column: Column, values: Array, span: slice, rows: int) -> None:
    if column.name not in policy:
        policy[column.name] = np.empty(rows, column.dtype)
    policy[column.name][span] = values


def _batches(log: Log, rows: SelectedRows) -> Iterator[tuple[slice, LogArrays]]:
    """The selected rows in order, few enough at a time for (rows, actions); and their places among the selected."""
    at_once = max(64, _NUMBERS_AT_ONCE // log.spec.actions)
    start = selected = 0
    for whole in log.batches(("context", "action", "propensity", "label", "pi0")):
        for first in range(0, whole.num_rows, at_once):
            part = whole.slice(first, at_once)
            batch = log_arrays(part, log.spec).take(rows.mask[start : start + part.num_rows])
            start += part.num_rows
            if batch.rows:
                yield slice(selected, selected + batch.rows), batch
            selected += batch.rows


class _Policies:
    """π(·|x) of every candidate: networks, files, the uniform and the logging policy. Rows are asked for in order."""

    def __init__(self, candidates: Sequence[Candidate], log: Log, rows: SelectedRows, device: torch.device) -> None:
        self._candidates = candidates
        self._actions = log.spec.actions
        loaded = {i: candidate.loaded for i, candidate in enumerate(candidates) if candidate.loaded is not None}
        self._networks = list(loaded)
        self._bank = PolicyBank(list(loaded.values()), device)
        self._readers = {
            i: _ProbabilityReader(candidate.probabilities, rows, self._actions)
            for i, candidate in enumerate(candidates)
            if candidate.probabilities is not None
        }

    def next_rows(self, context: Tensor, batch: LogBatch) -> Iterator[tuple[int, Probabilities]]:
        """Which candidate, and its (rows, actions); empty of a logging policy whose π₀ the log does not store."""
        for members, stacked in self._bank.probabilities(context):
            for member, pi in zip(members, stacked, strict=True):
                yield self._networks[member], pi
        shape = (len(batch.action), self._actions)
        for i, candidate in enumerate(self._candidates):
            if i in self._readers:
                yield i, self._readers[i].read(len(batch.action))
            elif candidate is UNIFORM_CANDIDATE:
                yield i, np.broadcast_to(np.float32(1 / shape[1]), shape)
            elif candidate is LOGGING_CANDIDATE:
                yield i, batch.pi0


class _ProbabilityReader:
    """The scored rows of a file of probabilities, as many at a time as are asked for."""

    def __init__(self, file: ProbabilityFile, rows: SelectedRows, actions: int) -> None:
        self._file = file
        is_whole_log = file.rows != rows.sample.rows
        self._chosen = rows.mask if is_whole_log else np.ones(file.rows, bool)
        self._pieces = file.batches(actions, max(64, _NUMBERS_AT_ONCE // actions))
        self._start = 0  # of the next piece, in the file
        self._waiting: Probabilities = np.empty((0, actions), np.float32)

    def read(self, count: int) -> Probabilities:
        while len(self._waiting) < count:
            piece = next(self._pieces, None)
            if piece is None:
                fault = ValueError(f"{self._start} rows, where its footer says {self._file.rows}")
                raise damaged(self._file.name, fault)
            stop = self._start + len(piece)
            self._waiting = np.concatenate([self._waiting, piece[self._chosen[self._start : stop]]])
            self._start = stop
        read, self._waiting = self._waiting[:count], self._waiting[count:]
        return read
