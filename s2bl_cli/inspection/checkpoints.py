"""The facts of a checkpoint: a training run that was stopped or is still running."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.checkpoints import damaged_checkpoint, read_any_checkpoint
from s2bl_cli.contract.document import KIND_CHECKPOINT
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.errors import one_line


@dataclass(frozen=True)
class CheckpointFacts:
    kind: str
    version: int | None
    name: str
    sha256: str
    policies_done: int  # finished policies, including those of folds
    stage: str | None  # the current fit; None between two fits
    epoch: int | None  # finished epochs
    step: int | None  # finished steps of the next epoch
    tensors: int
    bytes: int  # total size of the tensors
    lineages: list[list[str]]  # the run as shell commands; the last one, with --resume, continues it


def inspect_checkpoint(file: InputFile, version: int | None) -> CheckpointFacts:
    run, content = read_any_checkpoint(file)
    arrays = list(_arrays(content))
    stages, current = content.get("stages"), content.get("current", {})
    if not isinstance(stages, dict) or not all(isinstance(results, dict) for results in stages.values()):
        raise damaged_checkpoint(file.name)
    stage, epoch, step = (None, None, None) if current is None else _position(current, file.name)
    return CheckpointFacts(
        kind=KIND_CHECKPOINT,
        version=version,
        name=file.name,
        sha256=file.sha256(),
        policies_done=sum(len(results) for results in stages.values()),
        stage=stage,
        epoch=epoch,
        step=step,
        tensors=len(arrays),
        bytes=sum(array.nbytes for array in arrays),
        lineages=[command_lines(run, "policy")],
    )


def _position(current: Any, subject: str) -> tuple[str, int, int]:
    """Stage, epoch and step of the current fit."""
    values = [current.get(name) for name in ("stage", "epoch", "step")] if isinstance(current, dict) else []
    match values:
        case [str(stage), int(epoch), int(step)]:
            return one_line(stage, 60), epoch, step
    raise damaged_checkpoint(subject)


def _arrays(value: Any) -> Iterator[npt.NDArray[Any]]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _arrays(member)
