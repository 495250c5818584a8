"""Estimates how long a plan takes, from the finished jobs in the folder or, if there are none, from a rough model.

The constants were measured on one core of a server. On other machines they are accurate to within a factor of three.
"""

from collections.abc import Sequence

from s2bl_cli.objectives.methods import GRADIENT_LEARNER
from s2bl_cli.sweeping.plan import Job, Task
from s2bl_cli.sweeping.run import Progress
from s2bl_cli.sweeping.settings import SweepSettings
from s2bl_cli.training.settings import TrainSettings

_START_SECONDS = 1.5  # to import torch
_MULTIPLICATIONS_PER_SECOND = 5e10
_RESNET_IMAGES_PER_SECOND = 1200.0  # of width 16, training
_DEFAULT_STEPS = 2000
_STEP_SECONDS = 4e-4  # time per step besides its matrix products

# Train rows and features of the datasets; unknown for tables.
_SIZES = {
    "sample": (6_000, 784), "fmnist": (60_000, 784), "mnist": (60_000, 784), "emnist": (60_000, 784),
    "cifar10": (50_000, 3072), "cifar100": (50_000, 3072), "kuairec": (35_880, 1555),
}  # fmt: skip
_ACTIONS = {"cifar100": 100, "kuairec": 10_728}
_PRETRAINED_FEATURES = 1280
_UNKNOWN = (10_000, 100)


def seconds_of(tasks: Sequence[Task], progress: Progress, settings: SweepSettings, slots: int) -> float:
    """Estimated wall-clock time of the tasks, with the given number of parallel processes."""
    measured: dict[tuple[str, str], list[float]] = {}
    for job in progress.plan.jobs:
        record = progress.records[job.name]
        if record is not None and record.seconds is not None and record.state == "finished":
            measured.setdefault(_kind(job), []).append(record.seconds)
    total = 0.0
    for task in tasks:
        total += _START_SECONDS
        for job in task.jobs:
            known = measured.get(_kind(job), [])
            total += sum(known) / len(known) if known else _seconds(job, settings)
    return total / slots


def _kind(job: Job) -> tuple[str, str]:
    """Jobs of the same kind, with the same stage and method, take about the same time."""
    return job.stage, _option(job, "--method") or ""


def _option(job: Job, name: str) -> str | None:
    words = job.words
    return words[words.index(name) + 1] if name in words else None


def _seconds(job: Job, settings: SweepSettings) -> float:
    stem = job.name.partition("/")[2]
    dataset = next((name for name in settings.datasets if f"{stem}-".startswith(f"{name}-")), "")
    rows, features = _SIZES.get(dataset, _UNKNOWN)
    features = features if settings.features is None else _PRETRAINED_FEATURES
    rows = min(rows, settings.limit or rows)
    if job.stage == "make-logs":
        is_deep = (settings.logging_model or "").startswith("resnet") or (
            settings.logging_model is None and settings.features is None and dataset not in ("sample", "kuairec", "")
        )
        return 3 * rows / _RESNET_IMAGES_PER_SECOND if is_deep else 1 + rows / 20_000
    if job.stage == "train":
        return _train_seconds(job, settings, rows, features * _ACTIONS.get(dataset, 10))
    return 0.5 + rows / 60_000


def _train_seconds(job: Job, settings: SweepSettings, rows: int, weights: int) -> float:
    model, method = _option(job, "--model") or "linear", _option(job, "--method")
    declared = TrainSettings(method=method, model=model)
    if declared.learner != GRADIENT_LEARNER:
        return 5 + rows / 1_500
    by_preset = 60 if "--preset paper" in settings.train_options else declared.epochs
    epochs = _option(job, "--epochs") or by_preset
    grid = 1
    for name, text in settings.hyperparameters.items():
        grid *= len(declared.declared[name].points(text)) if name in declared.declared else 1
    policies = len(settings.seed_list) * (grid * (settings.folds or 1) + (1 if settings.folds else 0))
    if declared.deep:
        return int(epochs or 0) * rows * policies / _RESNET_IMAGES_PER_SECOND
    per_epoch = max(1, rows // declared.batch_size)
    steps = _DEFAULT_STEPS if epochs is None else int(epochs) * per_epoch
    return steps * (_STEP_SECONDS + 6 * declared.batch_size * weights * policies / _MULTIPLICATIONS_PER_SECOND)
