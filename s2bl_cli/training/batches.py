"""Train rows on the device, and the batches of an epoch, which determine the rows that each step sees.

The order of the rows depends only on the seed, the epoch and the part of the log. Paired sampling: each step has a
batch of known rows for the risk and a batch of rows for the regulariser. If both use the same rows, they share one
batch. Mixed sampling: both share one batch of rows, in which the rows with feedback are weighted up. At ρ = 0.02, 128
rows contain two or three of them.

The number of steps on a part of a streamed log is proportional to its number of rows, but feedback may be uneven over
time. A step on the known rows of a part is therefore weighted by the part's share of known rows relative to that of the
log: (n_j/N_j)/(n/N). The mean over the steps of an epoch is then the mean over the known rows. In memory, the weight is
1. With a model of missingness, known rows are also weighted by 1/P(known | x, a), with a mean of 1 over the known rows
of the log.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.objectives.terms import (
    FILLED_COSTS,
    LOG_PI,
    PI0,
    PRIOR,
    REWARD_WEIGHT,
    AnyBatch,
    KnownBatch,
    Regulariser,
    Risk,
)
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.cost_scale import RAW, CostScale
from s2bl_cli.training.data import Statistics, TrainingData, TrainRows
from s2bl_cli.training.expected_rewards import ExpectedRewards
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.steps import Steps, steps_of, steps_per_pass

CostModel = Callable[[TrainRows], npt.NDArray[np.float32]]  # expected costs of all actions: (rows, actions)

NOT_NEEDED: Any = None
KNOWN, REGULARISED = 0, 1  # each term has its own order of rows: a policy sees the same known rows with any regulariser


class Rows(NamedTuple):
    """Rows as tensors, and how policies of each fold may use them. G is the number of folds. Values that are the same
    for all folds are stored once and expanded to G. Labels are not included."""

    context: Tensor  # (rows, *shape), the file's dtype
    action: Tensor  # (rows,) int64
    p: Tensor  # (rows,)
    true_cost: Tensor  # (rows,), in the unit of the log, 0 if missing
    c: Tensor  # (G, rows) the costs that the risk sees, scaled: the true ones, or filled in by a cost model
    known: tuple[Tensor, ...]  # per fold: indices of the rows whose cost the risk sees
    regularised: tuple[Tensor, ...]  # per fold: indices of the rows that the regulariser sees
    held_out: tuple[Tensor, ...]  # per fold: indices of the held-out known rows
    feedback_weight: Tensor  # (G, rows) N/n if the risk sees the row's cost, else 0
    known_weight: Tensor | None  # (G, rows) weights of the risk's rows in a batch; None: 1
    regularised_weight: Tensor | None  # (G, rows) weights of the regularised rows in a batch; None: 1
    o: Tensor | None  # (rows,) 1/P(known | x, a) of the known rows; None: 1
    action_weight: Tensor  # (G, rows) N/m_a of the row's action
    reward_weight: Tensor | None  # (G, rows) weights of the calibrated cross-entropy
    pi0: Tensor | None  # (rows, actions)
    expected_costs: Tensor | None = None  # (G, rows, actions), scaled like c


def rows_on_device(
    train_rows: TrainRows,
    folds: Sequence[Fold],
    statistics: Statistics,
    *,
    reg_on_known: bool,
    device: torch.device,
    filling: Sequence[ExpectedRewards] = (),
    weighting: Sequence[ExpectedRewards] = (),
    scales: Sequence[CostScale] = (),
    cost_models: Sequence[CostModel] = (),
    with_pi0: bool = False,
) -> Rows:
    """`filling`, `weighting`, `cost_models`: one per fold, if the objective needs filled-in costs, reward weights or
    expected costs of all actions. `scales`: one per fold; if empty, costs are not scaled."""
    part = train_rows.rows
    learns = np.stack([train_rows.learned(fold) for fold in folds])  # (G, rows)

    def tensor(array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    def indices(masks: Iterable[npt.NDArray[np.bool_]]) -> tuple[Tensor, ...]:
        return tuple(tensor(np.flatnonzero(mask)) for mask in masks)

    def per_fold(rows: npt.ArrayLike) -> Tensor:
        """(G, rows); values that are the same for all folds are stored once."""
        array = np.asarray(rows, np.float32)
        is_shared = not (array[1:] != array[0]).any()
        return tensor(array[:1] if is_shared else array).expand(len(folds), part.rows)

    everywhere = np.ones((len(folds), part.rows), bool)
    share = np.array([[statistics.learned_count(fold) / statistics.rows] for fold in folds])  # (G, 1)
    feedback_weight = np.divide(learns, share, out=np.zeros(learns.shape), where=share > 0)
    share_of_part = learns.sum(axis=1, keepdims=True) / max(part.rows, 1)
    part_weight = np.divide(share_of_part, share, out=np.ones(share.shape), where=share > 0)  # exactly 1 in memory
    if train_rows.o is not None:
        o = np.stack([train_rows.o / statistics.mean_o(fold) for fold in folds])  # (G, rows), mean 1 over the log
        feedback_weight, part_weight = feedback_weight * o, part_weight * o
    known_weight = None if (part_weight == 1).all() else per_fold(part_weight)
    # If all rows are regularised, the weights are the same for every fold.
    weighed = folds if reg_on_known else folds[:1]
    scales = scales or [RAW] * len(folds)
    if filling:
        costs = [scale(of_fold.costs(train_rows)) for scale, of_fold in zip(scales, filling, strict=True)]
    else:  # the scales are often the same
        costs = [scale(part.cost) for scale in (scales if len(set(scales)) > 1 else scales[:1])]
    action_weight = np.stack([statistics.action_weight(fold, on_known=reg_on_known) for fold in weighed])
    return Rows(
        context=tensor(part.context),
        action=torch.from_numpy(part.action).to(device, torch.int64),
        p=tensor(part.propensity),
        true_cost=tensor(part.cost),
        c=per_fold(costs),
        known=indices(everywhere if filling else learns),
        regularised=indices(learns if reg_on_known else everywhere),
        held_out=indices(part.known & ~learns),
        feedback_weight=per_fold(everywhere[:1] if filling else feedback_weight),
        known_weight=None if filling else known_weight,
        regularised_weight=known_weight if reg_on_known else None,
        o=None if train_rows.o is None else tensor(train_rows.o),
        action_weight=per_fold(action_weight[:, part.action]),
        reward_weight=per_fold([of_fold.weights(train_rows) for of_fold in weighting]) if weighting else None,
        pi0=tensor(part.pi0) if with_pi0 and part.pi0 is not None else None,
        expected_costs=torch.stack(
            [
                tensor(scale(model(train_rows)).astype(np.float32))
                for scale, model in zip(scales, cost_models, strict=True)
            ]
        )
        if cost_models
        else None,
    )


Key = tuple[int, int, int]  # seed, epoch and part, which determine the order of the rows


def order_of(rows: int, key: Key, term: int) -> Tensor:
    """A random permutation of the rows. Drawn on the CPU, so that it is the same on every device."""
    seed = np.random.SeedSequence((*key, term)).generate_state(1)[0]
    return torch.randperm(rows, generator=torch.Generator().manual_seed(int(seed)), device="cpu")


class Sample(NamedTuple):
    """The rows of all steps of a part. The first `known` rows of a step are the risk's, and those from `regularised` on
    are the regulariser's. If both use the same rows, every row is both."""

    rows: Tensor  # (steps, G, rows) indices
    known: int
    regularised: int
    weighted: bool = False  # the risk's rows include rows without feedback


