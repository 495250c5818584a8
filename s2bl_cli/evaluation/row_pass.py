"""The single pass over a log's contexts, for all policies at once: it computes the columns that metrics need.

A batch of contexts is converted once and shared by the policies, the reward model and the model of missingness. Only
the columns are kept: at most 29 bytes per row and policy (`metrics/sample.py`), and 8 bytes per row for the models.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from s2bl_cli.contract.acts import PLAIN, Act
from s2bl_cli.contract.logs.arrays import LogArrays, log_arrays
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.policies import LoadedPolicy
from s2bl_cli.contract.probabilities import ProbabilityReader
from s2bl_cli.contract.row_hashes import context_hashes, row_hashes
from s2bl_cli.contract.row_sketch import SeenRows
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.candidates import LOGGING_CANDIDATE, UNIFORM_CANDIDATE, Candidate
from s2bl_cli.evaluation.fitted_models import FittedModels
from s2bl_cli.evaluation.selection import SelectedRows
from s2bl_cli.metrics.sample import Array, Column, LogBatch, LoggedSample, PolicyBatch, Probabilities
from s2bl_cli.policies.acting import action_probabilities
from s2bl_cli.policies.contexts import context_tensor
from s2bl_cli.policies.network import PolicyNetwork, network_from, on_device

_NUMBERS_AT_ONCE = 1 << 22  # rows × actions of one policy
_STACKED_NUMBERS_AT_ONCE = 1 << 20  # probabilities of several policies: about the size of a processor's cache
_NETWORK_ROWS_AT_ONCE = 512  # a row of a log is small, but a ResNet turns it into hundreds of kilobytes
_ABSENT = np.empty((0, 0), np.float32)

Advance = Callable[[int, str], None]


class PolicyBank:
    """Many policies on one batch of contexts. All have the same numbers of features and actions.

    Linear ones are stacked into one wide product, with the standardisation of each folded into its weights:

        W·((x − shift)·scale) + b = (W·scale)·(x − origin) + [b − W·((shift − origin)·scale)]

    with one origin for all of them, so a batch is converted and shifted once, however many policies there are. (The
    origin is not 0: features far from 0, such as times, would lose precision in float32.)

    Logits are stored as (members, actions, rows). A processor vectorises along the rows but not along a few actions,
    and a softmax costs more than the product.
    """

    def __init__(self, policies: Mapping[int, LoadedPolicy], device: torch.device) -> None:
        networks = {
            i: network_from(loaded.policy.network, loaded.policy.tensors, loaded.name) for i, loaded in policies.items()
        }
        linear = [i for i, loaded in policies.items() if loaded.policy.network.model == "linear"]
        origin = networks[linear[0]].shift.numpy() if linear else np.zeros(0, np.float32)
        maps = {i: _folded(networks[i], origin.astype(np.float64)) for i in linear}
        self._stacked = [
            i for i, (weight, bias) in maps.items() if np.isfinite(weight).all() and np.isfinite(bias).all()
        ]
        self._alone = {
            i: on_device(network, device).eval() for i, network in networks.items() if i not in self._stacked
        }
        self._origin = torch.from_numpy(origin).to(device)
        if self._stacked:
            weights, biases = zip(*(maps[i] for i in self._stacked), strict=True)
            self._weight = torch.from_numpy(np.stack(weights)).to(device)  # (members, actions, features)
            self._bias = torch.from_numpy(np.stack(biases)).to(device)  # (members, actions)

    @torch.no_grad()
    def logits(self, batch: Tensor) -> Iterator[tuple[int, Tensor]]:
        """For contexts on the device: the number of each policy, and its logits (actions, rows)."""
        if self._stacked:
            x = batch.flatten(1).to(torch.float32) - self._origin  # (rows, features)
            actions = self._bias.shape[1]
            members = max(1, _STACKED_NUMBERS_AT_ONCE // max(1, len(x) * actions))
            for start in range(0, len(self._stacked), members):
                chosen = slice(start, start + members)
                weight, bias = self._weight[chosen].flatten(0, 1), self._bias[chosen].flatten()
                logits = torch.addmm(bias[:, None], weight, x.T)
                yield from zip(self._stacked[chosen], logits.view(-1, actions, len(x)), strict=True)
        for i, network in self._alone.items():
            parts = [network(part) for part in torch.split(batch, _NETWORK_ROWS_AT_ONCE)]
            yield i, torch.cat(parts).T


def write_columns(
    log: Log,
    rows: SelectedRows,
    candidates: Sequence[Candidate],
    models: FittedModels,
    columns: Iterable[Column],
    device: torch.device,
    advance: Advance,
    seen: Sequence[SeenRows] = (),
) -> tuple[LoggedSample, list[dict[str, Array]]]:
    """The sample with the models' predictions and, for every candidate by name, the columns that it and the log allow.
    All rows are passed to `seen`."""
    q, observed = (
        None if model is None else np.empty(rows.sample.rows, np.float32)
        for model in (models.reward, models.observation)
    )
    sample = replace(rows.sample, q=q, observed=observed)
    rows_at_once = max(64, _NUMBERS_AT_ONCE // sample.actions)
    columns_of: list[dict[str, Array]] = [{} for _ in candidates]
    never_logged = np.bincount(sample.action, minlength=sample.actions) == 0
    bank = PolicyBank(
        {i: candidate.loaded for i, candidate in enumerate(candidates) if candidate.loaded is not None}, device
    )
    readers = {
        i: ProbabilityReader(
            candidate.probabilities, rows.chosen_of(candidate.probabilities.rows), sample.actions, rows_at_once
        )
        for i, candidate in enumerate(candidates)
        if candidate.probabilities is not None
    }
    for span, arrays in _batches(log, rows, rows_at_once):
        context, fold = context_tensor(arrays.context, device), models.fold[span]
        pi0 = _ABSENT if arrays.pi0 is None else arrays.pi0
        batch = LogBatch(
            action=arrays.action,
            p=arrays.propensity,
            label=np.empty(0, np.int32) if arrays.label is None else arrays.label,
            q=_ABSENT if models.reward is None else models.reward.predict(context, fold, pi0),
            pi0=pi0,
            never_logged=never_logged,
        )
        if seen:
            contexts = context_hashes(arrays.context)
            hashes = row_hashes(contexts, arrays.action, arrays.propensity)
            for rows_of_policy in seen:
                rows_of_policy.add(contexts, hashes)
        if q is not None:
            q[span] = batch.q[batch.index, batch.action]
        if observed is not None and models.observation is not None:
            observed[span] = models.observation.probability(context, arrays.action, fold)
        measured = [column for column in columns if batch.has(column.needs)]
        for i, policy_batch in _policy_batches(candidates, bank, readers, context, batch):
            if not np.isfinite(policy_batch.pi.sum()):
                raise ContractError(
                    f"{candidates[i].name}: its probabilities on {log.name} are not numbers; train the policy again"
                )
            for column in measured:
                values = column.values(policy_batch)
                if values is not None:
                    columns_of[i].setdefault(column.name, np.empty(sample.rows, column.dtype))[span] = values
        advance(int(span.stop), "")
    return sample, columns_of


def _batches(log: Log, rows: SelectedRows, at_once: int) -> Iterator[tuple[slice, LogArrays]]:
    """The selected rows in order, in batches small enough for (rows, actions), and their positions among the
    selected."""
    start = selected = 0
    for whole in log.batches(("context", "action", "propensity", "label", "pi0")):
        for first in range(0, whole.num_rows, at_once):
            part = whole.slice(first, at_once)
            batch = log_arrays(part, log.spec).take(rows.mask[start : start + part.num_rows])
            start += part.num_rows
            if batch.rows:
                yield slice(selected, selected + batch.rows), batch
            selected += batch.rows


def _policy_batches(
    candidates: Sequence[Candidate],
    bank: PolicyBank,
    readers: dict[int, ProbabilityReader],
    context: Tensor,
    batch: LogBatch,
) -> Iterator[tuple[int, PolicyBatch]]:
    """Each candidate with its probabilities; empty for a logging policy whose π₀ the log does not store."""
    for i, logits in bank.logits(context):
        yield i, _acting(logits, candidates[i].acts, batch)
    rows, actions = len(batch.action), len(batch.never_logged)
    for i, candidate in enumerate(candidates):
        if i in readers:
            given = readers[i].read(rows)
            yield i, _acting(torch.from_numpy(given).log().T, candidate.acts, batch, given)
        elif candidate is UNIFORM_CANDIDATE:
            yield i, PolicyBatch(np.broadcast_to(np.float32(1 / actions), (rows, actions)), batch)
        elif candidate is LOGGING_CANDIDATE:
            yield i, PolicyBatch(batch.pi0, batch)


@torch.no_grad()
def _acting(logits: Tensor, act: Act, batch: LogBatch, given: Probabilities | None = None) -> PolicyBatch:
    """`logits`: (actions, rows); `given`: the probabilities of which they are the logarithms, (rows, actions)."""

    def probabilities(act: Act) -> Probabilities:
        if given is not None and act.is_plain:
            return given
        pi: Probabilities = action_probabilities(logits, act, dim=0).cpu().numpy().T
        return pi

    return PolicyBatch(probabilities(act), batch, None if act.is_plain else partial(probabilities, PLAIN))


def _folded(network: PolicyNetwork, origin: Array) -> tuple[Array, Array]:
    """Weight and bias for contexts minus the origin; infinite if they overflow float32."""
    tensors = {name: tensor.numpy().astype(np.float64) for name, tensor in network.state_dict().items()}
    with np.errstate(over="ignore", invalid="ignore"):
        weight = tensors["body.1.weight"] * tensors["scale"]
        bias = tensors["body.1.bias"] - weight @ (tensors["shift"] - origin)
        return weight.astype(np.float32), bias.astype(np.float32)
