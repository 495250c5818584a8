"""Runs that are stopped and go on end in the same bytes as if they had never been stopped; bad checkpoints are told."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learning_fixtures import CPU, blobs, signalled_by, train_settings, write_arrays
from repository import ROOT

from s2bl_cli.contract.checkpoints import read_any_checkpoint, write_checkpoint
from s2bl_cli.contract.history import read_history
from s2bl_cli.contract.input_files import open_input
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.policies import read_policy
from s2bl_cli.errors import S2blError
from s2bl_cli.training import data, direct_learner
from s2bl_cli.training.interruption import Interrupted
from s2bl_cli.training.learner import Checkpoint, Run
from s2bl_cli.training.loop import TrainState
from s2bl_cli.training.run import TrainedPolicy, TrainingRun
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.validation import SELECTORS_BY_NAME, Selector

ACTIONS = 3
SMALL: dict[str, Any] = {"epochs": 3, "batch_size": 32, "lr": 0.05}  # nine steps to an epoch


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In eight row groups, of which a streamed epoch holds two at a time: it is stopped in the midst of its parts."""
    path = write_arrays(tmp_path_factory.mktemp("checkpoints") / "log.parquet", blobs(known=0.5), ACTIONS)
    pq.write_table(pq.read_table(path), path, row_group_size=50)
    with pytest.MonkeyPatch.context() as patch, open_logs([str(path)]) as opened:
        patch.setattr(data, "PART_BYTES", 100 * data.row_bytes(opened, ()))
        assert len(opened.row_groups) == 8
        yield path


class Stopper:
    """Asks to stop after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def _run(
    log: Path,
    settings: TrainSettings,
    checkpoint: Checkpoint | None = None,
    steps: int = 1 << 60,
    *,
    resume: bool = False,
    stream: str = "off",
) -> list[TrainedPolicy] | None:
    """The policies; None if it was stopped."""
    checkpoint = checkpoint or Checkpoint()
    with open_logs([str(log)]) as opened:
        training = TrainingRun(opened, settings, stream)
        if resume:
            assert checkpoint.resume(training.identity)
        try:
            return training.policies(Run(CPU, checkpoint=checkpoint, should_stop=Stopper(steps)))
        except Interrupted:
            checkpoint.write()
            return None


def _stopped(
    log: Path, settings: TrainSettings, folder: Path, every: int, stream: str
) -> tuple[list[TrainedPolicy], int]:
    """As a run that is stopped after every so many steps, and how often it was."""
    path = str(folder / "run.checkpoint")
    for times in range(1000):
        trained = _run(log, settings, Checkpoint(path), every, resume=times > 0, stream=stream)
        if trained is not None:
            return trained, times
    raise AssertionError("it never ends")


def _same(one: list[TrainedPolicy], other: list[TrainedPolicy]) -> bool:
    assert [(t.candidate, t.estimate, t.curve) for t in one] == [(t.candidate, t.estimate, t.curve) for t in other]
    assert [t.policy.lineage for t in one] == [t.policy.lineage for t in other]
    return all(
        np.array_equal(a.policy.tensors[name], b.policy.tensors[name])
        for a, b in zip(one, other, strict=True)
        for name in a.policy.tensors
    )


RUNS: dict[str, dict[str, Any]] = {
    "linear": {},
    "steps": {"epochs": None, "steps": 50},
    "grid": {"lam": "0.1,1", "seeds": "0,1"},
    "mixed": {"sampling": "mixed", "schedule": "one-cycle"},
    "sgd": {"optimizer": "sgd", "lam": "0.1,1", "schedule": "cosine"},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1},
    "mlp": {"model": "mlp", "hidden": "4", "seeds": "0,1"},
    "patience": {"lam": "0.1,1", "patience": 1, "holdout": 0.3, "select": "snips"},
    "patience, dr": {"lam": "0.1,1", "patience": 1, "holdout": 0.3, "select": "dr"},
    "patience, mlp": {"model": "mlp", "hidden": "4", "seeds": "0,1", "patience": 1, "holdout": 0.3},
    "folds": {"lam": "0.1,1", "select": "snips", "folds": 2, "seeds": "0,1"},
    "folds, mlp": {"model": "mlp", "hidden": "4", "lam": "0.1,1", "select": "snips", "folds": 2},
    "cce": {"method": "cce-s2bl"},
    "lpr": {"method": "b-crm", "lam": "0.01,0.1"},
    "lpr, eleven tensors and more": {"method": "b-crm", "lam": 0.1, "model": "mlp", "hidden": "3,3,3,3,3,3"},
    "banditnet": {"method": "banditnet"},
    "one seed holds out more": {"seeds": "0,1", "holdout": 0.3, "batch_size": 150},
}


@pytest.mark.parametrize("stream", ["off", "on"])
@pytest.mark.parametrize(
    ("name", "every"),
    [*((name, 7) for name in RUNS), ("linear", 1), ("linear", 9), ("patience", 9), ("mlp", 9)],
)
def test_stopped_and_resumed_is_the_same_to_the_last_bit(
    log: Path, tmp_path: Path, name: str, every: int, stream: str
) -> None:
    """Nine steps are an epoch: after nine, it is stopped before the first step of the next one."""
    settings = train_settings(**{**SMALL, **RUNS[name]})
    whole = _run(log, settings, stream=stream)
    assert whole is not None
    stopped, times = _stopped(log, settings, tmp_path, every, stream)
    assert times >= 1
    assert _same(whole, stopped)


@pytest.mark.parametrize(
    "settings", [{"method": "dm-s2bl", "model": "mlp", "hidden": "4"}, {"method": "dr-s2bl"}], ids=str
)
def test_direct_method_goes_on_within_its_copy_and_after_it(
    log: Path, tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy of dm-s2bl has more units than the copy, which the checkpoint keeps too."""
    monkeypatch.setattr(direct_learner, "_LEAST_COPY_STEPS", {"linear": 20, "mlp": 20})
    declared = train_settings(**{**SMALL, **settings, "seeds": "0,1"})
    whole = _run(log, declared)
    assert whole is not None
    stopped, times = _stopped(log, declared, tmp_path, 20, "off")
    assert times >= 2
    assert _same(whole, stopped)