def sample(
    rows: Rows,
    steps: int,
    batch_size: int,
    keys: Sequence[Key],
    *,
    mixed: bool,
    reg_on_known: bool,
    has_risk: bool,
    has_regulariser: bool,
) -> Sample:
    """Draw the batches of a part. `keys`: one per fold."""
    if mixed and (has_risk or has_regulariser):
        # If both terms see only the known rows, draw batches of those. Otherwise draw from all rows.
        on_known = has_regulariser and reg_on_known
        everywhere = torch.arange(len(rows.action), device=rows.p.device)
        source = rows.regularised if on_known else (everywhere,) * len(keys)
        index = _batches(source, steps, batch_size, keys, KNOWN, rows.p.device)
        return Sample(
            index, index.shape[-1] if has_risk else 0, 0 if has_regulariser else index.shape[-1], not on_known
        )
    known = _batches(rows.known if has_risk else (), steps, batch_size, keys, KNOWN, rows.p.device)
    # The known rows are a subset of the regularised ones, or the other way round, so as many rows are shared.
    if has_risk and has_regulariser and list(map(len, rows.known)) == list(map(len, rows.regularised)):
        return Sample(known, known.shape[-1], 0)
    on_rows = rows.regularised if has_regulariser else ()
    regularised = _batches(on_rows, steps, batch_size, keys, REGULARISED, rows.p.device)
    return Sample(torch.cat([known, regularised], dim=-1), known.shape[-1], known.shape[-1])


