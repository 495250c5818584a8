"""What the tests of learning share: logs and policies whose every number is chosen, and training in this process.

Not fixtures of pytest's: plain functions, to be imported.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from s2bl_cli.contract.acts import Act
from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.contract.logs.schema import OPTIONAL, LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer
from s2bl_cli.contract.policies import NetworkSpec, Policy, read_policy, write_policy
from s2bl_cli.objectives.hyperparameters import declared_hyperparameters
from s2bl_cli.training.auto_run import AutoRun
from s2bl_cli.training.interruption import noted_signals
from s2bl_cli.training.learner import Run
from s2bl_cli.training.run import TrainedPolicy, TrainingRun
from s2bl_cli.training.settings import TrainSettings

torch.set_num_threads(1)

CPU = torch.device("cpu")
MADE = Step("make-logs", {"dataset": "blobs", "tau": 2.0, "seed": 0}, "0.1.0")


class _OnlyOn(TorchDispatchMode):
    """Fails on an operation whose result is on another device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            assert not isinstance(tensor, torch.Tensor) or tensor.device == self._device, f"{func} on {tensor.device}"
        return result


@contextmanager
def default_device_elsewhere() -> Iterator[None]:
    """As beside a GPU, where torch's default device is not the data's: here the data are on the CPU and the default
    is `meta`. What is made without saying where comes up there, and fails."""
    with torch.device("meta"), _OnlyOn(CPU):
        yield


def say_nothing(done: int, note: str) -> None:
    """Progress that nobody watches."""


def arrays_of(
    context: Any,
    action: Any,
    propensity: Any,
    cost: Any,
    *,
    label: Any = None,
    pi0: Any = None,
    is_test: Any = False,
) -> LogArrays:
    """A log's rows; a cost of NaN is missing."""
    cost = np.asarray(cost, np.float32)
    return LogArrays(
        context=np.asarray(context),
        action=np.asarray(action, np.int32),
        propensity=np.asarray(propensity, np.float32),
        cost=np.nan_to_num(cost),
        known=~np.isnan(cost),
        is_test=np.broadcast_to(is_test, len(cost)).copy(),
        label=None if label is None else np.asarray(label, np.int32),
        pi0=None if pi0 is None else np.asarray(pi0, np.float32),
    )


def write_arrays(
    path: Path, arrays: LogArrays, actions: int, lineage: Step = MADE, action_names: tuple[str, ...] = ()
) -> Path:
    """The rows as a log file. It has the optional columns that the arrays have."""
    optional = tuple(name for name in OPTIONAL if name == "split" or getattr(arrays, name) is not None)
    context = ContextSpec(str(arrays.context.dtype), arrays.context.shape[1:])
    spec = LogSpec(actions, context, optional, action_names=action_names)
    with log_writer(str(path), spec, lineage, force=True) as writer:
        writer.write(log_batch(arrays, spec))
    return path


def blobs(rows: int = 400, *, seed: int = 0, known: float = 1.0, test_rows: int = 100, actions: int = 3) -> LogArrays:
    """A problem that a linear policy can learn: one Gaussian blob a class, logged by a policy that is right in about
    half of its draws. `known` is the share of train rows with feedback."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, actions, rows)
    context = (3 * np.eye(actions)[label] + rng.standard_normal((rows, actions))).astype(np.float32)
    logits = 0.5 * context.astype(np.float64)
    pi0 = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    pi0 = pi0.astype(np.float32)
    action = (pi0.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=actions - 1)
    is_test = np.arange(rows) >= rows - test_rows
    hidden = ~is_test & (rng.permutation(rows).argsort() >= known * rows)
    cost = np.where(hidden, np.nan, -(action == label).astype(np.float32))
    propensity = pi0[np.arange(rows), action]
    return arrays_of(context, action, propensity, cost, label=label, pi0=pi0, is_test=is_test)


def train(path: Path, **settings: Any) -> Policy:
    """A policy learned from the log, with small defaults."""
    (trained,) = train_all(path, **settings)
    return trained.policy


def train_all(path: Path, *, run: Run | None = None, stream: str = "off", **settings: Any) -> list[TrainedPolicy]:
    """All policies that the settings make, with small defaults."""
    prior = settings.get("prior")
    with open_logs([str(path)]) as log:
        whole = train_settings(**{"epochs": 3, "batch_size": 32, **settings})
        loaded = None if prior is None else read_policy(prior)
        if whole.chooses_method:
            return AutoRun(log, whole, stream).policies(run or Run(CPU))
        return TrainingRun(log, whole, stream, loaded).policies(run or Run(CPU, prior=loaded))


def train_settings(**settings: Any) -> TrainSettings:
    """The settings, hyperparameters given by their names like any other."""
    names = [name for name in declared_hyperparameters() if name in settings]
    given = {name: settings.pop(name) for name in names}
    return TrainSettings(
        **settings, hyperparameters={name: str(text) for name, text in given.items() if text is not None}
    )


def table_policy(path: Path, pi: npt.ArrayLike, settings: dict[str, Any] | None = None, act: Act | None = None) -> Path:
    """A policy file with π(a|x) = pi[x, a] for one-hot contexts x: its weights are the logarithms."""
    table = np.asarray(pi, np.float64)  # (contexts, actions)
    contexts, actions = table.shape
    policy = Policy(
        NetworkSpec("linear", ContextSpec("float32", (contexts,)), actions),
        training_rows=100,
        training_known=25,
        lineage=Step("train", settings or {"risk": "tips", "reg": "wce", "reg-rows": "all", "seed": 0}, "0.1.0"),
        tensors={
            "shift": np.zeros(contexts, np.float32),
            "scale": np.ones(contexts, np.float32),
            "body.1.weight": np.log(table).T.astype(np.float32),
            "body.1.bias": np.zeros(actions, np.float32),
        },
        acts=act or Act(),
    )
    write_policy(policy, str(path), force=True)
    return path


def one_hot(contexts: list[int], count: int) -> npt.NDArray[np.float32]:
    return np.eye(count, dtype=np.float32)[contexts]


def signalled_by(patch: pytest.MonkeyPatch, is_due: Callable[[], bool]) -> None:
    """A SIGTERM where a training command asks whether to stop, as soon as it is due."""

    @contextmanager
    def signalled() -> Iterator[Callable[[], bool]]:
        with noted_signals() as should_stop:

            def signalled_or_not() -> bool:
                if is_due():
                    signal.raise_signal(signal.SIGTERM)
                return should_stop()

            yield signalled_or_not

    patch.setattr("s2bl_cli.training.run.noted_signals", signalled)
