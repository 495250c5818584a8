"""The facts of a checkpoint: a training run that has stopped, or is under way."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from s2bl_cli.contract.checkpoints import read_any_checkpoint
from s2bl_cli.contract.document import KIND_CHECKPOINT
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.errors import ContractError, one_line


@dataclass(frozen=True)
class CheckpointFacts:
    kind: str
    version: int | None
    name: str
    sha256: str
    policies_done: int  # trained to their end, those of folds among them
    stage: str | None  # what it was at; None between two stretches of work
    epoch: int | None  # whole epochs done
    step: int | None  # of the next epoch
    tensors: int
    bytes: int  # of the tensors
    lineages: list[list[str]]  # the run, as shell commands: with --resume the last of them goes on


def inspect_checkpoint(file: InputFile, version: int | None) -> CheckpointFacts:
    checkpoint = read_any_checkpoint(file)
    done, current = _progress(checkpoint.progress, file.name)
    return CheckpointFacts(
        kind=KIND_CHECKPOINT,
        version=version,
        name=file.name,
        sha256=file.sha256(),
        policies_done=done,
        stage=None if current is None else one_line(current["place"][0], 60),
        epoch=None if current is None else int(current["epoch"]),
        step=None if current is None else int(current["step"]),
        tensors=len(checkpoint.tensors),
        bytes=sum(tensor.nbytes for tensor in checkpoint.tensors.values()),
        lineages=[command_lines(checkpoint.run, "policy")],
    )


def _progress(progress: Mapping[str, Any], subject: str) -> tuple[int, Mapping[str, Any] | None]:
    """How many policies are done, and where the run is."""
    try:
        done = sum(int(groups) * int(policies) for _, _, groups, policies in progress["done"])
        current = progress["current"]
        if current is not None:
            int(current["epoch"]), int(current["step"]), current["place"][0]
        return done, current
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise ContractError(f"{subject}: its progress is damaged; start the run anew, without --resume") from error
