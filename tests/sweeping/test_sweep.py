"""Sweeps that run: files, resuming, failures, signals and limits. Cells are tiny parts of the embedded sample."""

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s2bl_cli.console import Console
from s2bl_cli.sweeping.executors.process import run_request
from s2bl_cli.sweeping.plan import Plan, Task, make_plan
from s2bl_cli.sweeping.records import Record, read_record, write_record
from s2bl_cli.sweeping.run import Progress, locked, run_sweep
from s2bl_cli.sweeping.settings import SweepRunSettings, SweepSettings
from s2bl_cli.sweeping.worker import Outcome, encode_request

TINY = ("--limit", 300, "--rho", 0.5, "--make-logs-options", "--epochs 1", "--train-options", "--epochs 1")
GRID = (*TINY, "--methods", "wce-s2bl,tips", "--seeds", "0,1", "--lam", "0.1,1", "--workers", 2)
CELLS = ("sample-tau10-limit300-rho0.5-linear-wce-s2bl", "sample-tau10-limit300-rho0.5-linear-tips")

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that was never interrupted."""
    folder = tmp_path_factory.mktemp("unbroken") / "runs"
    done = subprocess.run(command(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "runs: 2 of 2 cells finished; all commands took make-logs " in done.stderr
    return folder


def command(folder: Path, *more: object) -> list[str]:
    return [sys.executable, "-m", "s2bl_cli", "sweep", *map(str, (*GRID, *more)), "-o", str(folder)]


def records(folder: Path) -> dict[str, dict[str, Any]]:
    return {str(path.relative_to(folder)): json.loads(path.read_text()) for path in folder.rglob("*.json")}


def scores(folder: Path) -> dict[str, pa.Table]:
    return {path.name: pq.read_table(path) for path in sorted((folder / "scores").glob("*.parquet"))}


def copy_logs(unbroken: Path, folder: Path) -> None:
    """A folder in which the log and its mask are finished."""
    for name in ("logs", "masked"):
        shutil.copytree(unbroken / name, folder / name)


# --- files ---


def test_files_are_ordinary(unbroken: Path, run: Run) -> None:
    assert set(scores(unbroken)) == {f"{cell}.parquet" for cell in CELLS}
    table = run("report", unbroken, "--metric", "sampled-accuracy")
    assert table.code == 0, table.stderr
    assert "| sample  | 10 | 0.5 |" in table.stdout
    assert run("inspect", unbroken / "policies" / f"{CELLS[1]}-seed1.safetensors").code == 0


def test_commands_by_hand_give_the_same_bytes(unbroken: Path, run: Run, tmp_path: Path) -> None:
    """The commands that --dry-run prints are those of the sweep."""
    printed = run("sweep", *GRID, "--dry-run", "-o", "by-hand").stdout.splitlines()
    for folder in ("logs", "masked", "policies", "scores"):
        (tmp_path / "by-hand" / folder).mkdir(parents=True)
    for line in printed:
        words = shlex.split(line)[1:]
        ran = run(*words, *([] if words[0] == "mask" else ["--threads", 1]))
        assert ran.code == 0, ran.stderr
    for path in (tmp_path / "by-hand").rglob("*.*"):
        assert path.read_bytes() == (unbroken / path.relative_to(tmp_path / "by-hand")).read_bytes(), path


def test_what_is_finished_stays(unbroken: Path, run: Run) -> None:
    before = {path: path.stat().st_mtime_ns for path in unbroken.rglob("*.*") if path.name != ".sweep.lock"}
    ran = run("sweep", *GRID, "-o", unbroken, "--json")
    assert ran.code == 0, ran.stderr
    assert ran.stderr.startswith("2 cells of 2 seeds, 4 policies; 2 finished, 0 to run: 0 commands in about 0 s with ")
    assert json.loads(ran.stdout)["ran"] == []
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_logs_of_finished_cells_may_be_deleted(unbroken: Path) -> None:
    plan, folder = plan_of(*CELLS), str(unbroken)
    masked = unbroken / "masked" / "sample-tau10-limit300-rho0.5.parquet"
    masked.rename(masked.with_suffix(".away"))
    assert Progress.read(plan, folder).remaining == []
    score = unbroken / "scores" / f"{CELLS[1]}.parquet"
    score.rename(score.with_suffix(".away"))
    assert [task.name for task in Progress.read(plan, folder).remaining] == [
        "masked/sample-tau10-limit300-rho0.5", CELLS[1],
    ]  # fmt: skip
    for path in (masked, score):
        path.with_suffix(".away").rename(path)


def plan_of(*cells: str) -> Plan:
    settings = SweepSettings(
        limit=300, rho="0.5", methods="wce-s2bl,tips", seeds="0,1", hyperparameters={"lam": "0.1,1"},
        make_logs_options="--epochs 1", train_options="--epochs 1",
    )  # fmt: skip
    return make_plan(settings, SweepRunSettings(workers=2))


# --- other settings, other files ---


def test_results_of_other_settings_are_not_replaced_unasked(unbroken: Path, run: Run, tmp_path: Path) -> None:
    ran = run("sweep", *GRID, "--seeds", "0,1,2", "-o", unbroken)
    assert (ran.code, ran.stderr) == (
        2,
        f"s2bl: {unbroken}/policies/{CELLS[0]}-seed0.safetensors (and 3 more) was made with other settings: give "
        f"another folder with -o, or replace it with --force\n",
    )
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "sample-tau10-limit300.parquet").write_text("mine")
    ran = run("sweep", *GRID, "-o", ".")
    assert "s2bl: ./logs/sample-tau10-limit300.parquet exists and is not of a sweep: give another" in ran.stderr
    assert (tmp_path / "logs" / "sample-tau10-limit300.parquet").read_text() == "mine"


def test_force_replaces_results_of_other_settings(unbroken: Path, run: Run, tmp_path: Path) -> None:
    copy_logs(unbroken, tmp_path / "runs")
    flags = (*TINY, "--methods", "tips", "--workers", 1)
    assert run("sweep", *flags, "--seeds", "0").code == 0
    (tmp_path / "runs" / "policies" / f"{CELLS[1]}-seed0.checkpoint").write_text("of a training with other settings")
    assert run("sweep", *flags, "--seeds", "0", "--mask-seeds", "0", "--nu", "0.1").code == 2
    ran = run("sweep", *flags, "--seeds", "0", "--nu", "0.1", "--force")
    assert ran.code == 0, ran.stderr
    assert records(tmp_path / "runs")["logs/sample-tau10-limit300.json"]["starts"] == 1
    assert records(tmp_path / "runs")[f"policies/{CELLS[1]}.json"]["starts"] == 2


def test_two_sweeps_do_not_share_a_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s2bl_cli.sweeping.run._SECONDS_FOR_LOCK", 0.0)
    (tmp_path / "runs").mkdir()
    with locked(str(tmp_path / "runs")):
        ran = run("sweep", *GRID, "--quiet")
    assert (ran.code, ran.stderr) == (
        2,
        f"s2bl: {tmp_path}/runs is in use by another sweep: wait for it, or give another folder with -o\n",
    )


# --- failures ---


def test_a_failure_is_recorded_and_the_rest_goes_on(unbroken: Path, run: Run, tmp_path: Path) -> None:
    """Without feedback, tips has nothing to learn from, and wce-only needs none."""
    copy_logs(unbroken, tmp_path / "runs")
    flags = (*TINY, "--rho", 0, "--methods", "tips,wce-only", "--seeds", "0", "--workers", 1)
    ran = run("sweep", *flags)
    reason = (
        f"{tmp_path}/runs/masked/sample-tau10-limit300-rho0.parquet: no train row has feedback, and tips learns from "
        f"feedback; use a log with some, or --method wce-only"
    )
    assert ran.code == 2
    assert f"warning: policies/sample-tau10-limit300-rho0-linear-tips failed: {reason}\n" in ran.stderr
    assert "runs: 1 of 2 cells finished" in ran.stderr
    assert ran.stderr.endswith(f"s2bl: 1 of 2 cells failed: {reason} (run the same command to continue)\n")
    record = records(tmp_path / "runs")["policies/sample-tau10-limit300-rho0-linear-tips.json"]
    assert (record["state"], record["reason"]) == ("failed", reason)
    ran = run("sweep", *flags)
    assert "; 1 finished, 1 to run: 2 commands in about" in ran.stderr
    assert records(tmp_path / "runs")["policies/sample-tau10-limit300-rho0-linear-wce-only.json"]["starts"] == 1


def test_missing_data_is_one_line(run: Run, tmp_path: Path) -> None:
    ran = run("sweep", "--preset", "table-linear-fmnist", "--tau", "1,10", "--data-dir", "nowhere", "--workers", 1)
    lines = ran.stderr.splitlines()
    assert ran.code == 2
    assert lines[-1].startswith(
        f"s2bl: 2 logs failed, 120 cells not run: FashionMNIST is not in {tmp_path}/nowhere, which must contain"
    )
    assert [line for line in lines if line.startswith("warning: ")] == [
        line for line in lines if line.startswith("warning: logs/fmnist-tau1 failed: FashionMNIST is not in ")
    ]


class FakeExecutor:
    """Ends tasks with given outcomes, one at a time."""

    def __init__(self, outcomes: list[Outcome | BaseException]) -> None:
        self.outcomes, self.tasks, self.is_stopped = outcomes, list[Task](), False

    def slots(self) -> int:
        return 1

    def start(self, task: Task) -> None:
        self.tasks.append(task)

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return [(self.tasks[-1], outcome)]

    def stop(self) -> None:
        self.is_stopped = True


def test_full_disk_ends_the_sweep(tmp_path: Path) -> None:
    """All that follows would fail too, after it has been trained."""
    plan = plan_of()
    reason = "runs/x cannot be written: the disk is full; free some space, or choose another location with -o"
    log, mask = plan.tasks[0].jobs[0].name, plan.tasks[1].jobs[0].name
    executor = FakeExecutor([Outcome((log,)), Outcome((mask,)), Outcome((), "policies/x", reason)])
    result = run_sweep(Progress.read(plan, str(tmp_path)), executor, Console(quiet=True))
    assert len(executor.tasks) == 3
    assert executor.is_stopped
    assert result.message(plan) == (f"1 of 2 cells failed, 1 cell not run: {reason} (run the same command to continue)")


def test_a_crash_is_recorded(tmp_path: Path) -> None:
    """Its process could not write the reason."""
    plan, folder = plan_of(), str(tmp_path)
    job = plan.tasks[0].jobs[0]
    (tmp_path / "logs").mkdir()
    write_record(folder, job, Record("started", job.digest, "s2bl make-logs"))
    executor = FakeExecutor([Outcome((), job.name, "its process was killed")])
    result = run_sweep(Progress.read(plan, folder), executor, Console(quiet=True))
    assert result.message(plan) == (
        "1 log failed, 2 cells not run: its process was killed (run the same command to continue)"
    )
    assert records(tmp_path)[f"{job.name}.json"] | {"digest": ""} == {
        "state": "failed", "digest": "", "command": "s2bl make-logs", "starts": 1, "reason": "its process was killed",
    }  # fmt: skip


def test_a_stop_ends_all_processes(tmp_path: Path) -> None:
    executor = FakeExecutor([KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        run_sweep(Progress.read(plan_of(), str(tmp_path)), executor, Console(quiet=True))
    assert executor.is_stopped


def test_a_full_device_loses_nothing(unbroken: Path, run: Run, tmp_path: Path, full_device: str) -> None:
    """The scores of one cell cannot be written; its policies stay, and the next run only evaluates."""
    copy_logs(unbroken, tmp_path / "runs")
    flags = (*TINY, "--methods", "tips", "--seeds", "0", "--workers", 1)
    (tmp_path / "runs" / "scores").mkdir(parents=True)
    target = tmp_path / "runs" / "scores" / f"{CELLS[1]}.parquet"
    os.symlink(full_device, target)
    ran = run("sweep", *flags, "--force")
    assert ran.code == 2
    assert "the disk is full; free some space" in ran.stderr.splitlines()[-1]
    target.unlink()
    ran = run("sweep", *flags)
    assert ran.code == 0, ran.stderr
    assert {name: record["starts"] for name, record in records(tmp_path / "runs").items()} == {
        "logs/sample-tau10-limit300.json": 1,
        "masked/sample-tau10-limit300-rho0.5.json": 1,
        f"policies/{CELLS[1]}.json": 1,
        f"scores/{CELLS[1]}.json": 2,
    }


# --- interruptions ---


def started_jobs(folder: Path) -> int:
    return len(list(folder.rglob("*.json")))


def wait_for_jobs(process: "subprocess.Popen[bytes]", folder: Path, number: int) -> None:
    deadline = time.monotonic() + 300
    while started_jobs(folder) < number and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_killed_sweeps_end_like_an_unbroken_one(unbroken: Path, tmp_path: Path) -> None:
    """kill −9 at five random moments: the scores are the same, and nothing that was finished ran again."""
    rng, folder = random.Random(0), tmp_path / "runs"
    finished: dict[str, int] = {}  # job → how often it was started when it was finished
    for jobs in (1, 2, 3, 4, 5):
        process = subprocess.Popen(command(folder), stderr=subprocess.DEVNULL)
        wait_for_jobs(process, folder, jobs)
        time.sleep(rng.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        for name, record in records(folder).items():
            if record["state"] == "finished":
                finished.setdefault(name, record["starts"])
    done = subprocess.run(command(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert finished
    ends = records(folder)
    assert {name: ends[name]["starts"] for name in finished} == finished
    assert scores(folder) == scores(unbroken)


def test_ctrl_c_ends_all_processes(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    process = subprocess.Popen(command(folder), stderr=subprocess.PIPE, text=True)
    wait_for_jobs(process, folder, 1)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert printed.endswith("warning: stopped; to continue, run the same command\n")
    with locked(str(folder)):  # its processes are gone: they would hold the lock
        assert [record["state"] for record in records(folder).values()] in (["started"], ["finished"])


def test_a_process_ends_with_its_sweep(tmp_path: Path) -> None:
    """However the sweep ends, its end of the pipe on stdin is closed."""
    task = make_plan(SweepSettings(make_logs_options="--epochs 100000"), SweepRunSettings(workers=1)).tasks[0]
    (tmp_path / "logs").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "s2bl_cli.sweeping.worker", encode_request(str(tmp_path), task)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    wait_for_jobs(process, tmp_path, 1)
    assert process.poll() is None
    process.communicate(timeout=60)  # closes the pipe
    assert process.returncode == -signal.SIGKILL
    assert read_record(str(tmp_path), task.jobs[0]).state == "started"  # type: ignore[union-attr]


def test_a_crash_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    outcome = run_request("not a request", "logs/x")
    assert outcome.failed == "logs/x"
    assert outcome.reason is not None
    assert outcome.reason.startswith("its process ended with exit code 1: json.decoder.JSONDecodeError")
    killed = run_request(
        encode_request(str(tmp_path), plan_of().tasks[0]), "logs/x", started=lambda process: process.kill()
    )
    assert killed.reason == "its process was killed; if memory ran out, use fewer --workers"
