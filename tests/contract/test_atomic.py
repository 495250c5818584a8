"""Outputs appear whole or not at all."""

import errno
import io
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from privileges import without_privileges

import s2bl_cli
from s2bl_cli.contract.atomic import atomic_output, check_output
from s2bl_cli.errors import OutputError


def whole(message):
    return "^" + re.escape(message) + "$"


def write(target, content=b"new", *, force=True):
    with atomic_output(str(target), force=force) as file:
        file.write(content)


def test_a_new_file(tmp_path):
    write(tmp_path / "out", force=False)
    assert (tmp_path / "out").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]


def test_a_bare_name_is_written_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("out", force=False)
    assert os.listdir(tmp_path) == ["out"]


def test_success_replaces_only_at_the_end(tmp_path):
    target = tmp_path / "out"
    target.write_bytes(b"old")
    with atomic_output(str(target), force=True) as file:
        file.write(b"new")
        file.flush()
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("old", [b"old", None])
def test_failure_leaves_the_old_file_or_none(tmp_path, error, old):
    target = tmp_path / "out"
    if old is not None:
        target.write_bytes(old)

    def fail():
        with atomic_output(str(target), force=True) as file:
            file.write(b"half of it")
            file.flush()
            raise error

    with pytest.raises(OutputError if error is OSError else error):
        fail()
    assert os.listdir(tmp_path) == ([] if old is None else ["out"])
    if old is not None:
        assert target.read_bytes() == old


def test_an_existing_output_is_refused_without_force(tmp_path):
    target = tmp_path / "out"
    target.write_bytes(b"old")
    told = f"{target} exists already: pass --force to replace it, or another -o"
    with pytest.raises(OutputError, match=whole(told)):
        write(target, force=False)
    with pytest.raises(OutputError, match=whole(told)):
        check_output(str(target), force=False)
    assert target.read_bytes() == b"old"


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write(link)
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert os.listdir(tmp_path / "elsewhere") == ["real"]


def test_a_symbolic_link_to_nothing_makes_what_it_points_to(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    write(link, force=False)
    assert link.is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_symbolic_link_into_a_folder_that_is_not_there(tmp_path):
    """Told before any work is done, though the link's own folder is there."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "no" / "real")
    with pytest.raises(OutputError, match=r"the folder .*/no does not exist; create it first$"):
        check_output(str(link), force=False)


def test_a_symbolic_link_to_itself_is_no_traceback(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(link)
    write(link)
    assert link.read_bytes() == b"new"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_the_mode_of_a_replaced_file_is_kept(tmp_path, mode):
    target = tmp_path / "out"
    target.write_bytes(b"old")
    target.chmod(mode)
    write(target)
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == mode


# --- outputs that cannot be -----------------------------------------------------------------------------


def test_a_folder_that_is_not_there(tmp_path):
    told = f"{tmp_path}/no/out cannot be written: the folder {tmp_path}/no does not exist; create it first"
    with pytest.raises(OutputError, match=whole(told)):
        write(tmp_path / "no" / "out")


def test_a_folder_as_the_output(tmp_path):
    with pytest.raises(OutputError, match=whole(f"{tmp_path} is a folder: -o takes the name of a file")):
        write(tmp_path)


def test_a_file_as_the_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match=r"the folder .*/file does not exist; create it first$"):
        write(tmp_path / "file" / "out")


def test_a_name_longer_than_the_system_allows(tmp_path):
    with pytest.raises(OutputError, match=r"cannot be written: File name too long$"):
        write(tmp_path / ("a" * 300))
    assert os.listdir(tmp_path) == []


def test_a_name_as_long_as_the_system_allows(tmp_path):
    """The temporary file beside it needs a name too."""
    write(tmp_path / ("ρ" * 127))
    assert os.listdir(tmp_path) == ["ρ" * 127]


def test_two_outputs_at_once_do_not_meet(tmp_path):
    """As `train` may write a policy and its history, with long names that differ only at their ends."""
    one, two = (tmp_path / ("long" * 30 + end) for end in ("-policy", "-history"))
    with atomic_output(str(one), force=False) as first, atomic_output(str(two), force=False) as second:
        first.write(b"the policy")
        second.write(b"the history")
    assert (one.read_bytes(), two.read_bytes()) == (b"the policy", b"the history")


@pytest.mark.parametrize(("target", "found"), [("", "''"), ("a\0b", "'a\\x00b'")])
def test_a_name_that_is_none(target, found):
    with pytest.raises(OutputError, match=whole(f"-o takes the name of a file, found {found}")):
        write(target)


WRITE_INTO = """
import sys
from s2bl_cli.contract.atomic import atomic_output
from s2bl_cli.errors import OutputError
try:
    with atomic_output(sys.argv[1], force=False) as file:
        file.write(b"new")
except OutputError as error:
    print(error)
"""


def test_a_folder_without_permission(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    command = [sys.executable, "-c", WRITE_INTO, str(folder / "out")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=without_privileges)
    assert ran.stdout == f"{folder}/out cannot be written: no permission to write into {folder}\n"
    assert os.listdir(folder) == []


def test_permission_is_asked_before_any_work(tmp_path, monkeypatch):
    """As root every folder is writable; the system's answer stands in for it."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    told = f"{tmp_path}/out cannot be written: no permission to write into {tmp_path}"
    with pytest.raises(OutputError, match=whole(told)):
        check_output(str(tmp_path / "out"), force=False)


# --- devices, full disks ---------------------------------------------------------------------------------


def test_a_named_pipe_is_written_to_and_stays_a_pipe(tmp_path, write_log, run):
    """Stands for every device. (Not the system's own: were this broken, root would lose them.)"""
    write_log(tmp_path / "log.parquet")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # a reader that waits for nobody: broken code fails, not hangs
    try:
        ran = run("mask", "log.parquet", "--rho", 0.5, "-o", "pipe")  # no --force: there is nothing to lose
        received = os.read(reader, 1 << 16)
    finally:
        os.close(reader)
    assert ran.code == 0, ran.stderr
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)
    assert received[:4] == received[-4:] == b"PAR1"