def _batches(
    rows: Sequence[Tensor], steps: int, batch_size: int, keys: Sequence[Key], term: int, device: torch.device
) -> Tensor:
    """(steps, G, rows), with as many rows as the smallest fold allows; no rows if a fold has none."""
    size = min((batch_size, *map(len, rows))) if rows else 0
    if size == 0:
        return torch.empty(steps, len(keys), 0, dtype=torch.int64, device=device)
    shuffled = [indices[order_of(len(indices), key, term).to(device)] for indices, key in zip(rows, keys, strict=True)]
    return torch.stack([in_turn(indices, steps, size) for indices in shuffled], dim=1)


def in_turn(order: Tensor, steps: int, size: int) -> Tensor:
    """Shuffled rows for the given number of steps: (steps, size). Every row is used once before any is used again, and
    at most once per batch.

    The same shuffle is repeated. With a fresh shuffle for each pass, the batch at the boundary could contain a row
    twice.
    """
    positions = torch.arange(steps * size, device=order.device) % len(order)
    return order[positions].view(steps, size)


class Batch(NamedTuple):
    """The rows of a step. `Forward` fills in what the terms see of the policies."""

    context: Tensor  # of the whole part: (rows of the part, *shape)
    rows: Tensor  # (G·rows,) indices into them
    action: Tensor  # (G, 1, 1, rows)
    known: KnownBatch  # the risk's rows: the first ones of the step
    regularised: AnyBatch  # the regulariser's rows: from its `first` on


