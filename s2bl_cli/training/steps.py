"""How long a run trains: its steps, the epochs in which they are counted, and the defaults that suit a log."""

from dataclasses import replace
from typing import NamedTuple

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.training.data import Statistics
from s2bl_cli.training.settings import TrainSettings

EPOCHS_OF_STEPS = 20  # of a run with --steps
_PASSES = 10  # over the known rows, at least
_MOST_PASSES = 20  # over the known rows, if the regulariser sees no others: after more, it overfits
_LEAST_STEPS_ON_KNOWN = 200
_LR, _FEATURES = 0.001, 784  # the learning rate of a linear policy with so many features
_MOST_LR = 0.03


class Steps(NamedTuple):
    """The steps of a run. Curves, patience and checkpoints go by epochs; the last one may be shorter."""

    total: int
    per_epoch: int

    @property
    def epochs(self) -> int:
        return -(-self.total // self.per_epoch)

    def in_epoch(self, epoch: int) -> int:
        return min(self.per_epoch, self.total - epoch * self.per_epoch)


def steps_per_pass(rows: int, batch_size: int) -> int:
    """Full batches over so many rows, at least one."""
    return max(1, rows // batch_size)


def steps_of(settings: TrainSettings, rows: int) -> Steps:
    """With --epochs, passes over the train rows. With --steps, an epoch is a twentieth of them, whatever the log."""
    if settings.steps is None:
        per_epoch = steps_per_pass(rows, settings.batch_size)
        return Steps((settings.epochs or 0) * per_epoch, per_epoch)
    return Steps(settings.steps, max(1, -(-settings.steps // EPOCHS_OF_STEPS)))


def default_steps(settings: TrainSettings, known: int) -> int:
    """By the objective and the number of known rows: rows without feedback must not change how long the others are
    learned from."""
    steps = max(settings.regulariser_term.least_steps, _PASSES * known // settings.batch_size)
    if settings.reg_rows == "known" and settings.regulariser_term.sees_rows:
        steps = min(steps, max(_LEAST_STEPS_ON_KNOWN, _MOST_PASSES * known // settings.batch_size))
    return steps


def default_lr(spec: NetworkSpec) -> float:
    """A step of Adam moves every weight by the learning rate, so with more features it moves a logit of a linear policy
    further: by √features if they are independent, by as many times if they are alike. The power is in between."""
    if spec.model != "linear":
        return _LR
    return min(_MOST_LR, float(f"{_LR * (_FEATURES / spec.context.features) ** 0.75:.2g}"))


def settings_for(settings: TrainSettings, spec: NetworkSpec, statistics: Statistics) -> TrainSettings:
    """With the steps and the learning rate that suit the log, where none are given."""
    steps = settings.steps
    if steps is None and settings.epochs is None:
        steps = default_steps(settings, len(statistics.known.c))
    return replace(settings, steps=steps, lr=settings.lr or default_lr(spec))
