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
from s2bl_cli.objectives.objective import Objective
from s2bl_cli.objectives.slopes import Sloped, Slopes
from s2bl_cli.training.learners.learner import Learner
from s2bl_cli.training.rows import Rows
from s2bl_cli.training.sampling import Generators, Sample, sample

Schedule = Callable[[int, int, int], float]

TERMS = ("risk", "regulariser")


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
    totals: dict[str, Tensor] = field(default_factory=dict)  # of this epoch's steps: (G, C, batch) by `TERMS`


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

    def __post_init__(self) -> None:
        own = self.objective
        self.risk = None if own.risk is None else Sloped(own.risk, own.knobs)
        self.regulariser = None if own.regulariser is None else Sloped(own.regulariser, own.knobs, own.lam)

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
                has_risk=self.risk is not None,
                has_regulariser=self.regulariser is not None,
            )
            steps = _Steps(part.rows, batches, self)
            for step in range(max(0, progress.step - done_before), part.steps):
                if self.is_wanted_elsewhere():
                    self._rewind()
                    return None
                at = progress.epoch * self.steps_to_an_epoch + done_before + step
                self.optimizer.lr = self.base_lr * self.schedule(at, total_steps, self.steps_to_an_epoch)
                if not steps.are_idle:
                    self.optimizer.zero_grad()
                    steps.take(step, progress.totals)
                    self.optimizer.step()
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
        means = {name: total.mean(-1) / steps for name, total in self.progress.totals.items()}
        risk, regulariser = (means.get(name) for name in TERMS)
        loss = torch.zeros(1, 1) if not means else self.objective.total(risk, regulariser)  # no row had a say
        # The one device sync.
        return EpochNews(
            loss.cpu(), None if risk is None else risk.cpu(), None if regulariser is None else regulariser.cpu()
        )


def check_finite(news: EpochNews, epoch: int, lr: float, nu: float) -> None:
    if bool(torch.isfinite(news.loss).all()):
        return
    worst = next(value for value in news.loss.flatten().tolist() if not math.isfinite(value))
    raise RunError(
        f"the loss became {worst} in epoch {epoch}: use a smaller --lr than {lr:g}, "
        f"or a larger --nu than {nu:g} if propensities are tiny"
    )


def _add(totals: dict[str, Tensor], name: str, terms: Tensor) -> None:
    """Row by row, and the mean over the rows once at the end: a sum over the rows every step costs more."""
    so_far = totals.get(name)
    if so_far is not None and so_far.shape == terms.shape:
        so_far.add_(terms)
    elif so_far is None:
        totals[name] = terms.clone()
    else:  # the last batches of a stream may be smaller
        totals[name] = so_far.mean(-1, keepdim=True) + terms.mean(-1, keepdim=True)


