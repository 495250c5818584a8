"""Inputs: names, globs, folders and `-` become files that can be opened, hashed and read.

Their content is handled by `parquet_files`, `tensor_files` and the modules that use those.
"""

import contextlib
import glob
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from s2bl_cli.contract.atomic import STANDARD_STREAM
from s2bl_cli.errors import InputFileError, one_line


@dataclass(frozen=True)
class InputFile:
    """One readable, seekable input. Messages use `name`; lineages and output names use `base_name`."""

    name: str
    path: str
    base_name: str
    folder: str | None = None  # the folder argument that the file came from, as typed

    def open(self) -> pa.NativeFile:
        """A seekable handle, which the caller closes. Every input is opened here.

        Files are not memory-mapped: if a mapped file is truncated, the process is killed instead of raising an error.
        """
        with self.read_errors():
            return pa.OSFile(os.fsencode(self.path), "rb")  # on Linux a name may be any bytes

    def sha256(self) -> str:
        with self.read_errors(), self.open() as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()

    def start(self, count: int) -> bytes:
        with self.read_errors(), self.open() as handle:
            return bytes(handle.read(count))

    def read(self) -> bytes:
        """The whole content."""
        with self.read_errors(), self.open() as handle:
            return bytes(handle.read())

    @contextlib.contextmanager
    def read_errors(self) -> Iterator[None]:
        """Report read errors: a disk may fail, or a file disappear, at any time after opening."""
        try:
            yield
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise InputFileError(f"{self.name} cannot be read: {one_line(reason)}") from error


@contextlib.contextmanager
def open_inputs(
    names: Sequence[str], *, folders: bool = False, patterns: Sequence[str] = ("*.parquet",)
) -> Iterator[list[InputFile]]:
    """Open every file that the names match. With `folders`, a folder matches the files of these patterns in it."""
    with contextlib.ExitStack() as stack:
        files = []
        if list(names).count(STANDARD_STREAM) > 1:
            raise InputFileError("- (stdin) can be given only once")
        for name in names:
            if name == STANDARD_STREAM:
                files.append(InputFile("stdin", stack.enter_context(_stdin()), "stdin"))
            else:
                folder = name if os.path.isdir(name) else None
                for path in expand(name, *(patterns if folders else ())):
                    # From the path, not from the name: one_line truncates long paths.
                    base_name = one_line(Path(path).name, 255)
                    files.append(InputFile(one_line(path), stack.enter_context(_seekable(path)), base_name, folder))
        yield files


@contextlib.contextmanager
def open_input(name: str) -> Iterator[InputFile]:
    """Open a name that must match exactly one file."""
    with open_inputs([name]) as files:
        if len(files) != 1:
            raise InputFileError(f"{one_line(name)} matches {len(files)} files, but one is needed here")
        yield files[0]


def expand(name: str, *in_folders: str) -> list[str]:
    """The files that a name, glob or folder stands for. `in_folders` are the patterns of the files in a folder. Without
    patterns, folders are rejected."""
    path = Path(name)
    if os.path.isdir(name):  # not Path.is_dir, which raises for a name too long for the system
        if not in_folders:
            raise InputFileError(f"{one_line(name)} is a folder, but a file is needed here")
        paths = sorted(
            str(p)
            for pattern in in_folders
            for p in path.rglob(pattern)
            if not any(part.startswith(".") for part in p.relative_to(path).parts)
        )
        if not paths:
            raise InputFileError(
                f"{one_line(name)} is a folder without {' or '.join(in_folders)} files: check the name"
            )
        return paths
    if os.path.exists(name) or not glob.has_magic(name):
        return [name]
    try:
        paths = sorted(glob.glob(name, recursive=True))
    except ValueError:  # a name that no file can have
        paths = []
    if not paths:
        raise InputFileError(f"{one_line(name)} matches no file: check the name and the folder")
    return paths


@contextlib.contextmanager
def _seekable(path: str) -> Iterator[str]:
    """The path itself, or that of a spooled copy if the path is a pipe (`<(command)` in a shell)."""
    with _open(path) as handle:
        if not handle.seekable():
            with _spooled(handle) as spool_path:
                yield spool_path
            return
    yield path


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise InputFileError(f"{one_line(path) or repr(path)} does not exist: check the name and the folder") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(f"{one_line(path)} cannot be opened: {one_line(reason)}") from error


@contextlib.contextmanager
def _stdin() -> Iterator[str]:
    if sys.stdin.isatty():
        raise InputFileError("- reads Parquet from stdin, but stdin is a terminal: pipe a file or a command into it")
    with _spooled(sys.stdin.buffer) as spool_path:
        yield spool_path


@contextlib.contextmanager
def _spooled(stream: BinaryIO) -> Iterator[str]:
    """Copy a pipe to a temporary file: Parquet is read from its end, which a pipe has only when it closes."""
    with tempfile.NamedTemporaryFile(prefix="s2bl-", suffix=".spool") as spool:
        try:
            shutil.copyfileobj(stream, spool, 1 << 20)
            spool.flush()
        except OSError as error:
            folder = one_line(tempfile.gettempdir())
            raise InputFileError(
                f"the piped input cannot be stored in {folder}: {one_line(error)}; set TMPDIR to a folder with more "
                f"space"
            ) from error
        yield spool.name