def test_prior_is_fitted_once(log: Path, tmp_path: Path) -> None:
    """27 steps fit the prior of lpr, an ordinary fit: one that was stopped in its midst goes on from there."""
    settings = train_settings(**SMALL, method="b-crm")
    path = str(tmp_path / "run.checkpoint")
    assert _run(log, settings, Checkpoint(path), 10) is None
    assert _position(path) == ("training-prior", 1, 1)
    assert _run(log, settings, Checkpoint(path), 20, resume=True) is None
    assert _position(path) == ("training", 0, 3)
    trained = _run(log, settings, Checkpoint(path), 24, resume=True)
    whole = _run(log, settings)
    assert trained is not None
    assert whole is not None
    assert _same(trained, whole)


def test_estimate_of_minus_infinity_is_kept(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that gives the held-out actions no weight has it, and JSON has no word for it."""
    monkeypatch.setitem(SELECTORS_BY_NAME, "snips", Selector(lambda held, delta: -math.inf))
    settings = train_settings(**SMALL, patience=3, holdout=0.3)
    path = str(tmp_path / "run.checkpoint")
    assert _run(log, settings, Checkpoint(path), 13) is None
    trained = _run(log, settings, Checkpoint(path), resume=True)
    assert trained is not None
    assert [value for _, name, value in trained[0].curve if name == "snips"] == [-math.inf] * 3


def test_checkpoint_of_an_epoch_is_gone_on_from(log: Path, tmp_path: Path) -> None:
    settings = train_settings(**SMALL, lam="0.1,1")
    path = str(tmp_path / "run.checkpoint")
    assert _run(log, settings, Checkpoint(path, every_epochs=2), 20) is None
    assert _position(path) == ("training", 2, 2)
    resumed = _run(log, settings, Checkpoint(path), resume=True)
    whole = _run(log, settings)
    assert resumed is not None
    assert whole is not None
    assert _same(resumed, whole)


def _position(path: str) -> tuple[str, int, int]:
    with open_input(path) as file:
        current = read_any_checkpoint(file)[1].current
    assert current is not None
    return current.stage, current.epoch, current.step


def test_checkpoints_come_every_so_many_epochs_and_minutes(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.checkpoint"

    def written(**when: Any) -> list[int]:
        epochs: list[int] = []
        real = Checkpoint.write

        def write(checkpoint: Checkpoint) -> None:
            assert checkpoint.progress.current is not None
            epochs.append(checkpoint.progress.current.epoch)
            real(checkpoint)

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "write", write)
            assert _run(log, train_settings(**SMALL), Checkpoint(str(path), **when)) is not None
        return epochs

    assert written() == []
    assert not path.exists()
    assert written(every_epochs=2) == [2]
    assert written(every_minutes=1e6) == []
    assert written(every_minutes=1e-9) == [1, 2, 3]


def test_streaming_is_decided_once(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is free when a run goes on does not turn it into another run."""
    settings = train_settings(**SMALL)
    path = str(tmp_path / "run.checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr(data, "available_memory", lambda: 1000)
        assert _run(log, settings, Checkpoint(path), 13, stream="auto") is None
    resumed = _run(log, settings, Checkpoint(path), resume=True, stream="auto")
    whole = _run(log, settings, stream="on")
    assert resumed is not None
    assert whole is not None
    assert _same(resumed, whole)
    assert resumed[0].policy.lineage.settings["stream"] == "on"


# --- the command ---


def test_resumed_command_writes_the_same_bytes(
    run: Callable[..., Any], tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", log, "--method", "wce-s2bl", "--lam", "0.1,1", "--epochs", 3, "--batch-size", 32)
    assert run(*words, "-o", "whole/", "--history", "whole.parquet").code == 0
    _stop_command(monkeypatch, 13)
    ran = run(*words, "-o", "parts/", "--history", "parts.parquet")
    assert ran.code == 143
    name = os.path.join("parts", "log-wce-s2bl-lam0.1-seed0.checkpoint")
    assert ran.stderr == f"warning: stopped; to continue, run the same command with --resume (state in {name})\n"
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["log-wce-s2bl-lam0.1-seed0.checkpoint"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    ran = run(*words, "-o", "parts/", "--history", "parts.parquet", "--resume")
    assert ran.code == 0
    assert ran.stderr.startswith(f"resuming from {name}\n")
    whole, parts = (
        {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} for folder in ("whole", "parts")
    )
    assert whole == parts
    assert len(parts) == 2
    tables = [read_history([str(tmp_path / name)])[0] for name in ("whole.parquet", "parts.parquet")]
    assert tables[0].drop_columns("policy").equals(tables[1].drop_columns("policy"))


def _stop_command(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """A SIGTERM after so many steps."""
    signalled_by(monkeypatch, Stopper(steps))


def test_seeds_on_masks_of_their_own_resume_where_they_stopped(
    run: Callable[..., Any], tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the second of three runs: the first is not trained again."""
    assert run("mask", log, "--rho", 0.5, "--seeds", "0,1,2", "-o", "m.parquet").code == 0
    words = (
        "train",
        "m-seed{seed}.parquet",
        "--method",
        "wce-s2bl",
        "--seeds",
        "0,1,2",
        "--epochs",
        2,
        "--batch-size",
        32,
    )
    assert run(*words, "-o", "whole/").code == 0
    steps = 2 * (read_policy(str(next((tmp_path / "whole").iterdir()))).policy.training_rows // 32)
    _stop_command(monkeypatch, steps + steps // 2)
    assert run(*words, "-o", "parts/").code == 143
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    left = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert left == [f"m-seed{seed}-wce-s2bl-seed{seed}.checkpoint" for seed in (0, 1)]
    ran = run(*words, "-o", "parts/", "--resume")
    assert ran.code == 0, ran.stderr
    assert ran.stderr.count("resuming from ") == 2
    assert [path.name for path in sorted((tmp_path / "parts").iterdir())] == [
        path.name for path in sorted((tmp_path / "whole").iterdir())
    ]
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "parts" / path.name).read_bytes()


def test_resume_without_a_checkpoint_starts_from_the_beginning(
    run: Callable[..., Any], tmp_path: Path, log: Path
) -> None:
    ran = run("train", log, "--method", "wce-s2bl", "--epochs", 1, "--resume", "-o", "p.safetensors")
    assert ran.code == 0
    assert ran.stderr.startswith("no checkpoint: starting from the beginning\n")
    assert [path.name for path in tmp_path.iterdir()] == ["p.safetensors"]


def test_stopped_on_the_way_to_stdout_says_that_nothing_is_kept(
    run: Callable[..., Any], tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stop_command(monkeypatch, 3)
    ran = run("train", log, "--method", "wce-s2bl", "-o", "-")
    assert (ran.code, ran.stdout) == (143, "")
    assert ran.stderr == "warning: stopped; with -o - there is no checkpoint to resume from\n"
    assert list(tmp_path.iterdir()) == []


WORDS = ("--method", "wce-s2bl", "--epochs", 3, "--batch-size", 32, "--lam", 1)


@pytest.fixture
def checkpoint(run: Callable[..., Any], tmp_path: Path, log: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        _stop_command(patch, 13)
        assert run("train", log, *WORDS, "-o", "p.safetensors").code == 143
    return tmp_path / "p.checkpoint"


def _refused(run: Callable[..., Any], folder: Path, *words: Any) -> str:
    ran = run("train", *words, "--resume", "-o", "p.safetensors")
    assert (ran.code, ran.stdout) == (2, "")
    assert not (folder / "p.safetensors").exists()
    line: str = ran.stderr.removeprefix("resuming from p.checkpoint\n")
    assert line.count("\n") == 1
    return line


def test_checkpoint_of_another_run_is_refused(
    run: Callable[..., Any], tmp_path: Path, log: Path, checkpoint: Path
) -> None:
    content = checkpoint.read_bytes()
    assert _refused(run, tmp_path, log, *WORDS, "--lr", 0.3) == (
        "s2bl: p.checkpoint is from a run with other settings (lr was 0.001, is 0.3): pass the same options, or drop "
        "--resume to start over\n"
    )
    other = write_arrays(tmp_path / "log.parquet", blobs(known=0.4), ACTIONS)
    assert _refused(run, tmp_path, other, *WORDS) == (
        "s2bl: p.checkpoint is from a run on another log: pass the same log, or drop --resume to start over\n"
    )
    assert checkpoint.read_bytes() == content
    assert run("train", log, *WORDS, "--resume", "-o", "p.safetensors").code == 0
    assert not checkpoint.exists()


def test_what_is_no_checkpoint_is_refused(run: Callable[..., Any], tmp_path: Path, log: Path, checkpoint: Path) -> None:
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(b"")
    assert _refused(run, tmp_path, log, *WORDS) == "s2bl: p.checkpoint is empty: it has 0 bytes\n"
    checkpoint.write_bytes(content[: len(content) // 2])
    line = _refused(run, tmp_path, log, *WORDS)
    assert line.startswith("s2bl: p.checkpoint is not a checkpoint file (safetensors: ")
    assert line.endswith("): drop --resume to start over\n")
    checkpoint.write_bytes(log.read_bytes())
    assert _refused(run, tmp_path, log, *WORDS) == (
        "s2bl: p.checkpoint is a Parquet file, but checkpoints are safetensors files: drop --resume to start over\n"
    )
    assert run("train", log, "--method", "wce-s2bl", "--epochs", 1, "--quiet", "-o", "other.safetensors").code == 0
    (tmp_path / "other.safetensors").rename(checkpoint)
    line = _refused(run, tmp_path, log, *WORDS)
    assert "policy" in line
    assert "checkpoint" in line


def test_checkpoint_is_no_policy(run: Callable[..., Any], tmp_path: Path, log: Path, checkpoint: Path) -> None:
    ran = run("evaluate", checkpoint, "--logs", log, "-o", "s.parquet")
    assert ran.code == 2
    assert "checkpoint" in ran.stderr
    assert ran.stderr.count("\n") == 1


Change = Callable[[dict[str, Any]], Any]


def _at(*path: str, value: Any = None) -> Change:
    """Put a value at the path; None drops what is there."""

    def change(content: dict[str, Any]) -> None:
        *way, last = path
        for step in way:
            content = content[step]
        content.pop(last) if value is None else content.update({last: value})

    return change


TENSORS = ("current", "tensors")
RESULT = ("current", "results", "0,0,0")
KEPT = {"tensors": {}, "held_out": None, "curve": [], "best_epoch": 1}
FORGED: dict[str, Change] = {
    "no parameters": _at(*TENSORS, "policies.body.1.weight"),
    "parameters of another shape": _at(*TENSORS, "policies.body.1.weight", value=np.zeros((5, 2, 3), np.float32)),
    "parameters that would broadcast": _at(*TENSORS, "policies.body.1.weight", value=np.zeros((), np.float32)),
    "parameters of another dtype": _at(*TENSORS, "policies.body.1.bias", value=np.zeros((1, 3, 1), np.float64)),
    "a tensor too many": _at(*TENSORS, "policies.body.2.weight", value=np.zeros(3, np.float32)),
    "no optimizer": _at(*TENSORS, "optimizer.mean.0"),
    "the name of no tensor": _at(*TENSORS, "optimizer.mean.0", value="nothing"),
    "sums of another shape": _at("current", "sums", "risk", value=np.zeros((2, 2, 3), np.float32)),
    "sums of whole numbers": _at("current", "sums", "risk", value=np.zeros((1, 1, 3), np.int64)),
    "sums of words": _at("current", "sums", "risk", value="nothing"),
    "no curve": _at(*RESULT, "curve"),
    "a curve of words": _at(*RESULT, "curve", value=[["a", "b", "c"]]),
    "a curve of pairs": _at(*RESULT, "curve", value=[[1, "loss"]]),
    "a best epoch without a policy": _at(*RESULT, "best_epoch", value=1),
    "a policy of another shape": _at(*RESULT, "tensors", value={"shift": np.zeros(1, np.float32)}),
    "a result of another candidate": _at("current", "results", "0,0,1", value=KEPT),
    "too few columns of held-out rows": _at(*RESULT, "held_out", value=np.zeros((3, 5))),
    "held-out rows of words": _at(*RESULT, "held_out", value="a"),
    "an epoch before the first": _at("current", "epoch", value=-1),
    "an epoch of words": _at("current", "epoch", value="one"),
    "a step beyond any": _at("current", "step", value=1 << 64),
    "no stage": _at("current", "stage"),
    "no state": _at("current", "tensors"),
    "nothing current": _at("current", value=7),
    "more than the content": _at("more", value=7),
    "finished stages of a number": _at("finished", value=7),
    "results of a number": _at("finished", value={"training": 7}),
    "a result of nothing": _at("finished", value={"training": {"0,0,0": {}}}),
    "a result of words": _at("finished", value={"training": {"0,0,0": {**KEPT, "tensors": "a"}}}),
    "a result without a policy": _at("finished", value={"training": {"0,0,0": KEPT}}),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED.keys())
def test_crafted_checkpoint_is_damaged(
    run: Callable[..., Any], tmp_path: Path, log: Path, checkpoint: Path, change: Change
) -> None:
    """Its digest is right, its content is not."""
    with open_input(str(checkpoint)) as file:
        made_by, progress, _ = read_any_checkpoint(file)
    content = progress.model_dump()
    change(content)
    write_checkpoint(made_by, content, str(checkpoint))
    line = "s2bl: p.checkpoint is damaged; drop --resume to start over\n"
    assert _refused(run, tmp_path, log, *WORDS) == line


def test_step_beyond_the_epoch_is_no_traceback(
    run: Callable[..., Any], tmp_path: Path, log: Path, checkpoint: Path
) -> None:
    with open_input(str(checkpoint)) as file:
        made_by, progress, _ = read_any_checkpoint(file)
    assert progress.current is not None
    progress.current.step = (1 << 31) - 1
    write_checkpoint(made_by, progress.model_dump(), str(checkpoint))
    assert run("train", log, *WORDS, "--resume", "-o", "p.safetensors").code == 0


def test_bug_in_loading_is_no_damage(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "run.checkpoint")
    assert _run(log, train_settings(**SMALL), Checkpoint(path), 13) is None

    def load(self: object, content: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(TrainState, "load", load)
    with pytest.raises(KeyError, match="a bug"):
        _run(log, train_settings(**SMALL), Checkpoint(path), resume=True)


def test_flipped_bit_of_a_tensor_is_damage(
    run: Callable[..., Any], tmp_path: Path, log: Path, checkpoint: Path
) -> None:
    content = bytearray(checkpoint.read_bytes())
    content[-1] ^= 1
    checkpoint.write_bytes(content)
    line = "s2bl: p.checkpoint is damaged; drop --resume to start over\n"
    assert _refused(run, tmp_path, log, *WORDS) == line


@pytest.fixture(scope="module", autouse=True)
def _networks_one_after_another() -> Iterator[None]:
    """Linear policies go together, mlps do not: runs of one unit and of several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("s2bl_cli.training.gradient_learner._MOST_TOGETHER", 60)
        yield


GOOD = {**SMALL, "epochs": 2, "model": "mlp", "hidden": "4", "seeds": "0,1", "patience": 5, "holdout": 0.3}


@pytest.fixture(scope="module")
def good(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "run.checkpoint"
    assert _run(log, train_settings(**GOOD), Checkpoint(str(path)), 20) is None
    return path


@given(flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4), cut=st.floats(0.5, 1.5))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_random_bytes_in_a_checkpoint_are_no_traceback(
    log: Path, good: Path, flips: list[tuple[float, int]], cut: float
) -> None:
    """Either it is refused, or nothing of it was changed."""
    content = bytearray(good.read_bytes())
    for where, byte in flips:
        content[min(int(where**3 * len(content)), len(content) - 1)] = byte  # more often in the header
    path = good.with_name("flipped.checkpoint")
    path.write_bytes(content[: int(cut * len(content))])
    with suppress(S2blError):
        _run(log, train_settings(**GOOD), Checkpoint(str(path)), resume=True)


# --- real signals ---

unix = pytest.mark.skipif(sys.platform == "win32", reason="signals are other there")
HANGS = 300  # seconds; a busy machine needs far less

# Stops where the third checkpoint would replace the second, says so, and waits to be killed.
STOPPED = """
import os, sys, time
from s2bl_cli.app import main

real, targets = os.replace, []

def replace(source, target):
    targets.append(target)
    if len(targets) == 3:
        print("ready", flush=True)
        time.sleep(600)
    real(source, target)

os.replace = replace
main()
"""


def _started(folder: Path, log: Path, *words: object, program: tuple[str, str]) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *program, "train", log, *words, "-o", "p.safetensors"]
    return subprocess.Popen(
        list(map(str, command)), cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _until_checkpoint(process: "subprocess.Popen[str]", path: Path) -> None:
    end = time.monotonic() + HANGS
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.01)


@unix
def test_killed_and_resumed_is_the_same_to_the_last_bit(tmp_path: Path, log: Path, run: Callable[..., Any]) -> None:
    often = ("--epochs", 100, "--batch-size", 8, "--checkpoint-every", 5)
    words = ("--reg", "wce", "--lam", "0.1,1", "--select", "snips", *often)
    process = _started(tmp_path, log, *words, program=("-c", STOPPED))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "p.safetensors").exists()
    _, epoch, _ = _position(str(tmp_path / "p.checkpoint"))
    assert 5 <= epoch < 100
    assert run("train", log, *words, "--resume", "--threads", 1, "-o", "p.safetensors").code == 0
    assert run("train", log, *words, "--threads", 1, "-o", "whole.safetensors").code == 0
    assert (tmp_path / "p.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


@unix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signalled_run_leaves_a_checkpoint_and_no_policy(tmp_path: Path, log: Path, number: int, code: int) -> None:
    process = _started(tmp_path, log, "--epochs", 100_000, "--checkpoint-every", 5, program=("-m", "s2bl_cli"))
    try:
        _until_checkpoint(process, tmp_path / "p.checkpoint")
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=HANGS)
    finally:
        process.kill()
    assert (process.returncode, stdout) == (code, "")
    assert "stopped; to continue, run the same command with --resume (state in p.checkpoint)\n" in stderr
    assert "Traceback" not in stderr
    assert [path.name for path in tmp_path.iterdir()] == ["p.checkpoint"]
