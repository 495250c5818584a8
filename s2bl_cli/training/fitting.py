"""The training loop: one device-side shuffle an epoch, no device sync inside it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from s2bl_cli.errors import RunError
from s2bl_cli.models.optimizers import Optimizer
from s2bl_cli.objectives.batches import AnyBatch, KnownBatch
from s2bl_cli.objectives.objective import Objective, Value
from s2bl_cli.training.learners.learner import Learner
from s2bl_cli.training.rows import Rows
from s2bl_cli.training.sampling import Generators, Sample, sample

Schedule = Callable[[int, int, int], float]


class EpochNews(NamedTuple):
    """What an epoch told: (G, C) each, on the CPU. Terms that the objective lacks are None."""

    loss: Tensor
    risk: Tensor | None
    regulariser: Tensor | None


class Part(NamedTuple):
    """A stretch of an epoch: rows that are on the device together, and the steps to take on them."""

    rows: Rows
    steps: int


@dataclass
class Progress:
    """How far a fit has come: all that the next step depends on besides learner and optimizer."""

    epoch: int = 0  # whole epochs done
    step: int = 0  # steps done in this epoch
    totals: dict[str, Tensor] = field(default_factory=dict)  # of this epoch's steps: total, risk, regulariser


@dataclass
class Fit:
    """One fit of a learner: its epochs may be taken one by one, left in the middle and taken up again."""

    learner: Learner
    objective: Objective
    optimizer: Optimizer
    schedule: Schedule
    generators: Sequence[Generators]
    parts: Callable[[int], Iterator[Part]]  # of an epoch by its number
    steps_to_an_epoch: int
    epochs: int
    batch_size: int
    mixed: bool
    exact: bool
    prior: Sequence[Tensor] | None
    base_lr: float
    is_wanted_elsewhere: Callable[[], bool] = lambda: False  # asked between steps: leave now?
    progress: Progress = field(default_factory=Progress)
    epoch_start: list[Tensor] = field(default_factory=list)  # the generators' states at this epoch's start

    def run_epoch(self) -> EpochNews | None:
        """Take an epoch's steps, or what is left of them; None if it was left in the middle."""
        progress = self.progress
        if progress.step == 0:
            self.epoch_start = [generator.get_state() for pair in self.generators for generator in pair]
            progress.totals = {}
        else:  # taken up again: the same batches once more, of which the first have been seen
            self._rewind()
        self.learner.training(True)
        total_steps = self.epochs * self.steps_to_an_epoch
        done_before = 0
        for part in self.parts(progress.epoch):
            batches = sample(
                part.rows,
                part.steps,
                self.batch_size,
                self.generators,
                mixed=self.mixed,
                has_risk=self.objective.risk is not None,
                has_regulariser=self.objective.regulariser is not None,
            )
            steps = _Steps(part.rows, batches, self)
            for step in range(max(0, progress.step - done_before), part.steps):
                if self.is_wanted_elsewhere():
                    self._rewind()
                    return None
                at = progress.epoch * self.steps_to_an_epoch + done_before + step
                self.optimizer.lr = self.base_lr * self.schedule(at, total_steps, self.steps_to_an_epoch)
                value = steps.value(step)
                if value is not None:
                    self.optimizer.zero_grad()
                    self.learner.backward(value.total)
                    self.optimizer.step()
                    _add(progress.totals, value)
                progress.step = done_before + step + 1
            done_before += part.steps
            del part, batches, steps  # or a stream would hold this buffer until it has read two more
        progress.epoch += 1
        progress.step = 0
        return self._news(done_before)

    def _rewind(self) -> None:
        """The generators as they were before this epoch's batches were drawn."""
        for generator, state in zip((one for pair in self.generators for one in pair), self.epoch_start, strict=True):
            generator.set_state(state)

    def _news(self, steps: int) -> EpochNews:
        means = {name: (total / steps).cpu() for name, total in self.progress.totals.items()}  # the one device sync
        nothing = torch.zeros(1, 1)  # of an epoch in which no row had anything to say
        return EpochNews(means.get("total", nothing), means.get("risk"), means.get("regulariser"))


def check_finite(news: EpochNews, epoch: int, lr: float, nu: float) -> None:
    if bool(torch.isfinite(news.loss).all()):
        return
    worst = next(value for value in news.loss.flatten().tolist() if not math.isfinite(value))
    raise RunError(
        f"the loss became {worst} in epoch {epoch}: use a smaller --lr than {lr:g}, "
        f"or a larger --nu than {nu:g} if propensities are tiny"
    )


def _add(totals: dict[str, Tensor], value: Value) -> None:
    for name, term in zip(Value._fields, value, strict=True):
        if term is not None and name in totals:
            totals[name] += term.detach()
        elif term is not None:
            totals[name] = term.detach().clone()


