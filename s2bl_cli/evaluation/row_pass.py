"""The one pass over a log's contexts, for all policies at once: it writes the columns that metrics are computed from.

A batch of contexts is converted once, for the policies, the reward model and the model of missingness alike. What is
kept are the columns, at most 25 bytes per row and policy (`metrics/sample.py`), and 8 bytes per row for the models.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from s2bl_cli.contract.logs.arrays import LogArrays, log_arrays
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.probabilities import ProbabilityReader
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.candidates import LOGGING_CANDIDATE, UNIFORM_CANDIDATE, Candidate
from s2bl_cli.evaluation.fitted_models import FittedModels
from s2bl_cli.evaluation.policy_bank import PolicyBank
from s2bl_cli.evaluation.selection import SelectedRows
from s2bl_cli.metrics.sample import Array, Column, LogBatch, LoggedSample, PolicyBatch, Probabilities
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
    networks = {i: candidate.loaded for i, candidate in enumerate(candidates) if candidate.loaded is not None}
    bank = PolicyBank(networks, device)
    readers = {
        i: ProbabilityReader(
            candidate.probabilities, rows.chosen_of(candidate.probabilities.rows), sample.actions, _rows_at_once(log)
        )
        for i, candidate in enumerate(candidates)
        if candidate.probabilities is not None
    }
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
        for i, pi in _probabilities(candidates, bank, readers, context, batch):
            if not np.isfinite(pi.sum()):
                raise ContractError(
                    f"{candidates[i].name}: its probabilities on {log.name} are not numbers; train the policy again"
                )
            policy_batch = PolicyBatch(pi, batch)
            for column in measured:
                values = column.values(policy_batch)
                if values is None:
                    continue
                if column.name not in columns_of[i]:
                    columns_of[i][column.name] = np.empty(sample.rows, column.dtype)
                columns_of[i][column.name][span] = values
        advance(int(span.stop), "")
    return sample, columns_of


def _rows_at_once(log: Log) -> int:
    return max(64, _NUMBERS_AT_ONCE // log.spec.actions)


def _batches(log: Log, rows: SelectedRows) -> Iterator[tuple[slice, LogArrays]]:
    """The selected rows in order, few enough at a time for (rows, actions); and their places among the selected."""
    at_once = _rows_at_once(log)
    start = selected = 0
    for whole in log.batches(("context", "action", "propensity", "label", "pi0")):
        for first in range(0, whole.num_rows, at_once):
            part = whole.slice(first, at_once)
            batch = log_arrays(part, log.spec).take(rows.mask[start : start + part.num_rows])
            start += part.num_rows
            if batch.rows:
                yield slice(selected, selected + batch.rows), batch
            selected += batch.rows


def _probabilities(
    candidates: Sequence[Candidate],
    bank: PolicyBank,
    readers: dict[int, ProbabilityReader],
    context: Tensor,
    batch: LogBatch,
) -> Iterator[tuple[int, Probabilities]]:
    """Which candidate, and its (rows, actions); empty of a logging policy whose π₀ the log does not store."""
    yield from bank.probabilities(context)
    rows, actions = len(batch.action), len(batch.never_logged)
    for i, candidate in enumerate(candidates):
        if i in readers:
            yield i, readers[i].read(rows)
        elif candidate is UNIFORM_CANDIDATE:
            yield i, np.broadcast_to(np.float32(1 / actions), (rows, actions))
        elif candidate is LOGGING_CANDIDATE:
            yield i, batch.pi0
