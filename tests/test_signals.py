"""Signals, pipes and streams as a shell has them: real processes.

A command that is interrupted leaves the old file or none, and no temporary file; one that was killed leaves the old
file. Whoever reads or feeds a pipe may fail at any time, and nobody sees a traceback.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bad_input_files import LOG, SCORES, write_log, write_scores
from repository import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and shells are other there")

OLD = b"an output of last week"
S2BL = f"{sys.executable} -m s2bl_cli"
HANGS = 300  # seconds; a busy machine needs far less

# The named function says "ready" on stdout when it was called, and then takes its time.
SLOWED = """
import importlib, sys, time
from s2bl_cli.app import main

module, owner, name, sleep_after = sys.argv[1].split()
place = importlib.import_module(module)
place = place if owner == "-" else getattr(place, owner)
real = getattr(place, name)

def slowed(*words, **more):
    if sleep_after == "no":
        print("ready", flush=True)
        return real(*words, **more)
    result = real(*words, **more)
    print("ready", flush=True)
    time.sleep(600)
    return result

setattr(place, name, slowed)
sys.argv[:2] = ["s2bl"]
main()
"""
AFTER_THE_FIRST_BATCH = "s2bl_cli.contract.logs.writing LogWriter write yes"
IN_THE_TRAINING_LOOP = "s2bl_cli.training.loop TrainState train_epoch no"


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("valid")
    write_log(folder / LOG)
    write_scores(folder / SCORES)
    return folder


@pytest.fixture(autouse=True)
def _as_a_shell_has_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Buffered, as Python is where nobody asked otherwise: what fails at exit only would stay hidden. And with no
    signal ignored, which commands would inherit from a runner under nohup or behind an `&`."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def running(place: str, *words: object) -> Iterator["subprocess.Popen[str]"]:
    """The command, caught in the middle of its work."""
    command = [sys.executable, "-c", SLOWED, place, *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        yield process
    finally:
        process.kill()
        process.communicate()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.mark.parametrize(("number", "code"), SIGNALS.items(), ids=[number.name for number in SIGNALS])
@pytest.mark.parametrize("old", [None, OLD], ids=["anew", "over an old file"])
def test_an_interrupted_write_leaves_nothing(valid: Path, tmp_path: Path, number: int, code: int, old: Any) -> None:
    out = tmp_path / "out.parquet"
    if old is not None:
        out.write_bytes(old)
    with running(AFTER_THE_FIRST_BATCH, "mask", valid / LOG, "--rho", 0.5, "-o", out, "--force") as process:
        half_written = [name for name in names(tmp_path) if name != out.name]
        assert len(half_written) == 1  # it is in the middle of the write indeed
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == code
    assert "Traceback" not in stderr
    assert stdout == ""
    assert names(tmp_path) == ([] if old is None else [out.name])
    assert old is None or out.read_bytes() == old


def test_a_killed_write_leaves_the_old_file(valid: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    out.write_bytes(OLD)
    words = ("mask", valid / LOG, "--rho", 0.5, "-o", out, "--force")
    with running(AFTER_THE_FIRST_BATCH, *words) as process:
        process.kill()
        process.communicate(timeout=HANGS)
    assert process.returncode == -signal.SIGKILL
    assert out.read_bytes() == OLD
    # What it left behind is in nobody's way.
    subprocess.run([sys.executable, "-m", "s2bl_cli", *map(str, words)], check=True, capture_output=True)
    assert out.read_bytes().startswith(b"PAR1")


def test_an_ignored_hangup_stays_ignored(valid: Path, tmp_path: Path) -> None:
    """As under nohup."""
    out = tmp_path / "out.parquet"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with running(AFTER_THE_FIRST_BATCH, "mask", valid / LOG, "--rho", 0.5, "-o", out) as process:
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=HANGS)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.returncode == 143  # of the two signals, the second


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_training_leaves_a_checkpoint_alone(valid: Path, tmp_path: Path, number: int, code: int) -> None:
    words = ("train", valid / LOG, "--reg", "wce", "--epochs", 100_000, "--threads", 1, "-o", tmp_path / "policy")
    with running(IN_THE_TRAINING_LOOP, *words) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"  # the first epoch is over
        process.send_signal(number)
        _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == code
    assert stderr.startswith("warning: stopped; to continue, run the same command with --resume")
    assert names(tmp_path) == ["policy.checkpoint"]


def test_an_interrupted_wait_for_a_pipe_leaves_no_copy_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "s2bl_cli", "inspect", "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdin is not None
        process.stdin.write(bytes(1 << 20))
        process.stdin.flush()
        _until(lambda: any(path.stat().st_size for path in tmp_path.iterdir()))  # it waits for more
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=HANGS)
    finally:
        process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in stderr
    assert names(tmp_path) == []


def _until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + HANGS
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


SPEAKERS = {
    "report": f"report {SCORES}",
    "inspect": f"inspect {LOG}",
    "inspect --json": f"inspect {LOG} --json",
    "mask -o -": f"mask {LOG} --rho 0.5 --quiet -o -",
    "mask --json": f"mask {LOG} --rho 0.5 --quiet --json --force -o OUT",
    "--version": "--version",
    "--help": "mask --help",
}


@pytest.mark.parametrize("line", SPEAKERS.values(), ids=SPEAKERS.keys())
def test_a_reader_that_has_gone_is_no_error_to_tell(valid: Path, tmp_path: Path, line: str) -> None:
    """As in `s2bl report … | head -0`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = subprocess.run(
            f"{S2BL} {line}".replace("OUT", str(tmp_path / "out")).split(),
            cwd=valid,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert ran.stderr == ""
    assert ran.returncode == 1


def shell(line: str, folder: Path, **environment: str) -> Any:
    return subprocess.run(
        ["sh", "-c", line.replace("s2bl", S2BL)],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_after_a_failed_command_the_next_one_says_so(valid: Path, tmp_path: Path) -> None:
    line = f"s2bl mask {LOG} --rho 7 -o - | s2bl mask - --rho 0.5 -o {tmp_path}/out"
    ran = shell(line, valid)
    assert ran.returncode == 2
    assert sorted(ran.stderr.splitlines()) == [
        "s2bl: --rho must be in [0, 1], found 7.0",
        "s2bl: stdin is empty: did the command before the pipe fail?",
    ]
    assert ran.stdout == ""
    assert names(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("line", SPEAKERS.values(), ids=SPEAKERS.keys())
def test_a_full_disk_behind_stdout_is_told(valid: Path, tmp_path: Path, line: str) -> None:
    ran = shell(f"s2bl {line} > /dev/full".replace("OUT", str(tmp_path / "out")), valid)
    assert ran.returncode == 2
    assert ran.stderr.startswith("s2bl: stdout cannot be ")
    assert ran.stderr.count("\n") == 1


CLOSED = {
    "report, stdout": (f"s2bl report {SCORES} >&-", 2, "s2bl: stdout cannot be "),
    "mask --json, stdout": (f"s2bl mask {LOG} --rho 0.5 --quiet --json -o OUT >&-", 2, "s2bl: stdout cannot be "),
    "mask -o -, stdout": (f"s2bl mask {LOG} --rho 0.5 -o - >&-", 2, "s2bl: stdout is closed: use -o FILE"),
    "stdin": ("s2bl mask - --rho 0.5 -o OUT <&-", 2, "s2bl: stdin is empty"),
    "stderr": (f"s2bl mask {LOG} --rho 7 2>&-", 2, ""),
    "all": (f"s2bl mask {LOG} --rho 0.5 -o OUT <&- >&- 2>&-", 0, ""),
}


@pytest.mark.parametrize(("line", "code", "told"), CLOSED.values(), ids=CLOSED.keys())
def test_a_closed_stream_gives_no_traceback(valid: Path, tmp_path: Path, line: str, code: int, told: str) -> None:
    ran = shell(line.replace("OUT", str(tmp_path / "out")), valid)
    assert ran.returncode == code
    assert ran.stderr.startswith(told)
    assert ran.stderr.count("\n") == (1 if told else 0)
    assert ran.stdout == ""


def test_what_goes_to_stdout_is_utf_8_whatever_the_locale(valid: Path) -> None:
    ran = shell(f"s2bl report {SCORES}", valid, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "| τ " in ran.stdout