@dataclass(frozen=True)
class Batches:
    """An epoch's batches for the policies of some folds. Their seeds and the epoch determine the order."""

    data: TrainingData
    folds: Sequence[Fold]
    scales: Sequence[CostScale]  # one per fold
    expected: Sequence[ExpectedRewards]  # one per fold, if the objective needs them
    risk: Risk
    regulariser: Regulariser
    settings: TrainSettings
    device: torch.device
    reg_on_known: bool = False  # the regulariser sees only the known rows
    cost_models: Sequence[CostModel] = ()  # one per fold, if the objective needs them

    @property
    def needs(self) -> tuple[str, ...]:
        return (*self.risk.needs, *self.regulariser.needs)

    @cached_property
    def steps(self) -> Steps:
        """The same for every objective, so that comparisons are fair."""
        return steps_of(self.settings, self.data.statistics.rows)

    def rows(self, epoch: int) -> Iterator[Rows]:
        """The rows of an epoch on the device: all of them, which stay there, or one part at a time."""
        return map(self._on_device, self.data.parts(epoch)) if self.data.streamed else iter(self._resident)

    @cached_property
    def _resident(self) -> list[Rows]:
        return list(map(self._on_device, self.data.parts(0)))

    def _on_device(self, part: TrainRows) -> Rows:
        return rows_on_device(
            part,
            self.folds,
            self.data.statistics,
            reg_on_known=self.reg_on_known,
            device=self.device,
            filling=self.expected if FILLED_COSTS in self.needs else (),
            weighting=self.expected if REWARD_WEIGHT in self.needs else (),
            scales=self.scales,
            cost_models=self.cost_models,
            with_pi0=PI0 in self.needs,
        )

    def epoch(self, epoch: int, start: int) -> Iterator[tuple[int, Batch]]:
        """The steps of an epoch from `start` on, with their numbers. Steps in which no term sees any rows are
        skipped."""
        size, seen, after, count = self.settings.batch_size, 0, 0, self.steps.in_epoch(epoch)
        # If there are more steps than batches, each part takes its share of them. Otherwise the epoch ends before the
        # log does.
        share = max(1.0, count / steps_per_pass(self.data.statistics.rows, size))
        for number, rows in enumerate(self.rows(epoch)):
            first, seen = after, seen + len(rows.action)
            # Full batches throughout the epoch, even at the end of a part.
            after = count if seen == self.data.statistics.rows else min(count, int(share * (seen // size)))
            if max(first, start) < after:
                drawn = self._sample(rows, after - first, size, epoch, number)
                if drawn.rows.shape[-1] or PRIOR in self.needs:
                    steps = enumerate(_gathered(rows, drawn), first)
                    yield from ((step, batch) for step, batch in steps if step >= start)
            del rows  # otherwise a part of a stream would stay in memory until two more are read
            if after == count:
                break

    def single(self, size: int) -> Batch | None:
        """One batch of at most `size` rows from the first part. None if no term sees any of them."""
        rows = next(self.rows(0))
        drawn = self._sample(rows, 1, size, 0, 0)
        return next(_gathered(rows, drawn)) if drawn.rows.shape[-1] else None

    def _sample(self, rows: Rows, steps: int, size: int, epoch: int, number: int) -> Sample:
        return sample(
            rows,
            steps,
            size,
            [(fold.seed, epoch, number) for fold in self.folds],
            mixed=self.settings.sampling == "mixed",
            reg_on_known=self.reg_on_known,
            has_risk=LOG_PI in self.risk.needs,
            has_regulariser=self.regulariser.sees_rows,
        )


def _gathered(rows: Rows, drawn: Sample) -> Iterator[Batch]:
    """The batches of all steps, gathered at once: gathering them one by one costs as much as a small matrix product."""
    action = rows.action[drawn.rows]  # (steps, G, rows)
    known, regularised = drawn.rows[..., : drawn.known], drawn.rows[..., drawn.regularised :]

    def gathered(values: Tensor, index: Tensor) -> Sequence[Any]:
        """The values (G, rows of the part) at the index: (G, 1, rows) for each step."""
        return values.expand(*index.shape[:2], -1).gather(2, index).unsqueeze(2).unbind()

    def gathered_or_not_needed(values: Tensor | None, index: Tensor) -> Sequence[Any]:
        return [NOT_NEEDED] * len(action) if values is None else gathered(values, index)

    columns = zip(
        drawn.rows.flatten(1).unbind(),
        action[:, :, None, None].unbind(),
        gathered(rows.p, known),
        gathered(rows.c, known),
        gathered_or_not_needed(rows.feedback_weight if drawn.weighted else rows.known_weight, known),
        regularised.unbind(),
        gathered(rows.p, regularised),
        gathered(rows.action_weight, regularised),
        gathered_or_not_needed(rows.reward_weight, regularised),
        gathered_or_not_needed(rows.regularised_weight, regularised),
        strict=True,
    )
    for index, logged, known_p, c, weight, on_rows, p, action_weight, reward_weight, reg_weight in columns:
        pi0 = NOT_NEEDED if rows.pi0 is None else rows.pi0[on_rows].unsqueeze(1)  # too large for all steps at once
        of_risk = KnownBatch(
            NOT_NEEDED, known_p, c, weight, expected_cost=_expected_of_logged(rows, index, known_p.shape[-1])
        )
        of_regulariser = AnyBatch(
            NOT_NEEDED,
            p,
            action_weight,
            reward_weight,
            NOT_NEEDED,
            pi0,
            NOT_NEEDED,
            drawn.regularised,
            reg_weight,
            _expected_of_all(rows, on_rows),
        )
        yield Batch(rows.context, index, logged, of_risk, of_regulariser)


def _expected_of_all(rows: Rows, index: Tensor) -> Tensor | None:
    """(G, 1, rows, actions) at the index (G, rows). Gathered one step at a time, like π₀."""
    if rows.expected_costs is None:
        return None
    return torch.stack([costs[of_fold] for costs, of_fold in zip(rows.expected_costs, index, strict=True)]).unsqueeze(1)


def _expected_of_logged(rows: Rows, index: Tensor, known: int) -> Tensor | None:
    """(G, 1, rows) for the logged actions of the first `known` rows of a step, whose index is (G·rows,)."""
    if rows.expected_costs is None:
        return None
    of_risk = index.view(len(rows.expected_costs), -1)[:, :known]
    pairs = zip(rows.expected_costs, of_risk, strict=True)
    return torch.stack([costs[of_fold, rows.action[of_fold]] for costs, of_fold in pairs]).unsqueeze(1)