class _Steps:
    """The batches of a part, what can be gathered for all steps at once gathered: tensors (steps, G, 1, batch)."""

    def __init__(self, rows: Rows, batches: Sample, fit: Fit) -> None:
        self._rows, self._fit = rows, fit
        objective = fit.objective
        known = batches.both if batches.both is not None else batches.known
        regularised = batches.both if batches.both is not None else batches.regularised
        self._needs_rows = objective.regulariser is not None and fit.prior is None
        self._risk = None if objective.risk is None or known is None else _gathered_known(rows, known, batches.weighted)
        self._known_count = 0 if known is None or objective.risk is None else known.shape[-1]
        self._reg = None
        if objective.regulariser is not None and regularised is not None:
            self._reg = _gathered_any(rows, regularised)
        self._regularised = regularised
        self._shared = batches.both is not None
        if self._shared or not self._needs_rows or regularised is None:
            self._index = known if objective.risk is not None else regularised
        elif self._risk is None:
            self._index = regularised
        else:
            assert known is not None
            self._index = torch.cat([known, regularised], dim=-1)
        # All steps' views at once: taking them one by one costs as much as a small product.
        self._indices = () if self._index is None else self._index.unbind()
        self._actions = () if self._index is None else rows.action[self._index].unbind()

    def value(self, step: int) -> Value | None:
        """The objective of this step; None where no row at hand has anything to say."""
        fit, learner = self._fit, self._fit.learner
        if self._index is None or (self._risk is None and self._reg is None):
            return None
        known_batch = any_batch = None
        if fit.exact and self._reg is not None:
            return self._exact_value(step)
        needs_forward = self._risk is not None or self._needs_rows
        log_pi = learner.log_pi(self._rows.context, self._indices[step], self._actions[step]) if needs_forward else None
        if self._risk is not None:
            assert log_pi is not None
            known_batch = _known_batch(log_pi[..., : self._known_count], self._risk, step)
        if self._reg is not None:
            if fit.prior is not None:
                distance = learner.distance(fit.prior)
                nothing = distance.new_zeros(())
                any_batch = AnyBatch(nothing, nothing, nothing, distance=distance)
            else:
                assert log_pi is not None
                own = log_pi if self._shared or self._risk is None else log_pi[..., self._known_count :]
                any_batch = _any_batch(own, self._reg, step)
        return fit.objective(known_batch, any_batch)

    def _exact_value(self, step: int) -> Value:
        """As `value`, with π(·|x) of the regularised rows."""
        fit, rows = self._fit, self._rows
        assert self._reg is not None
        assert self._regularised is not None
        assert rows.pi0 is not None
        log_policy = fit.learner.log_policy(rows.context, self._indices[step])  # (G, C, batch, actions)
        own = log_policy if self._shared or self._risk is None else log_policy[:, :, self._known_count :]
        pi0 = rows.pi0[self._regularised[step]].unsqueeze(1)  # (G, 1, batch, actions)
        reg_action = rows.action[self._regularised[step]]
        any_batch = _any_batch(_logged(own, reg_action), self._reg, step)._replace(log_policy=own, pi0=pi0)
        known_batch = None
        if self._risk is not None:
            count = self._known_count
            log_pi = _logged(log_policy[:, :, :count], self._actions[step][:, :count])
            known_batch = _known_batch(log_pi, self._risk, step)
        return fit.objective(known_batch, any_batch)


def _logged(log_policy: Tensor, action: Tensor) -> Tensor:
    """(G, C, batch, actions) and (G, batch) → (G, C, batch)."""
    index = action[:, None, :, None].expand(-1, log_policy.shape[1], -1, 1)
    return log_policy.gather(-1, index).squeeze(-1)


Gathered = tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor] | None]  # of all steps: (G, 1, batch) each


def _gathered_known(rows: Rows, index: Tensor, weighted: bool) -> Gathered:
    weight = _of_groups(rows.feedback_weight, index).unbind() if weighted else None
    return rows.p[index].unsqueeze(2).unbind(), _of_groups(rows.c, index).unbind(), weight


def _gathered_any(rows: Rows, index: Tensor) -> Gathered:
    merit = None if rows.merit is None else _of_groups(rows.merit, index).unbind()
    return rows.p[index].unsqueeze(2).unbind(), _of_groups(rows.action_weight, index).unbind(), merit


def _of_groups(values: Tensor, index: Tensor) -> Tensor:
    """values (G, rows) at index (steps, G, batch): (steps, G, 1, batch)."""
    return values.expand(index.shape[0], -1, -1).gather(2, index).unsqueeze(2)


def _known_batch(log_pi: Tensor, gathered: Gathered, step: int) -> KnownBatch:
    p, c, weight = gathered
    return KnownBatch(log_pi, p[step], c[step], None if weight is None else weight[step])


def _any_batch(log_pi: Tensor, gathered: Gathered, step: int) -> AnyBatch:
    p, action_weight, merit = gathered
    return AnyBatch(log_pi, p[step], action_weight[step], None if merit is None else merit[step])