class _Steps:
    """The batches of a part, what can be gathered for all steps at once gathered: tensors (steps, G, 1, batch)."""

    def __init__(self, rows: Rows, batches: Sample, fit: Fit) -> None:
        self._rows, self._fit = rows, fit
        known = batches.both if batches.both is not None else batches.known
        regularised = batches.both if batches.both is not None else batches.regularised
        self._risk = self._reg = None
        self._known_count = 0
        if fit.risk is not None and known is not None:
            self._risk = _gathered_known(rows, known, batches.weighted)
            self._known_count = known.shape[-1]
        if fit.regulariser is not None and regularised is not None:
            self._reg = _gathered_any(rows, regularised)
        self._regularised = regularised
        self._shared = batches.both is not None
        self.are_idle = self._risk is None and self._reg is None  # no row at hand has anything to say
        reg_sees_rows = self._reg is not None and fit.prior is None
        if self._risk is None or known is None:
            index = regularised if reg_sees_rows else None
        elif self._shared or not reg_sees_rows or regularised is None:
            index = known
        else:
            index = torch.cat([known, regularised], dim=-1)
        # All steps' views at once: taking them one by one costs as much as a small product.
        self._batches = [] if index is None else fit.learner.batches(index, rows.action[index])
        self._index = index

    def take(self, step: int, totals: dict[str, Tensor]) -> None:
        """Give the parameters their gradients, and add what was seen to the totals."""
        risk: Slopes | None = None
        reg: Slopes | None = None
        if self._fit.exact and self._reg is not None:
            risk, reg = self._through_policy(step)
        elif self._batches:
            risk, reg = self._through_rows(step)
        if self._reg is not None and self._fit.prior is not None:
            reg = self._through_distance(self._fit.prior)
        if risk is not None:
            _add(totals, "risk", risk.terms)
        if reg is not None:
            _add(totals, "regulariser", reg.terms)

    def _through_rows(self, step: int) -> tuple[Slopes | None, Slopes | None]:
        fit, learner, count = self._fit, self._fit.learner, self._known_count
        log_pi = learner.log_pi(self._rows.context, self._batches[step])  # (G, C, batch)
        risk = reg = None
        if self._risk is not None:
            assert fit.risk is not None
            own = log_pi if self._shared or log_pi.shape[-1] == count else log_pi[..., :count]
            risk = fit.risk(_known_batch(own, self._risk, step))
        if self._reg is not None and fit.prior is None:
            assert fit.regulariser is not None
            own = log_pi if self._shared or self._risk is None else log_pi[..., count:]
            reg = fit.regulariser(_any_batch(own, self._reg, step))
        slopes = [term.log_pi for term in (risk, reg) if term is not None and term.log_pi is not None]
        if len(slopes) == 1:
            learner.backward(slopes[0])
        else:
            learner.backward(slopes[0] + slopes[1] if self._shared else torch.cat(slopes, dim=-1))
        return risk, reg

    def _through_policy(self, step: int) -> tuple[Slopes | None, Slopes]:
        """As `_through_rows`, with π(·|x) of the regularised rows."""
        fit, rows, count = self._fit, self._rows, self._known_count
        assert self._reg is not None
        assert self._regularised is not None
        assert self._index is not None
        assert rows.pi0 is not None
        assert fit.regulariser is not None
        log_policy = fit.learner.log_policy(rows.context, self._index[step])  # (G, C, batch, actions)
        slopes = torch.zeros_like(log_policy)
        first = 0 if self._shared else count
        own = log_policy[:, :, first:]
        pi0 = rows.pi0[self._regularised[step]].unsqueeze(1)  # (G, 1, batch, actions)
        logged = own.gather(-1, _places(rows.action[self._regularised[step]], own)).squeeze(-1)
        reg = fit.regulariser(_any_batch(logged, self._reg, step)._replace(log_policy=own, pi0=pi0))
        if reg.log_policy is not None:
            slopes[:, :, first:] += reg.log_policy
        risk = None
        if self._risk is not None:
            assert fit.risk is not None
            own = log_policy[:, :, :count]
            places = _places(rows.action[self._index[step][:, :count]], own)
            risk = fit.risk(_known_batch(own.gather(-1, places).squeeze(-1), self._risk, step))
            assert risk.log_pi is not None
            slopes[:, :, :count].scatter_add_(-1, places, risk.log_pi.unsqueeze(-1))
        fit.learner.backward_policy(slopes)
        return risk, reg

    def _through_distance(self, prior: Sequence[Tensor]) -> Slopes:
        fit = self._fit
        assert fit.regulariser is not None
        distance = fit.learner.distance(prior)
        nothing = distance.new_zeros(())
        reg = fit.regulariser(AnyBatch(nothing, nothing, nothing, distance=distance))
        assert reg.distance is not None
        fit.learner.backward_distance(prior, reg.distance)
        return reg


def _places(action: Tensor, log_policy: Tensor) -> Tensor:
    """The logged actions (G, batch) as places in (G, C, batch, actions): (G, C, batch, 1)."""
    return action[:, None, :, None].expand(-1, log_policy.shape[1], -1, 1)


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
