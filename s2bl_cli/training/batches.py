"""The batches of an epoch, step by step, and what the terms of the objective see of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from s2bl_cli.objectives.terms import (
    FILLED_COSTS,
    LOG_PI,
    LOG_POLICY,
    PRIOR,
    REWARD_WEIGHT,
    AnyBatch,
    KnownBatch,
    Regulariser,
    Risk,
    Seen,
)
from s2bl_cli.policies.trainable import Inputs, TrainablePolicies, backward_distance, distance
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import TrainingData, TrainRows
from s2bl_cli.training.expected_rewards import ExpectedRewards
from s2bl_cli.training.sampling import Order, Rows, Sample, rows_on_device, sample
from s2bl_cli.training.settings import TrainSettings

_NOT_NEEDED: Any = None


class Batch(NamedTuple):
    """The rows of a step. What the terms see of the policies is filled in by `Forward`."""

    context: Tensor  # of the whole part: (rows of the part, *shape)
    inputs: Inputs
    action: Tensor  # (G, rows)
    known: KnownBatch  # the risk's rows, the first ones of the step
    regularised: AnyBatch  # the regulariser's, from its `first` on


class Forward:
    """What a step's terms see of the policies, and the way back."""

    def __init__(
        self, policies: TrainablePolicies, batch: Batch, needs: Sequence[str], prior: Sequence[Tensor] | None
    ) -> None:
        self._policies, self._batch, self._prior = policies, batch, prior
        self.log_policy = _NOT_NEEDED
        if LOG_POLICY in needs:
            self.log_policy = policies.log_policy(batch.context, batch.inputs)  # (G, C, rows, actions)
            self.log_pi = self.log_policy.gather(-1, self._chosen()).squeeze(-1)  # (G, C, rows)
        elif batch.action.shape[-1]:
            self.log_pi = policies.log_pi(batch.context, batch.inputs)
        else:
            self.log_pi = batch.known.p  # no row is seen

    def known(self) -> KnownBatch:
        """The risk's rows."""
        batch = self._batch.known
        return batch._replace(log_pi=self.log_pi.narrow(-1, batch.first, batch.p.shape[-1]))

    def regularised(self) -> AnyBatch:
        """The regulariser's rows."""
        batch = self._batch.regularised
        first, rows = batch.first, batch.p.shape[-1]
        return batch._replace(
            log_pi=self.log_pi.narrow(-1, first, rows),
            log_policy=_NOT_NEEDED if self.log_policy is None else self.log_policy.narrow(2, first, rows),
            distance=_NOT_NEEDED if self._prior is None else distance(self._policies, self._prior),  # (G, C)
        )

    def backward(self, slope: dict[Seen, Tensor]) -> None:
        """Set the policies' gradients from the loss's slope in what was seen."""
        of_log_pi = sorted((first, tensor) for (name, first), tensor in slope.items() if name == LOG_PI)
        if self.log_policy is not None:
            self._backward_policy(slope, of_log_pi)
        elif of_log_pi:
            self._policies.backward(torch.cat([tensor for _, tensor in of_log_pi], dim=-1))
        of_distance = slope.get(("distance", self._batch.regularised.first))
        if self._prior is not None and of_distance is not None:
            backward_distance(self._policies, self._prior, of_distance)

    def _backward_policy(self, slope: dict[Seen, Tensor], of_log_pi: Sequence[tuple[int, Tensor]]) -> None:
        whole = torch.zeros_like(self.log_policy)
        for (name, first), tensor in slope.items():
            if name == LOG_POLICY:
                whole[:, :, first : first + tensor.shape[2]] += tensor
        for first, tensor in of_log_pi:
            rows = slice(first, first + tensor.shape[2])
            whole[:, :, rows].scatter_add_(-1, self._chosen()[:, :, rows], tensor.unsqueeze(-1))
        self._policies.backward(whole)

    def _chosen(self) -> Tensor:
        """The logged actions as places in log π(·|x): (G, C, rows, 1)."""
        return self._batch.action[:, None, :, None].expand(-1, self.log_policy.shape[1], -1, 1)