DISK_FULL = "cannot be written: the disk is full; free some space, or choose another location with -o"


def test_a_full_device(tmp_path, write_log, run, full_device):
    write_log(tmp_path / "log.parquet")
    ran = run("mask", "log.parquet", "--rho", 0.5, "-o", full_device)
    assert (ran.code, ran.stderr) == (2, f"s2bl: {full_device} {DISK_FULL}\n")
    assert stat.S_ISCHR(os.stat(full_device).st_mode)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_is_full_only_at_the_end(tmp_path, monkeypatch, step):
    (tmp_path / "out").write_bytes(b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OutputError, match=whole(f"{tmp_path}/out {DISK_FULL}")):
        write(tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"old"


class FullDisk(io.FileIO):
    """A file on a disk with room for 3,000 bytes."""

    def write(self, data):
        if self.tell() + len(data) > 3000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_disk_that_fills_while_a_log_is_written(tmp_path, monkeypatch, write_log, run):
    """Arrow's writer stands between: its own way of failing must not hide ours."""
    write_log(tmp_path / "log.parquet", 200, row_group=50)
    (tmp_path / "out.parquet").write_bytes(b"old")
    monkeypatch.setattr("s2bl_cli.contract.atomic.open", lambda path, mode: FullDisk(path, mode), raising=False)
    ran = run("mask", "log.parquet", "--rho", 0.5, "-o", "out.parquet", "--force")
    assert (ran.code, ran.stderr) == (2, f"s2bl: out.parquet {DISK_FULL}\n")
    assert sorted(os.listdir(tmp_path)) == ["log.parquet", "out.parquet"]
    assert (tmp_path / "out.parquet").read_bytes() == b"old"


def test_a_closed_pipe_is_not_an_output_error(tmp_path):
    """`s2bl mask … -o - | head` ends quietly: the app tells it apart from a wrong output."""

    def fail():
        with atomic_output(str(tmp_path / "out"), force=False):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        fail()
    assert os.listdir(tmp_path) == []


# --- stdout ---------------------------------------------------------------------------------------------


def kept_stdout(monkeypatch, *, terminal=False):
    """A stdout that keeps its bytes. Not a fixture: pytest puts its own stdout in place after fixtures are made."""
    stream = SimpleNamespace(buffer=io.BytesIO(), isatty=lambda: terminal, writable=lambda: True)
    monkeypatch.setattr(sys, "stdout", stream)
    return stream


def test_stdout_gets_everything_at_the_end(monkeypatch):
    stdout = kept_stdout(monkeypatch)
    with atomic_output("-", force=False) as file:
        file.write(b"first ")
        file.flush()
        assert stdout.buffer.getvalue() == b""
        file.write(b"second")
    assert stdout.buffer.getvalue() == b"first second"


def test_stdout_gets_nothing_when_the_block_fails(monkeypatch):
    stdout = kept_stdout(monkeypatch)

    def fail():
        with atomic_output("-", force=False) as file:
            file.write(b"half of it")
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 (raised right here)
        fail()
    assert stdout.buffer.getvalue() == b""


def test_a_terminal_gets_no_parquet(monkeypatch):
    kept_stdout(monkeypatch, terminal=True)
    told = "stdout is a terminal and Parquet is binary: use -o FILE, or pipe to another command"
    with pytest.raises(OutputError, match=whole(told)):
        check_output("-", force=False)


def test_a_pipeline_of_processes(tmp_path, write_log):
    """`cat log | s2bl mask --rho 0.5 - -o - | s2bl mask --rho 0.2 - -o out.parquet`, and a first step that fails."""
    write_log(tmp_path / "log.parquet", 20)
    mask = [sys.executable, "-m", "s2bl_cli", "mask", "-"]
    env = {**os.environ, "PYTHONPATH": str(Path(s2bl_cli.__file__).parents[1])}

    def step(*words, stdin):
        return subprocess.run([*mask, *words], cwd=tmp_path, env=env, input=stdin, capture_output=True, check=False)

    first = step("--rho", "0.5", "-o", "-", stdin=(tmp_path / "log.parquet").read_bytes())
    second = step("--rho", "0.2", "-o", "out.parquet", stdin=first.stdout)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert pq.read_table(tmp_path / "out.parquet")["cost"].null_count == 16
    failed = step("--rho", "0.5", "-o", "-", stdin=first.stdout[:-100])
    assert (failed.returncode, failed.stdout) == (2, b"")
