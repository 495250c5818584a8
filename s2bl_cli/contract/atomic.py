"""Outputs appear whole or not at all.

A command writes to a temporary file beside its target; only when all of it is there and on the disk
does a rename put it in the target's place. A command that fails, is interrupted or killed leaves the
old file, or none. `-` (stdout) is spooled and sent on only when complete, so that a failing step of
a pipeline never hands half a file to the next one.
"""

import contextlib
import errno
import itertools
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from s2bl_cli.errors import OutputError, one_line

STANDARD_STREAM = "-"

_NUMBERS = itertools.count()

# The suffixes that a kind of output may have; the first is what it is written as where the name has none of them.
LOG_FORMATS = (".parquet",)
POLICY_FORMATS = (".safetensors",)
TABLE_FORMATS = (".parquet", ".csv")  # scores and histories

_KNOWN_FORMATS = {
    *(".arrow", ".avro", ".csv", ".feather", ".gz", ".html", ".json", ".jsonl", ".md", ".ndjson", ".npy", ".npz"),
    *(".parquet", ".pickle", ".pkl", ".pt", ".pth", ".safetensors", ".sqlite", ".tsv", ".txt", ".xls", ".xlsx", ".zip"),
}


def check_output(target: str, *, force: bool, formats: tuple[str, ...] = ()) -> None:
    """Refuse, before any work is done, an output that could not be put in place after it.

    With `formats`, also a name that promises another format: whoever reads the file by its name would fail on it.
    """
    if target == STANDARD_STREAM:
        if not sys.stdout.writable():
            raise OutputError("stdout is closed: use -o FILE, or pipe to another command")
        if sys.stdout.isatty():
            raise OutputError("stdout is a terminal and Parquet is binary: use -o FILE, or pipe to another command")
        return
    if not _is_name(target):
        raise OutputError(f"-o takes the name of a file, found {one_line(repr(target))}")
    if formats:
        _check_format(target, formats)
    # os.path, not Path: it takes a name too long for the system as absent, where Path raises.
    if os.path.isdir(target):
        raise OutputError(f"{one_line(target)} is a folder: -o takes the name of a file")
    if os.path.exists(target) and not _is_special(target) and not force:
        raise OutputError(f"{one_line(target)} exists already: pass --force to replace it, or another -o")
    is_link = os.path.islink(target) and not _is_special(target)
    folder = os.path.dirname(os.path.realpath(target) if is_link else target) or "."
    if not os.path.isdir(folder):
        raise OutputError(
            f"{one_line(target)} cannot be written: the folder {one_line(folder)} does not exist; make it first"
        )
    if not os.access(folder, os.W_OK) and not _is_special(target):
        raise OutputError(f"{one_line(target)} cannot be written: no permission to write into {one_line(folder)}")
    try:
        os.lstat(target)
    except FileNotFoundError:
        pass
    except OSError as error:  # a name too long, links in a circle
        raise OutputError(f"{one_line(target)} cannot be written: {_reason(error)}") from error


def _check_format(target: str, formats: tuple[str, ...]) -> None:
    stem, suffix = os.path.splitext(target)
    if suffix.lower() in _KNOWN_FORMATS - set(formats):
        names = " or ".join(f"{one_line(stem)}{allowed}" for allowed in formats)
        raise OutputError(
            f"{one_line(target)} would be written as {formats[0][1:]}, not as {suffix[1:].lower()}: name it {names}"
        )


@contextlib.contextmanager
def atomic_output(target: str, *, force: bool, formats: tuple[str, ...] = ()) -> Iterator[BinaryIO]:
    """A binary file to write into; it becomes `target` when the block ends without an exception."""
    check_output(target, force=force, formats=formats)
    try:
        if target == STANDARD_STREAM:
            with tempfile.TemporaryFile() as spool:
                yield spool
                spool.seek(0)
                shutil.copyfileobj(spool, sys.stdout.buffer, 1 << 20)
                sys.stdout.buffer.flush()
        elif _is_special(target):
            with open(target, "wb") as device:
                yield device
        else:
            # Through a symbolic link: replace what it points to, not the link.
            with _replacing(Path(os.path.realpath(target))) as file:
                yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        subject = "stdout" if target == STANDARD_STREAM else one_line(target)
        raise OutputError(f"{subject} cannot be written: {_reason(error)}") from error


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    # Not the whole name: a name as long as the system allows has no room for more. The number tells apart the
    # outputs that this process writes at once.
    temporary = target.with_name(f".{target.name[:50]}.{os.getpid()}-{next(_NUMBERS)}.tmp")
    try:
        with open(temporary, "wb") as file:
            if target.exists():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:  # Ctrl-C and SIGTERM too: nothing half-written stays behind
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system allows a folder to be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_name(target: str) -> bool:
    """Whether the system could have a file of that name."""
    try:
        return target != "" and b"\0" not in os.fsencode(target)
    except UnicodeEncodeError:
        return False


def _is_special(path: str) -> bool:
    """A device or a named pipe: written to directly; replacing it by a file would destroy it."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full; free some space, or choose another place with -o"
    return one_line(error.strerror or error)
