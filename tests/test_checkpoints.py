"""Runs that are stopped and go on end in the same bytes as if they had never been stopped; bad checkpoints are told."""

import json
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
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learning_fixtures import CPU, blobs, write_arrays
from safetensors import safe_open
from safetensors.numpy import save_file

from s2bl_cli.contract.history import read_history
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.errors import S2blError
from s2bl_cli.training.interruption import Interruption
from s2bl_cli.training.journal import Journal
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.stage import Left
from s2bl_cli.training.train import Trained, train_policies
from s2bl_cli.training.watching import Unwatched

ACTIONS = 3
RUN = Step("train", {"lr": 0.1}, "0.1.0")
SMALL: dict[str, Any] = {"epochs": 3, "batch_size": 32, "lr": 0.05}  # nine steps to an epoch


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arrays(tmp_path_factory.mktemp("checkpoints") / "log.parquet", blobs(known=0.5), ACTIONS)


class Stopper:
    """Asks to leave after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def _run(log: Path, own: TrainSettings, journal: Journal, steps: int = 1 << 60) -> list[Trained] | None:
    """The policies; None if it was left."""
    with open_logs([str(log)]) as opened:
        try:
            return train_policies(
                opened, own, CPU, lambda what, epochs: Unwatched(), journal=journal, is_wanted_elsewhere=Stopper(steps)
            )
        except Left:
            return None


def _stopped(log: Path, own: TrainSettings, folder: Path, every: int) -> tuple[list[Trained], int]:
    """As a run that is stopped after every so many steps, and how often it was."""
    target = folder / "run.checkpoint"
    for times in range(1000):
        journal = Journal(str(target), lambda: RUN)
        assert journal.resume() == (times > 0)
        trained = _run(log, own, journal, every)
        if trained is not None:
            return trained, times
    raise AssertionError("it never ends")


def _same(one: list[Trained], other: list[Trained]) -> bool:
    assert [(t.seed, t.combination, t.estimate) for t in one] == [(t.seed, t.combination, t.estimate) for t in other]
    assert [t.curves for t in one] == [t.curves for t in other]
    assert [t.policy.lineage for t in one] == [t.policy.lineage for t in other]
    return all(
        np.array_equal(a.policy.tensors[name], b.policy.tensors[name])
        for a, b in zip(one, other, strict=True)
        for name in a.policy.tensors
    )


RUNS: dict[str, dict[str, Any]] = {
    "linear": {},
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


@pytest.mark.parametrize(
    ("name", "every"),
    [
        *((name, 40 if name.startswith("lpr") else 7) for name in RUNS),
        ("linear", 1),
        ("linear", 9),
        ("patience", 9),
        ("mlp", 9),
    ],
)
def test_stopped_and_resumed_is_the_same_to_the_last_bit(log: Path, tmp_path: Path, name: str, every: int) -> None:
    """Nine steps are an epoch: after nine, it is stopped before the first step of the next one."""
    own = TrainSettings(**{**SMALL, **RUNS[name]})
    whole = _run(log, own, Journal())
    assert whole is not None
    stopped, times = _stopped(log, own, tmp_path, every)
    assert times >= 1
    assert _same(whole, stopped)


def test_prior_is_fitted_once(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """27 steps fit the prior of lpr. A run that goes on after them has it in the checkpoint; one that was stopped
    among them starts them again."""
    own = TrainSettings(**SMALL, method="b-crm")
    target = str(tmp_path / "run.checkpoint")
    for steps in (10, 30):
        journal = Journal(target, lambda: RUN)
        journal.resume()
        assert _run(log, own, journal, steps) is None
    assert _place(target) == (0, 3)
    journal = Journal(target, lambda: RUN)
    assert journal.resume()
    trained = _run(log, own, journal, 27)  # 24 are left to take
    whole = _run(log, own, Journal())
    assert trained is not None
    assert whole is not None
    assert _same(trained, whole)


def test_checkpoint_of_an_epoch_is_gone_on_from(log: Path, tmp_path: Path) -> None:
    own = TrainSettings(**SMALL, lam="0.1,1")
    target = str(tmp_path / "run.checkpoint")
    assert _run(log, own, Journal(target, lambda: RUN, every_epochs=2), 20) is None
    assert _place(target) == (2, 2)
    journal = Journal(target, lambda: RUN)
    assert journal.resume()
    resumed = _run(log, own, journal)
    whole = _run(log, own, Journal())
    assert resumed is not None
    assert whole is not None
    assert _same(resumed, whole)


def _place(target: str) -> tuple[int, int]:
    with safe_open(target, framework="numpy") as file:
        now = json.loads(file.metadata()["s2bl"])["progress"]["current"]
    return now["epoch"], now["step"]


def test_checkpoints_come_every_so_many_epochs_and_minutes(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = TrainSettings(**SMALL)
    target = tmp_path / "run.checkpoint"

    def written(**when: Any) -> list[int]:
        places: list[int] = []
        real = Journal.write

        def write(journal: Journal, place: Any, fit: Any, tracker: Any) -> None:
            places.append(fit.progress.epoch)
            real(journal, place, fit, tracker)

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "write", write)
            assert _run(log, own, Journal(str(target), lambda: RUN, **when)) is not None
        return places

    assert written() == []
    assert not target.exists()
    assert written(every_epochs=2) == [2]
    assert written(every_minutes=1e6) == []
    assert written(every_minutes=1e-9) == [1, 2, 3]


# --- the command ---


def test_resumed_command_writes_the_same_bytes(
    run: Callable[..., Any], tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", log, "--lam", "0.1,1", "--epochs", 3, "--batch-size", 32)
    assert run(*words, "-o", "whole/", "--history", "whole.parquet").code == 0
    _stop_command(monkeypatch, 13)
    ran = run(*words, "-o", "parts/", "--history", "parts.parquet")
    assert ran.code == 143
    name = os.path.join("parts", "log-wce-s2bl-lam0.1-seed0.checkpoint")
    assert ran.stderr == f"warning: stopped; to go on, give the same command with --resume (state in {name})\n"
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["log-wce-s2bl-lam0.1-seed0.checkpoint"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    ran = run(*words, "-o", "parts/", "--history", "parts.parquet", "--resume")
    assert ran.code == 0
    assert ran.stderr.startswith(f"going on from {name}\n")
    whole, parts = (
        {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} for folder in ("whole", "parts")
    )
    assert whole == parts
    assert len(parts) == 2
    tables = [read_history([str(tmp_path / name)])[0] for name in ("whole.parquet", "parts.parquet")]
    assert tables[0].drop_columns("policy").equals(tables[1].drop_columns("policy"))


def _stop_command(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """As if a SIGTERM came after so many steps."""
    stopper = Stopper(steps)

    def requested(self: Interruption) -> bool:
        if stopper():
            self.number = signal.SIGTERM
        return self.number is not None

    monkeypatch.setattr(Interruption, "requested", requested)


def test_resume_without_a_checkpoint_starts_anew(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    ran = run("train", log, "--epochs", 1, "--resume", "-o", "p.safetensors")
    assert ran.code == 0
    assert ran.stderr.startswith("no checkpoint: starting anew\n")
    assert [path.name for path in tmp_path.iterdir()] == ["p.safetensors"]


def test_stopped_on_the_way_to_stdout_says_that_nothing_is_kept(
    run: Callable[..., Any], tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stop_command(monkeypatch, 3)
    ran = run("train", log, "-o", "-")
    assert (ran.code, ran.stdout) == (143, "")
    assert ran.stderr == "warning: stopped; with -o - nothing is kept to go on from\n"
    assert list(tmp_path.iterdir()) == []


WORDS = ("--epochs", 3, "--batch-size", 32, "--lam", 1)


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
    line: str = ran.stderr.removeprefix("going on from p.checkpoint\n")
    assert line.count("\n") == 1
    return line


OTHER_RUN = (
    "s2bl: p.checkpoint is of another run (other settings, inputs or version of s2bl): give the same flags and logs as "
    "before, or drop --resume to start anew\n"
)


def test_checkpoint_of_another_run_is_refused(
    run: Callable[..., Any], tmp_path: Path, log: Path, checkpoint: Path
) -> None:
    content = checkpoint.read_bytes()
    assert _refused(run, tmp_path, log, *WORDS, "--lr", 0.3) == OTHER_RUN
    other = write_arrays(tmp_path / "log.parquet", blobs(known=0.4), ACTIONS)
    assert _refused(run, tmp_path, other, *WORDS) == OTHER_RUN
    assert checkpoint.read_bytes() == content
    assert run("train", log, *WORDS, "--resume", "-o", "p.safetensors").code == 0
    assert not checkpoint.exists()


def test_what_is_no_checkpoint_is_refused(run: Callable[..., Any], tmp_path: Path, log: Path, checkpoint: Path) -> None:
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(b"")
    assert _refused(run, tmp_path, log, *WORDS) == "s2bl: p.checkpoint is empty: it holds 0 bytes\n"
    checkpoint.write_bytes(content[: len(content) // 2])
    line = _refused(run, tmp_path, log, *WORDS)
    assert line.startswith("s2bl: p.checkpoint is not a checkpoint file (safetensors: ")
    assert line.endswith("): drop --resume to start anew\n")
    checkpoint.write_bytes(log.read_bytes())
    assert _refused(run, tmp_path, log, *WORDS) == (
        "s2bl: p.checkpoint is a Parquet file, but checkpoints are safetensors files: drop --resume to start anew\n"
    )
    assert run("train", log, "--epochs", 1, "--quiet", "-o", "other.safetensors").code == 0
    (tmp_path / "other.safetensors").rename(checkpoint)
    line = _refused(run, tmp_path, log, *WORDS)
    assert "policy" in line
    assert "checkpoint" in line


def test_checkpoint_is_no_policy(run: Callable[..., Any], tmp_path: Path, log: Path, checkpoint: Path) -> None:
    ran = run("evaluate", checkpoint, "--logs", log, "-o", "s.parquet")
    assert ran.code == 2
    assert "checkpoint" in ran.stderr
    assert ran.stderr.count("\n") == 1


def _forge(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    with safe_open(path, framework="numpy") as file:
        document = json.loads(file.metadata()["s2bl"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(document["progress"], tensors)
    save_file(tensors, path, metadata={"s2bl": json.dumps(document)})


def _drop(name: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda progress, tensors: tensors.pop(name)


def _put(name: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda progress, tensors: tensors.update({name: value})


def _now(**values: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda progress, tensors: progress["current"].update(values)


def _progress(**values: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda progress, tensors: progress.update(values)


FORGED: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], None], str]] = {
    "no parameters": (_drop("now.learner.body.1.weight"), "state"),
    "parameters of another shape": (_put("now.learner.body.1.weight", np.zeros((1, 2, 3), np.float32)), "state"),
    "no optimizer": (_drop("now.optimizer.mean.0"), "state"),
    "no generators": (_drop("now.generator.1"), "state"),
    "generators of another kind": (_put("now.generator.0", np.zeros(5, np.uint8)), "state"),
    "sums of another shape": (_put("now.total.risk", np.zeros((2, 2, 3), np.float32)), "state"),
    "sums that are whole": (_put("now.total.risk", np.zeros((1, 1, 3), np.int64)), "state"),
    "a sum too many": (_put("now.total.more", np.zeros((1, 1, 3), np.float32)), "state"),
    "no curve": (_drop("now.tracker.curve.0.0"), "state"),
    "a curve of nothing": (_put("now.tracker.curve.0.0", np.full((1, 3), 77.0)), "state"),
    "a curve of nan": (_put("now.tracker.curve.0.0", np.full((1, 3), np.nan)), "state"),
    "an epoch beyond": (_now(epoch=10**9), "state"),
    "an epoch before": (_now(epoch=-1), "state"),
    "an epoch of no whole number": (_now(epoch=1e308), "state"),
    "a step beyond": (_now(step=9), "state"),
    "a step of words": (_now(step="one"), "state"),
    "no place": (_now(place=7), "progress"),
    "nothing done": (_progress(done=None), "progress"),
    "a unit of nothing": (_progress(done=[[1, 2, 3]]), "progress"),
    "units of a list": (_progress(done=[["training", [0], 1, 1]]), "progress"),
    "a unit that is not there": (_progress(done=[["training", 0, 1, 1]]), "list of policies"),
    "a unit of many": (_progress(done=[["training", 0, 10**12, 0]]), "progress"),
    "no notes": (_progress(notes=None), "progress"),
}


@pytest.mark.parametrize(("change", "what"), FORGED.values(), ids=FORGED.keys())
def test_forged_checkpoint_is_damaged(
    run: Callable[..., Any], tmp_path: Path, log: Path, checkpoint: Path, change: Any, what: str
) -> None:
    _forge(checkpoint, change)
    line = f"s2bl: p.checkpoint: its {what} is damaged; drop --resume to start anew\n"
    assert _refused(run, tmp_path, log, *WORDS) == line


@pytest.mark.parametrize("noted", [7, [[0]], [[0, "x"]], [[5, 0.1]], [[-1, 0.1]], [[0, 0.1], [0, 0.1]], []], ids=str)
def test_forged_choice_is_damaged(log: Path, tmp_path: Path, noted: Any) -> None:
    own = TrainSettings(**SMALL, lam="0.1,1", select="snips", folds=2)
    target = tmp_path / "run.checkpoint"
    assert _run(log, own, Journal(str(target), lambda: RUN), 40) is None  # past the choosing: 27 steps
    _forge(target, _progress(notes={"chosen": noted}))
    journal = Journal(str(target), lambda: RUN)
    assert journal.resume()
    with pytest.raises(S2blError, match=r"its choice is damaged; drop --resume to start anew$"):
        _run(log, own, journal)


@pytest.fixture(scope="module", autouse=True)
def _networks_one_after_another() -> Iterator[None]:
    """Linear policies go together, mlps do not: runs of one unit and of several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("s2bl_cli.training.stage._MOST_TOGETHER", 60)
        yield


