"""Outputs appear whole or not at all.

A command writes to a temporary file in the target's folder. When the file is complete and synced to disk, it is renamed
to the target. A command that fails, is interrupted or killed leaves the old file, or none. `-` (stdout) is spooled and
sent only when complete, so a failing step of a pipeline never passes half a file to the next step.
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
DISK_FULL = "the disk is full"  # in the message of an output that has no room

_NUMBERS = itertools.count()

# The suffixes of each kind of output. The first is the format of names without a known suffix.
LOG_FORMATS = (".parquet",)
POLICY_FORMATS = (".safetensors",)
TABLE_FORMATS = (".parquet", ".csv")  # scores and histories

_KNOWN_FORMATS = {
    *(".arrow", ".avro", ".csv", ".feather", ".gz", ".html", ".json", ".jsonl", ".md", ".ndjson", ".npy", ".npz"),
    *(".parquet", ".pickle", ".pkl", ".pt", ".pth", ".safetensors", ".sqlite", ".tsv", ".txt", ".xls", ".xlsx", ".zip"),
}


def check_output(target: str, *, force: bool, formats: tuple[str, ...] = ()) -> None:
    """Reject an output that could not be written, before any work is done.

    With `formats`, also reject a name with the suffix of another format, which would mislead its readers.
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
    # os.path, not Path: for a name too long for the system, os.path returns False and Path raises.
    if os.path.isdir(target):
        raise OutputError(f"{one_line(target)} is a folder: -o takes the name of a file")
    if os.path.exists(target) and not _is_special(target) and not force:
        raise OutputError(f"{one_line(target)} exists already: pass --force to replace it, or another -o")
    is_link = os.path.islink(target) and not _is_special(target)
    folder = os.path.dirname(os.path.realpath(target) if is_link else target) or "."
    if not os.path.isdir(folder):
        raise OutputError(
            f"{one_line(target)} cannot be written: the folder {one_line(folder)} does not exist; create it first"
        )
    if not os.access(folder, os.W_OK) and not _is_special(target):
        raise OutputError(f"{one_line(target)} cannot be written: no permission to write into {one_line(folder)}")
    try:
        os.lstat(target)
    except FileNotFoundError:
        pass
    except OSError as error:  # the name is too long, or links form a circle
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
    """Yield a binary file, which becomes `target` when the block ends without an exception."""
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
            # Replace what a symbolic link points to, not the link.
            with _replacing(Path(os.path.realpath(target))) as file:
                yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        subject = "stdout" if target == STANDARD_STREAM else one_line(target)
        raise OutputError(f"{subject} cannot be written: {_reason(error)}") from error


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    # The name is cut, because one of the maximum length cannot be extended. The number distinguishes outputs that
    # this process writes at the same time.
    temporary = target.with_name(f".{target.name[:50]}.{os.getpid()}-{next(_NUMBERS)}.tmp")
    try:
        with open(temporary, "wb") as file:
            if target.exists():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:  # also Ctrl-C and SIGTERM: remove the partial file
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename survive a power cut, if the system can sync a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_name(target: str) -> bool:
    """Whether the system allows a file of that name."""
    try:
        return target != "" and b"\0" not in os.fsencode(target)
    except UnicodeEncodeError:
        return False


def _is_special(path: str) -> bool:
    """Whether the path is a device or a named pipe: it is written to directly, since a rename would replace it."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"{DISK_FULL}; free some space, or choose another location with -o"
    return one_line(error.strerror or error)
