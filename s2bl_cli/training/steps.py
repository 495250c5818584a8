"""How long a run trains: its number of steps, the epochs that divide them, and the defaults that suit a log."""

from dataclasses import replace
from typing import NamedTuple

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.training.data import Statistics
from s2bl_cli.training.settings import TrainSettings

EPOCHS_OF_STEPS = 20  # of a run with --steps
_PASSES = 10  # minimum number of passes over the known rows
_MOST_PASSES = 20  # maximum number of passes if the regulariser sees only the known rows: it overfits after more
_LEAST_STEPS_ON_KNOWN = 200
_LR, _FEATURES = 0.001, 784  # the learning rate of a linear policy with this number of features
_MOST_LR = 0.03


class Steps(NamedTuple):
    """The steps of a run. Curves, patience and checkpoints count in epochs, the last of which may be shorter."""

    total: int
    per_epoch: int

    @property
    def epochs(self) -> int:
        return -(-self.total // self.per_epoch)

    def in_epoch(self, epoch: int) -> int:
        return min(self.per_epoch, self.total - epoch * self.per_epoch)


def steps_per_pass(rows: int, batch_size: int) -> int:
    """Number of full batches in this number of rows, at least one."""
    return max(1, rows // batch_size)


def steps_of(settings: TrainSettings, rows: int) -> Steps:
    """With --epochs, passes over the train rows. With --steps, an epoch is a twentieth of them, whatever the log."""
    if settings.steps is None:
        per_epoch = steps_per_pass(rows, settings.batch_size)
        return Steps((settings.epochs or 0) * per_epoch, per_epoch)
    return Steps(settings.steps, max(1, -(-settings.steps // EPOCHS_OF_STEPS)))


def default_steps(settings: TrainSettings, known: int) -> int:
    """Depends on the objective and the number of known rows. Rows without feedback must not change how long the policy
    learns from the others."""
    steps = max(settings.regulariser_term.least_steps, _PASSES * known // settings.batch_size)
    if settings.reg_rows == "known" and settings.regulariser_term.sees_rows:
        steps = min(steps, max(_LEAST_STEPS_ON_KNOWN, _MOST_PASSES * known // settings.batch_size))
    return steps


def default_lr(spec: NetworkSpec) -> float:
    """A step of Adam changes every weight by the learning rate, so the more features there are, the more it changes a
    logit of a linear policy: by a factor of √features if they are independent, and of the number of features if they
    are alike. The exponent is in between."""
    if spec.model != "linear":
        return _LR
    return min(_MOST_LR, float(f"{_LR * (_FEATURES / spec.context.features) ** 0.75:.2g}"))


def settings_for(settings: TrainSettings, spec: NetworkSpec, statistics: Statistics) -> TrainSettings:
    """The settings with the steps and the learning rate that suit the log, if none are given."""
    steps = settings.steps
    if steps is None and settings.epochs is None:
        steps = default_steps(settings, len(statistics.known.c))
    return replace(settings, steps=steps, lr=settings.lr or default_lr(spec))