@pytest.fixture(scope="module")
def good(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("good") / "run.checkpoint"
    own = TrainSettings(**{**SMALL, "epochs": 2}, model="mlp", hidden="4", seeds="0,1", patience=5, holdout=0.3)
    assert _run(log, own, Journal(str(target), lambda: RUN), 20) is None
    return target


@given(flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4), cut=st.floats(0.5, 1.5))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_random_bytes_in_a_checkpoint_are_no_traceback(
    log: Path, good: Path, flips: list[tuple[float, int]], cut: float
) -> None:
    """Either it is told, or the run goes on with other numbers."""
    content = bytearray(good.read_bytes())
    for where, byte in flips:
        content[min(int(where**3 * len(content)), len(content) - 1)] = byte  # more often in the header
    path = good.with_name("flipped.checkpoint")
    path.write_bytes(content[: int(cut * len(content))])
    own = TrainSettings(**{**SMALL, "epochs": 2}, model="mlp", hidden="4", seeds="0,1", patience=5, holdout=0.3)
    journal = Journal(str(path), lambda: RUN)
    with suppress(S2blError):
        journal.resume()
        _run(log, own, journal)


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
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
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
    words = ("--epochs", 100, "--batch-size", 8, "--checkpoint-every", 5, "--lam", "0.1,1", "--select", "snips")
    process = _started(tmp_path, log, *words, program=("-c", STOPPED))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "p.safetensors").exists()
    epoch, _ = _place(str(tmp_path / "p.checkpoint"))
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
    assert "stopped; to go on, give the same command with --resume (state in p.checkpoint)\n" in stderr
    assert "Traceback" not in stderr
    assert [path.name for path in tmp_path.iterdir()] == ["p.checkpoint"]