@dataclass(frozen=True)
class Batches:
    """An epoch's batches for the policies of some folds. The order follows from their seeds and the epoch."""

    data: TrainingData
    folds: Sequence[Fold]
    expected: Sequence[ExpectedRewards]  # one per fold, where the objective needs them
    risk: Risk
    regulariser: Regulariser
    settings: TrainSettings
    device: torch.device

    @property
    def needs(self) -> tuple[str, ...]:
        return (*self.risk.needs, *self.regulariser.needs)

    @property
    def per_epoch(self) -> int:
        return self.data.steps_per_epoch(self.settings.batch_size)

    def rows(self, epoch: int) -> Iterator[Rows]:
        """The rows of an epoch on the device: all of them, which stay there, or part by part."""
        return map(self._on_device, self.data.parts(epoch)) if self.data.streamed else iter(self._resident)

    @cached_property
    def _resident(self) -> list[Rows]:
        return list(map(self._on_device, self.data.parts(0)))

    def _on_device(self, part: TrainRows) -> Rows:
        return rows_on_device(
            part,
            self.folds,
            self.data.statistics,
            reg_on_known=self.settings.reg_rows == "known",
            device=self.device,
            filling=self.expected if FILLED_COSTS in self.needs else (),
            weighting=self.expected if REWARD_WEIGHT in self.needs else (),
        )

    def epoch(self, epoch: int, start: int, policies: TrainablePolicies) -> Iterator[tuple[int, Batch]]:
        """The steps of an epoch from `start` on, with their numbers. Steps whose rows no term sees are left out."""
        size, seen = self.settings.batch_size, 0
        for number, rows in enumerate(self.rows(epoch)):
            first, seen = seen // size, seen + len(rows.action)
            # Whole batches over the epoch, wherever a part ends.
            after = self.per_epoch if seen == self.data.statistics.rows else seen // size
            if max(first, start) < after:
                drawn = sample(
                    rows,
                    after - first,
                    size,
                    Order([fold.seed for fold in self.folds], epoch, number),
                    mixed=self.settings.sampling == "mixed",
                    reg_on_known=self.settings.reg_rows == "known",
                    has_risk=LOG_PI in self.risk.needs,
                    has_regulariser=bool({LOG_PI, LOG_POLICY} & set(self.regulariser.needs)),
                )
                if drawn.rows.shape[-1] or PRIOR in self.needs:
                    steps = enumerate(_gathered(rows, drawn, policies), first)
                    yield from ((step, batch) for step, batch in steps if step >= start)
            del rows  # or a part of a stream would be held until two more are read


def _gathered(rows: Rows, drawn: Sample, policies: TrainablePolicies) -> Iterator[Batch]:
    """The batches of all steps, gathered at once: one by one it costs as much as a small product."""
    action = rows.action[drawn.rows]  # (steps, G, rows)
    known, regularised = drawn.rows[..., : drawn.known], drawn.rows[..., drawn.regularised :]

    def gathered(values: Tensor | None, index: Tensor) -> Sequence[Any]:
        """(G, rows of the part) at the index: (G, 1, rows) for each step."""
        if values is None:
            return [_NOT_NEEDED] * len(index)
        return values.expand(*index.shape[:2], -1).gather(2, index).unsqueeze(2).unbind()

    columns = zip(
        policies.inputs(drawn.rows, action),
        action.unbind(),
        gathered(rows.p, known),
        gathered(rows.c, known),
        gathered(rows.feedback_weight if drawn.weighted else None, known),
        regularised.unbind(),
        gathered(rows.p, regularised),
        gathered(rows.action_weight, regularised),
        gathered(rows.reward_weight, regularised),
        strict=True,
    )
    for inputs, chosen, known_p, c, weight, index, p, action_weight, reward_weight in columns:
        pi0 = _NOT_NEEDED if rows.pi0 is None else rows.pi0[index].unsqueeze(1)  # too large for all steps at once
        of_risk = KnownBatch(_NOT_NEEDED, known_p, c, weight)
        of_regulariser = AnyBatch(
            _NOT_NEEDED, p, action_weight, reward_weight, _NOT_NEEDED, pi0, _NOT_NEEDED, drawn.regularised
        )
        yield Batch(rows.context, inputs, chosen, of_risk, of_regulariser)
