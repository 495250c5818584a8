"""Tensor files: safetensors with the s2bl document in its header. Nothing is pickled.

Policies and checkpoints are tensor files. This module handles arrays, not networks, and does not import torch.
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
Layout = dict[str, tuple[str, tuple[int, ...]]]  # dtype and shape by name

# What safetensors raises on damaged bytes: its own error, and KeyError for a dtype that numpy lacks.
_DAMAGED = (SafetensorError, KeyError)
_MAX_HEADER = (
    100_000_000  # bytes, the format's limit; the first eight letters of a text file, read as a size, exceed it
)
_PLURALS = {"policy": "policies", "checkpoint": "checkpoints"}


def write_tensors(tensors: Tensors, document: str, target: str, *, force: bool, formats: tuple[str, ...] = ()) -> None:
    contiguous = {
        name: np.asarray(value, order="C") for name, value in tensors.items()
    }  # unlike ascontiguousarray, keeps 0-d arrays
    with atomic_output(target, force=force, formats=formats) as file:
        file.write(save(contiguous, metadata={KEY: document}))


def read_tensors(file: InputFile, kind: str, remedy: str) -> tuple[dict[str, Any], Tensors]:
    """The document and the tensors. `kind` is the expected kind of file, for messages."""
    # Read whole: safetensors would memory-map the file, and truncating a mapped file kills the process.
    data = file.read()
    if not data:
        raise InputFileError(f"{file.name} is empty: it has 0 bytes")
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
            f"{file.name}: a safetensors file without an s2bl document is not a {kind}; "
            f"s2bl train makes {_PLURALS[kind]}"
        )
    return decode_document(raw, file.name), tensors


def layout_of(tensors: Tensors) -> Layout:
    return {name: (str(value.dtype), value.shape) for name, value in tensors.items()}


def is_tensor_file(start: bytes) -> bool:
    """Whether the file starts like safetensors: with the size of a header, then the header as JSON."""
    return start[8:9] == b"{" and _header_size(start) <= _MAX_HEADER


def peek_document(file: InputFile) -> dict[str, Any] | None:
    """The document of a file for which `is_tensor_file` is true, of any kind; None if it has no readable one."""
    size = _header_size(file.start(8))
    raw = _document_text(file.start(8 + size)[8:])
    return None if raw is None else decode_document(raw, file.name)


def _header_size(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def _document_text(header: bytes) -> str | None:
    """The text of the document in a safetensors header; None if there is none."""
    try:
        values = json.loads(header)
    except (ValueError, RecursionError):
        return None
    metadata = values.get("__metadata__") if isinstance(values, dict) else None
    text = metadata.get(KEY) if isinstance(metadata, dict) else None
    return text if isinstance(text, str) else None
