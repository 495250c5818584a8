"""The checkpoint file: a training run in the middle, as tensors and a document.

    {"kind": "checkpoint", "version": 1, "lineage": {...}, "progress": {...}}

The lineage is that of the run: its settings and the digests of its inputs. A run goes on only from a checkpoint
of the same run. `progress` is plain JSON whose meaning is `training/`'s own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from s2bl_cli.contract.document import KIND_CHECKPOINT, encode_document, expect_kind
from s2bl_cli.contract.input_files import InputFile, open_input
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.tensor_files import Tensors, read_tensors, write_tensors
from s2bl_cli.errors import ContractError

_REMEDY = "drop --resume to start anew"


@dataclass(frozen=True)
class Checkpoint:
    run: Step
    progress: Mapping[str, Any]
    tensors: Tensors


def write_checkpoint(checkpoint: Checkpoint, target: str) -> None:
    """Replaces the one before, atomically: a run that is killed while it writes keeps the older one."""
    document = encode_document(KIND_CHECKPOINT, checkpoint.run, {"progress": dict(checkpoint.progress)})
    write_tensors(checkpoint.tensors, document, target, force=True)


def read_checkpoint(name: str, run: Step) -> Checkpoint:
    """The checkpoint, if it is of this run."""
    with open_input(name) as file:
        checkpoint = read_any_checkpoint(file)
        if checkpoint.run != run:
            raise ContractError(
                f"{file.name} is of another run (other settings, inputs or version of s2bl): give the same flags and "
                f"logs as before, or {_REMEDY}"
            )
        return checkpoint


def read_any_checkpoint(file: InputFile) -> Checkpoint:
    """The checkpoint, of whichever run."""
    document, tensors = read_tensors(file, "checkpoint", _REMEDY)
    expect_kind(document, KIND_CHECKPOINT, file.name)
    if not isinstance(document.get("progress"), Mapping):
        raise ContractError(f"{file.name}: it tells no progress; {_REMEDY}")
    return Checkpoint(document["lineage"], document["progress"], tensors)
