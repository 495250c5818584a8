"""Files of tensors: safetensors, whose header carries the s2bl document. No pickle, ever.

Policies and checkpoints are such files. This module knows arrays, not networks: no torch here.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from s2bl_cli.contract.atomic import atomic_output
from s2bl_cli.contract.document import KEY, decode_document
from s2bl_cli.contract.input_files import PARQUET_MAGIC, InputFile
from s2bl_cli.errors import ContractError, InputFileError, one_line

Tensors = dict[str, npt.NDArray[Any]]

_DAMAGED = (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError)
_PLURALS = {"policy": "policies", "checkpoint": "checkpoints"}


def write_tensors(tensors: Tensors, document: str, target: str, *, force: bool) -> None:
    contiguous = {name: np.asarray(value, order="C") for name, value in tensors.items()}  # keeps 0-d arrays 0-d
    with atomic_output(target, force=force) as file:
        file.write(save(contiguous, metadata={KEY: document}))


def read_tensors(file: InputFile, kind: str, remedy: str) -> tuple[dict[str, Any], Tensors]:
    """The document and the tensors; `kind` is what the file should be, in words."""
    if file.size == 0:
        raise InputFileError(f"{file.name} is empty: it holds 0 bytes")
    if file.start(4) == PARQUET_MAGIC:
        raise InputFileError(f"{file.name} is a Parquet file, but {_PLURALS[kind]} are safetensors files: {remedy}")
    try:
        with safe_open(file.path, framework="numpy") as opened:
            raw = (opened.metadata() or {}).get(KEY)
            tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 (not a dict)
    except _DAMAGED as error:
        raise InputFileError(
            f"{file.name} is not a {kind} file (safetensors: {one_line(error, 100)}): {remedy}"
        ) from error
    if raw is None:
        raise ContractError(
            f"{file.name}: a safetensors file without an s2bl document is no {kind}; s2bl train makes {_PLURALS[kind]}"
        )
    return decode_document(raw, file.name), tensors


def peek_document(file: InputFile) -> dict[str, Any] | None:
    """The document alone, of any kind; None where there is none, or where the file cannot be read."""
    try:
        with safe_open(file.path, framework="numpy") as opened:
            raw = (opened.metadata() or {}).get(KEY)
    except _DAMAGED:
        return None
    return None if raw is None else decode_document(raw, file.name)
