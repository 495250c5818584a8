"""Files of tensors: safetensors, whose header carries the s2bl document. No pickle, ever.

Policies and checkpoints are such files. This module knows arrays, not networks: no torch here.
"""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from s2bl_cli.contract.atomic import atomic_output
from s2bl_cli.contract.document import KEY, decode_document
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.parquet_files import PARQUET_MAGIC
from s2bl_cli.errors import ContractError, InputFileError, one_line

Tensors = dict[str, npt.NDArray[Any]]

# What safetensors raises on damaged bytes: its own error, and KeyError for a dtype that numpy lacks.
_DAMAGED = (SafetensorError, KeyError)
_MAX_HEADER = 100_000_000  # bytes: the format's own bound; eight letters of a text file are far above it
_PLURALS = {"policy": "policies", "checkpoint": "checkpoints"}


def write_tensors(tensors: Tensors, document: str, target: str, *, force: bool, formats: tuple[str, ...] = ()) -> None:
    contiguous = {name: np.asarray(value, order="C") for name, value in tensors.items()}  # keeps 0-d arrays 0-d
    with atomic_output(target, force=force, formats=formats) as file:
        file.write(save(contiguous, metadata={KEY: document}))


def read_tensors(file: InputFile, kind: str, remedy: str) -> tuple[dict[str, Any], Tensors]:
    """The document and the tensors; `kind` is what the file should be, in words."""
    # Whole into memory: the library's own reader of files maps them, and dies where a mapped file is cut short.
    data = file.read()
    if not data:
        raise InputFileError(f"{file.name} is empty: it holds 0 bytes")
    if data.startswith(PARQUET_MAGIC):
        raise InputFileError(f"{file.name} is a Parquet file, but {_PLURALS[kind]} are safetensors files: {remedy}")
    try:
        tensors = load(data)
    except _DAMAGED as error:
        raise InputFileError(
            f"{file.name} is not a {kind} file (safetensors: {one_line(error, 100)}): {remedy}"
        ) from error
    raw = _document_text(data[8 : 8 + _header_size(data)])
    if raw is None:
        raise ContractError(
            f"{file.name}: a safetensors file without an s2bl document is no {kind}; s2bl train makes {_PLURALS[kind]}"
        )
    return decode_document(raw, file.name), tensors


def is_tensor_file(start: bytes) -> bool:
    """Judging by its first bytes: the size of a header, and the header, which is JSON."""
    return start[8:9] == b"{" and _header_size(start) <= _MAX_HEADER


def peek_document(file: InputFile) -> dict[str, Any] | None:
    """The document alone, of any kind, of a file that `is_tensor_file`; None where it has none that can be read."""
    size = _header_size(file.start(8))
    raw = _document_text(file.start(8 + size)[8:])
    return None if raw is None else decode_document(raw, file.name)


def _header_size(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def _document_text(header: bytes) -> str | None:
    """The text of the document in a header of safetensors; None where it has none."""
    try:
        values = json.loads(header)
    except (ValueError, RecursionError):
        return None
    metadata = values.get("__metadata__") if isinstance(values, dict) else None
    text = metadata.get(KEY) if isinstance(metadata, dict) else None
    return text if isinstance(text, str) else None
