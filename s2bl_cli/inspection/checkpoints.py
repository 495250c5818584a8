"""The facts of a checkpoint: a training run that has stopped, or is under way."""

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
    policies_done: int  # trained to their end, those of folds among them
    stage: str | None  # what it is at; None between two fits
    epoch: int | None  # whole epochs done
    step: int | None  # of the next epoch
    tensors: int
    bytes: int  # of the tensors
    lineages: list[list[str]]  # the run, as shell commands: with --resume the last of them goes on


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
    """Stage, epoch and step of the fit under way."""
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
