"""The whole path, as shells and CI run it: pipes, repeated runs, and what goes to which stream."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from learning_fixtures import blobs, write_arrays
from repository import ROOT

torch.set_num_threads(1)

TRAIN = ("train", "--method", "wce-s2bl", "--epochs", "2", "--seed", "1", "--threads", "1")


def _whole_path(run: Callable[..., Any], folder: Path) -> dict[str, bytes]:
    """make-logs, mask, train, evaluate, report: every file they write."""
    folder.mkdir()
    logs, masked, policy = folder / "logs.parquet", folder / "masked.parquet", folder / "p.safetensors"
    scores, table = folder / "scores.parquet", folder / "table.md"
    for words in (
        ("make-logs", "--tau", 5, "--epochs", 1, "--threads", 1, "-o", logs),
        ("mask", "--rho", 0.2, logs, "-o", masked),
        (*TRAIN, masked, "-o", policy),
        ("evaluate", policy, "--logs", logs, "--threads", 1, "-o", scores),
        ("report", scores, "-o", table),
    ):
        ran = run(*words)
        assert (ran.code, ran.stdout) == (0, ""), ran.stderr
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_whole_path_twice_gives_the_same_bytes(run: Callable[..., Any], tmp_path: Path) -> None:
    first, second = _whole_path(run, tmp_path / "first"), _whole_path(run, tmp_path / "second")
    assert list(first) == ["logs.parquet", "masked.parquet", "p.safetensors", "scores.parquet", "table.md"]
    assert first == second


def test_shell_pipeline_gives_the_policy_of_the_files(run: Callable[..., Any], tmp_path: Path) -> None:
    """In processes of their own, through `-`; byte for byte."""
    s2bl = f"{sys.executable} -m s2bl_cli"
    pipeline = (
        f"{s2bl} make-logs --tau 5 --epochs 1 --threads 1 -o - | {s2bl} mask --rho 0.2 - -o - "
        f"| {s2bl} {' '.join(TRAIN)} - -o piped.safetensors"
    )
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", pipeline], cwd=tmp_path, env=_environment(), capture_output=True, timeout=600
    )
    assert (done.returncode, done.stdout) == (0, b""), done.stderr.decode()
    assert b"1,200 of 6,000 train rows keep their feedback" in done.stderr
    through_files = _whole_path(run, tmp_path / "files")
    assert (tmp_path / "piped.safetensors").read_bytes() == through_files["p.safetensors"]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["piped.safetensors"]


def test_failed_step_hands_on_nothing(tmp_path: Path) -> None:
    s2bl = f"{sys.executable} -m s2bl_cli"
    pipeline = f"{s2bl} mask --rho 0.2 absent.parquet -o - | {s2bl} mask --rho 0.1 - -o out.parquet"
    done = subprocess.run(["bash", "-c", pipeline], cwd=tmp_path, env=_environment(), capture_output=True, timeout=600)
    assert done.returncode == 2
    assert sorted(done.stderr.decode().splitlines()) == [
        "s2bl: absent.parquet does not exist: check the name and the folder",
        "s2bl: stdin is empty: did the command before the pipe fail?",
    ]
    assert not list(tmp_path.iterdir())


def _environment() -> dict[str, str]:
    checkout = ROOT
    return {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}


# --- streams ---


@pytest.fixture
def pipe_files(run: Callable[..., Any], tmp_path: Path) -> None:
    """logs.parquet, p.safetensors and scores.parquet of a small problem."""
    write_arrays(tmp_path / "logs.parquet", blobs(), 3)
    assert run("train", "logs.parquet", "--method", "wce-s2bl", "--epochs", 1, "-o", "p.safetensors").code == 0
    assert run("evaluate", "p.safetensors", "--logs", "logs.parquet", "-o", "scores.parquet").code == 0


JSON_COMMANDS: dict[str, tuple[tuple[object, ...], set[str]]] = {
    "make-logs": (
        ("make-logs", "--epochs", 0, "-o", "new.parquet"),
        {"output", "train", "test", "actions", "argmax_accuracy", "sampled_accuracy", "mean_inverse_propensity"},
    ),
    "mask": (
        ("mask", "--rho", 0.5, "logs.parquet", "-o", "new.parquet"),
        {"output", "train", "known", "missing", "dropped", "test"},
    ),
    "train": (
        ("train", "logs.parquet", "--method", "wce-s2bl", "--epochs", 1, "-o", "new.safetensors"),
        {"outputs", "policies", "method", "model", "actions", "rows", "known", "device"},
    ),
    "evaluate": (("evaluate", "p.safetensors", "--logs", "logs.parquet", "-o", "new.parquet"), {"output", "scores"}),
    "inspect": (("inspect", "logs.parquet"), {"kind", "rows", "actions", "train", "test"}),
}


@pytest.mark.usefixtures("pipe_files")
@pytest.mark.parametrize("verb", JSON_COMMANDS)
def test_json_is_all_that_stdout_has(run: Callable[..., Any], verb: str) -> None:
    words, keys = JSON_COMMANDS[verb]
    ran = run(*words, "--json")
    assert ran.code == 0
    summary = json.loads(ran.stdout)
    assert keys <= summary.keys()
    assert ran.stdout.count("\n") == 1
    assert "output" not in summary or ran.stderr.startswith(f"{summary['output']}: ")


@pytest.mark.usefixtures("pipe_files")
@pytest.mark.parametrize("verb", [verb for verb in JSON_COMMANDS if verb != "inspect"])
def test_words_go_to_stderr_and_quiet_silences_them(run: Callable[..., Any], verb: str) -> None:
    words, _ = JSON_COMMANDS[verb]
    spoken, silent = run(*words), run(*words, "--force", "--quiet")
    assert spoken.stdout == ""
    assert "new." in spoken.stderr
    assert (silent.code, silent.stdout, silent.stderr) == (0, "", "")


@pytest.mark.usefixtures("pipe_files")
@pytest.mark.parametrize("verb", [verb for verb in JSON_COMMANDS if verb != "inspect"])
def test_json_and_a_file_do_not_share_stdout(run: Callable[..., Any], verb: str) -> None:
    words, _ = JSON_COMMANDS[verb]
    ran = run(*words[:-1], "-", "--json")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == "s2bl: --json and -o - both write to stdout: write the file with -o FILE\n"


@pytest.mark.usefixtures("pipe_files")
@pytest.mark.parametrize("verb", ["mask", "train", "evaluate"])
def test_dash_writes_the_same_bytes_as_a_file(run: Callable[..., Any], tmp_path: Path, verb: str) -> None:
    words, _ = JSON_COMMANDS[verb]
    assert run(*words).code == 0
    ran = run(*words[:-1], "-")
    assert ran.code == 0
    assert ran.stdout_bytes == (tmp_path / str(words[-1])).read_bytes()


@pytest.mark.usefixtures("pipe_files")
def test_scores_can_be_piped_to_report(run: Callable[..., Any], tmp_path: Path) -> None:
    from_file = run("report", "scores.parquet")
    from_pipe = run("report", "-", stdin=(tmp_path / "scores.parquet").read_bytes())
    assert (from_pipe.code, from_pipe.stdout) == (0, from_file.stdout)
