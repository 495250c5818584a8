"""Parquet inputs: opening them, recognising other formats, and reading the s2bl document.

`parquet_errors` wraps calls of pyarrow and nothing else, so a bug in s2bl is never reported as a damaged file.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from s2bl_cli.contract.document import KEY, decode_document
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.errors import InputFileError, one_line

PARQUET_MAGIC = b"PAR1"

# What pyarrow raises on damaged bytes: its own errors, OSError if deserialisation fails, and UnicodeDecodeError for
# names that are not UTF-8.
PARQUET_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)


@contextlib.contextmanager
def parquet_errors(name: str) -> Iterator[None]:
    """Wrap calls of pyarrow that read the file: report their exceptions as damage."""
    try:
        yield
    except PARQUET_ERRORS as error:
        raise damaged(name, error) from error


def damaged(name: str, reason: object) -> InputFileError:
    return InputFileError(f"{name} is a damaged Parquet file ({one_line(reason, 120)}): copy or make it again")


@contextlib.contextmanager
def open_parquet(file: InputFile, *, verify: bool = False) -> Iterator[pq.ParquetFile]:
    """Open as Parquet, or report what the file is instead. `verify` also checks the page checksums."""
    with file.open() as handle:
        with file.read_errors():
            _check_format(file, handle)
        with parquet_errors(file.name):
            # No pre-buffering: it keeps whole row groups in memory, and files of other tools may have only one.
            parquet = pq.ParquetFile(handle, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=verify)
        yield parquet


def read_document(file: InputFile) -> dict[str, Any] | None:
    """The document, of any kind; None for a file of another tool."""
    with open_parquet(file) as parquet:
        return document_of(parquet, file)


def document_of(parquet: pq.ParquetFile, file: InputFile) -> dict[str, Any] | None:
    """Like `read_document`, for a file that is open already."""
    with parquet_errors(file.name):
        metadata = parquet.schema_arrow.metadata or {}
    raw = metadata.get(KEY.encode())
    return None if raw is None else decode_document(raw, file.name)


def _check_format(file: InputFile, handle: pa.NativeFile) -> None:
    size = handle.size()
    if size == 0:
        hint = ": did the command before the pipe fail?" if file.name == "stdin" else ": it has 0 bytes"
        raise InputFileError(f"{file.name} is empty{hint}")
    start = bytes(handle.read(200))
    if start[:4] != PARQUET_MAGIC:
        raise InputFileError(
            f"{file.name} is not a Parquet file (it starts with {start[:4]!r}, not {PARQUET_MAGIC!r})"
            f"{_format_hint(start)}"
        )
    handle.seek(max(0, size - 4))
    if handle.read(4) != PARQUET_MAGIC:
        raise InputFileError(f"{file.name} is a truncated Parquet file (its end is missing): copy or make it again")
    handle.seek(0)


def _format_hint(start: bytes) -> str:
    """The probable format of a file that is not Parquet, and what to do with it."""
    if start[8:9] == b"{" and b"\0" in start[:8]:
        return ": it looks like a policy (safetensors); pass it as a POLICY"
    return text_format_hint(start)


def text_format_hint(start: bytes) -> str:
    """The text format that the file starts like, and what to do with it; empty if it is not text."""
    if start[:1] in (b"{", b"["):
        name, reader = ("JSON lines", "read_ndjson") if _is_json_lines(start) else ("JSON", "read_json")
        return f": it looks like {name}; convert it, for example with polars: pl.{reader}(…).write_parquet(…)"
    if start.startswith(b'"policy",') and b'"settings"' in start:
        return ": it looks like scores or a history in CSV, which has no lineage; write them to a .parquet file instead"
    if b"," in start and b"\0" not in start:
        return ": it looks like CSV; convert it, for example with polars: pl.read_csv(…).write_parquet(…)"
    return ""


def _is_json_lines(start: bytes) -> bool:
    """Whether there is one object per line: the first line is a whole object, or longer than `start`."""
    line, *rest = start.split(b"\n", 1)
    if not start.startswith(b"{") or line.strip() == b"{":
        return False
    return not rest or line.rstrip().endswith(b"}")
