"""The checkpoint file: the progress of an unfinished training run.

    {"kind": "checkpoint", "version": 2, "lineage": {...}, "content": {...}, "digest": "…"}

The lineage is that of the run: its settings and the digests of its inputs. A run resumes only from its own
checkpoint. The content is a `Progress`, which is checked when the file is read. Arrays are tensors of the file; the
content has their names. The digest covers the content and the tensors.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
)

from s2bl_cli.contract.document import KIND_CHECKPOINT, VERSIONS, encode_document, expect_kind
from s2bl_cli.contract.input_files import InputFile, open_input
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.tensor_files import Tensors, read_tensors, write_tensors
from s2bl_cli.errors import ContractError, one_line

REMEDY = "drop --resume to start over"
_HELD_OUT_COLUMNS = 5

Content = dict[str, Any]


def _tensor(value: Any, info: ValidationInfo) -> Any:
    """In a file, an array is the name of a tensor; the tensors are the context."""
    return info.context.get(value) if info.context is not None and isinstance(value, str) else value


def _floating(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError("not floating-point")
    return array


def _held_out(columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if columns.dtype != np.float64 or columns.ndim != 2 or len(columns) != _HELD_OUT_COLUMNS:
        raise ValueError("not the columns of held-out rows")
    return columns


Array = Annotated[npt.NDArray[Any], BeforeValidator(_tensor)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
Value = Annotated[float, PlainSerializer(str)]  # an estimate may be −∞, which JSON cannot express


class _Saved(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")


class RewardLink(_Saved):
    """q̂(x, a) = shift + scale·f(η(x, a)), f the logistic function or the identity; the policy's logits are η up to a
    term without the action."""

    shift: float
    scale: float
    logistic: bool


class Result(_Saved):
    """A trained policy, or the best epoch so far of a policy in training."""

    tensors: dict[str, Array]  # none if the result is for selection only, or before the first best epoch
    held_out: Annotated[Array, AfterValidator(_held_out)] | None  # (columns, held-out rows)
    curve: list[tuple[Count, str, Value]]  # epoch, quantity, value
    best_epoch: Count
    undertrained: bool = False  # the loss would still fall
    link: RewardLink | None = None  # of a policy that takes the best action of a reward model


class SavedFit(_Saved):
    """Policies in training."""

    stage: str
    key: str
    epoch: Count  # finished epochs
    step: Count  # finished steps of the next epoch
    tensors: dict[str, Array]  # parameters and optimizer state
    sums: dict[str, Annotated[Array, AfterValidator(_floating)]]  # (G, C, rows): terms of the loss in this epoch
    results: dict[str, Result]  # by candidate


class Progress(_Saved):
    """What is done of a run."""

    streamed: bool | None = None
    finished: dict[str, dict[str, Result]] = {}  # by stage and candidate
    current: SavedFit | None = None


def write_checkpoint(run: Step, content: Content, target: str) -> None:
    """Replace the previous checkpoint atomically: a run that is killed while writing keeps the previous one.

    `content`: a `Progress` as a dictionary.
    """
    tensors: Tensors = {}
    plain = _without_arrays(content, "", tensors)
    body = {"content": plain, "digest": _digest(plain, tensors)}
    write_tensors(tensors, encode_document(KIND_CHECKPOINT, run, body), target, force=True)


def read_checkpoint(name: str, run: Step) -> Progress:
    """The progress, if the checkpoint is from this run."""
    with open_input(name) as file:
        made_by, progress, _ = read_any_checkpoint(file)
        if made_by.inputs != run.inputs:
            raise ContractError(f"{file.name} is from a run on another log: pass the same log, or {REMEDY}")
        differing = list(_differing({"version of s2bl": made_by.version, **made_by.settings},
                                    {"version of s2bl": run.version, **run.settings}))  # fmt: skip
        if differing:
            raise ContractError(
                f"{file.name} is from a run with other settings ({one_line('; '.join(differing[:3]))}): pass the "
                f"same options, or {REMEDY}"
            )
        return progress


def read_any_checkpoint(file: InputFile) -> tuple[Step, Progress, Tensors]:
    """The run, its progress and all tensors of the file, for a checkpoint of any run."""
    document, tensors = read_tensors(file, "checkpoint", REMEDY)
    expect_kind(document, KIND_CHECKPOINT, file.name)
    if document["version"] < VERSIONS[KIND_CHECKPOINT]:
        raise ContractError(f"{file.name} is from an older version of s2bl; {REMEDY}")
    plain = document.get("content")
    if not isinstance(plain, dict) or document.get("digest") != _digest(plain, tensors):
        raise damaged_checkpoint(file.name)
    try:
        return document["lineage"], Progress.model_validate(plain, context=tensors), tensors
    except ValidationError as error:  # a crafted file
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
        return path
    if isinstance(value, dict):
        return {key: _without_arrays(inner, f"{path}/{key}", tensors) for key, inner in value.items()}
    return value


def _digest(plain: Content, tensors: Tensors) -> str:
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()
