"""The checkpoint file: the state of an unfinished training run, as a nested dictionary of arrays and plain values.

    {"kind": "checkpoint", "version": 2, "lineage": {...}, "content": {...}, "digest": "…"}

The lineage is that of the run: its settings and the digests of its inputs. A run resumes only from its own
checkpoint. Arrays are tensors of the file, named by their path in the content. The digest covers the whole content.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from s2bl_cli.contract.document import KIND_CHECKPOINT, VERSIONS, encode_document, expect_kind
from s2bl_cli.contract.input_files import InputFile, open_input
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.tensor_files import Tensors, read_tensors, write_tensors
from s2bl_cli.errors import ContractError, one_line

REMEDY = "drop --resume to start over"
_ARRAY = "tensor:"  # replaces an array in the document; the tensor's name follows

Content = dict[str, Any]


def write_checkpoint(run: Step, content: Content, target: str) -> None:
    """Replace the previous checkpoint atomically: a run that is killed while writing keeps the previous one."""
    tensors: Tensors = {}
    plain = _without_arrays(content, "", tensors)
    body = {"content": plain, "digest": _digest(plain, tensors)}
    write_tensors(tensors, encode_document(KIND_CHECKPOINT, run, body), target, force=True)


def read_checkpoint(name: str, run: Step) -> Content:
    """The content, if the checkpoint is from this run."""
    with open_input(name) as file:
        made_by, content = read_any_checkpoint(file)
        if made_by.inputs != run.inputs:
            raise ContractError(f"{file.name} is from a run on another log: pass the same log, or {REMEDY}")
        differing = list(_differing({"version of s2bl": made_by.version, **made_by.settings},
                                    {"version of s2bl": run.version, **run.settings}))  # fmt: skip
        if differing:
            raise ContractError(
                f"{file.name} is from a run with other settings ({one_line('; '.join(differing[:3]))}): pass the "
                f"same options, or {REMEDY}"
            )
        return content


def read_any_checkpoint(file: InputFile) -> tuple[Step, Content]:
    """The run and its content, for a checkpoint of any run."""
    document, tensors = read_tensors(file, "checkpoint", REMEDY)
    expect_kind(document, KIND_CHECKPOINT, file.name)
    if document["version"] < VERSIONS[KIND_CHECKPOINT]:
        raise ContractError(f"{file.name} is from an older version of s2bl; {REMEDY}")
    plain = document.get("content")
    if not isinstance(plain, dict) or document.get("digest") != _digest(plain, tensors):
        raise damaged_checkpoint(file.name)
    try:
        return document["lineage"], _with_arrays(plain, tensors, file.name)
    except RecursionError as error:  # a crafted file
        raise damaged_checkpoint(file.name) from error


def damaged_checkpoint(name: str) -> ContractError:
    return ContractError(f"{name} is damaged; {REMEDY}")


def _differing(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    for name in {**saved, **current}:
        if saved.get(name) != current.get(name):
            yield f"{name} was {saved.get(name)}, is {current.get(name)}"


def _without_arrays(value: Any, path: str, tensors: Tensors) -> Any:
    if isinstance(value, np.ndarray):
        tensors[path] = value
        return _ARRAY + path
    if isinstance(value, dict):
        return {key: _without_arrays(inner, f"{path}/{key}", tensors) for key, inner in value.items()}
    return value


def _with_arrays(value: Any, tensors: Tensors, subject: str) -> Any:
    if isinstance(value, dict):
        return {key: _with_arrays(inner, tensors, subject) for key, inner in value.items()}
    if not isinstance(value, str) or not value.startswith(_ARRAY):
        return value
    path = value.removeprefix(_ARRAY)
    if path not in tensors:
        raise damaged_checkpoint(subject)
    return tensors[path]


def _digest(plain: Content, tensors: Tensors) -> str:
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()
