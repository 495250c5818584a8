"""Inputs: names, globs, folders and `-` become files that can be opened, hashed and read.

Not for what is inside them: that is `logs_reading`, `policies` and `scores`.
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
import pyarrow.parquet as pq

from s2bl_cli.contract.atomic import STANDARD_STREAM
from s2bl_cli.errors import InputFileError, one_line

PARQUET_MAGIC = b"PAR1"

# What pyarrow raises on damaged or foreign bytes. Wider than ArrowException: a flipped bit can also
# surface as bad UTF-8, an impossible size or a missing key in Arrow's Python layer.
DAMAGED = (
    pa.ArrowException,
    OSError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)


@dataclass(frozen=True)
class InputFile:
    """One readable, seekable input. `name` is for people; `base_name` goes into lineages and output names."""

    name: str
    path: str
    base_name: str

    @property
    def size(self) -> int:
        with self._read_told():
            return os.stat(self.path).st_size

    def sha256(self) -> str:
        with self._read_told(), open(self.path, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()

    def start(self, count: int) -> bytes:
        with self._read_told(), open(self.path, "rb") as handle:
            return handle.read(count)

    def end(self, count: int) -> bytes:
        with self._read_told(), open(self.path, "rb") as handle:
            handle.seek(max(0, self.size - count))
            return handle.read(count)

    @contextlib.contextmanager
    def _read_told(self) -> Iterator[None]:
        """It opened before; a disk may fail and a file may go at any time after."""
        try:
            yield
        except OSError as error:
            raise InputFileError(f"{self.name} cannot be read: {one_line(error.strerror or error)}") from error


@contextlib.contextmanager
def open_inputs(names: Sequence[str], *, folders: bool = False) -> Iterator[list[InputFile]]:
    """Open every file that the names stand for. With `folders`, a folder stands for the Parquet files in it."""
    with contextlib.ExitStack() as stack:
        files = []
        if list(names).count(STANDARD_STREAM) > 1:
            raise InputFileError("- (stdin) can be given once only")
        for name in names:
            if name == STANDARD_STREAM:
                files.append(InputFile("stdin", stack.enter_context(_stdin()), "stdin"))
            else:
                for path in _expand(name, folders=folders):
                    # Not the name's last part: one_line cuts a long path short.
                    base_name = one_line(Path(path).name, 255)
                    files.append(InputFile(one_line(path), stack.enter_context(_seekable(path)), base_name))
        yield files


@contextlib.contextmanager
def open_input(name: str) -> Iterator[InputFile]:
    """Open one file, which must be one file."""
    with open_inputs([name]) as files:
        if len(files) != 1:
            raise InputFileError(f"{one_line(name)} stands for {len(files)} files, but one is needed here")
        yield files[0]


def _expand(name: str, *, folders: bool) -> list[str]:
    path = Path(name)
    if os.path.isdir(name):  # unlike Path's, it takes a name too long for the system as absent
        if not folders:
            raise InputFileError(f"{one_line(name)} is a folder, but a file is needed here")
        found = sorted(
            str(p)
            for p in path.rglob("*.parquet")
            if not any(part.startswith(".") for part in p.relative_to(path).parts)
        )
        if not found:
            raise InputFileError(f"{one_line(name)} is a folder with no *.parquet file in it")
        return found
    if os.path.exists(name) or not glob.has_magic(name):
        return [name]
    try:
        found = sorted(glob.glob(name, recursive=True))
    except ValueError:  # a name that no file can have
        found = []
    if not found:
        raise InputFileError(f"{one_line(name)} matches no file")
    return found


@contextlib.contextmanager
def _seekable(path: str) -> Iterator[str]:
    """The path itself, or a spooled copy where the path is a pipe (`<(command)` in a shell) or its name is no text."""
    with _open(path) as handle:
        if not handle.seekable() or not _is_text(path):
            with _spooled(handle) as spool_path:
                yield spool_path
            return
    yield path


def _is_text(path: str) -> bool:
    """Whether it can be handed to libraries that know UTF-8 only; to Linux, a name is any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    """Parquet is read from its end, and a pipe has none until it closes: copy it to a temporary file."""
    with tempfile.NamedTemporaryFile(prefix="s2bl-", suffix=".spool") as spool:
        try:
            shutil.copyfileobj(stream, spool, 1 << 20)
            spool.flush()
        except OSError as error:
            folder = one_line(tempfile.gettempdir())
            raise InputFileError(
                f"the piped input cannot be kept in {folder}: {one_line(error)}; set TMPDIR to a roomier folder"
            ) from error
        yield spool.name


def open_parquet(file: InputFile, *, verify: bool = False) -> pq.ParquetFile:
    """Open as Parquet, telling apart the ways in which a file is not."""
    if file.size == 0:
        hint = ": did the command before the pipe fail?" if file.name == "stdin" else ": it holds 0 bytes"
        raise InputFileError(f"{file.name} is empty{hint}")
    start = file.start(200)
    if start[:4] != PARQUET_MAGIC:
        raise InputFileError(
            f"{file.name} is not a Parquet file (it starts with {start[:4]!r}, not {PARQUET_MAGIC!r}){_guess(start)}"
        )
    if file.end(4) != PARQUET_MAGIC:
        raise InputFileError(f"{file.name} is a truncated Parquet file (its end is missing): copy or make it again")
    try:
        # No memory map: a file cut short while it is mapped kills the process instead of raising.
        # No pre-buffering: it would hold whole row groups, and foreign files may have only one.
        return pq.ParquetFile(file.path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=verify)
    except DAMAGED as error:
        raise damaged(file.name, error) from error


def _guess(start: bytes) -> str:
    """What a file that is not Parquet may be, and what to do with it."""
    if start[8:9] == b"{" and b"\0" in start[:8]:
        return ": it looks like a policy (safetensors); give it where a POLICY is asked for"
    return guessed_text(start)


def guessed_text(start: bytes) -> str:
    """Which text format the file has, judging by its start, and what to do with it; nothing where it has none."""
    if start[:1] in (b"{", b"["):
        return ": it looks like JSON; convert it, for example with polars: pl.read_json(…).write_parquet(…)"
    if b"," in start and b"\0" not in start:
        return ": it looks like CSV; convert it, for example with polars: pl.read_csv(…).write_parquet(…)"
    return ""


def damaged(name: str, error: BaseException) -> InputFileError:
    return InputFileError(f"{name} is a damaged Parquet file ({one_line(error, 120)}): copy or make it again")
