"""The facts of a checkpoint: a training run that was stopped or is still running."""

from dataclasses import dataclass

from s2bl_cli.contract.checkpoints import read_any_checkpoint
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
    run, progress, tensors = read_any_checkpoint(file)
    current = progress.current
    return CheckpointFacts(
        kind=KIND_CHECKPOINT,
        version=version,
        name=file.name,
        sha256=file.sha256(),
        policies_done=sum(len(results) for results in progress.finished.values()),
        stage=None if current is None else one_line(current.stage, 60),
        epoch=None if current is None else current.epoch,
        step=None if current is None else current.step,
        tensors=len(tensors),
        bytes=sum(tensor.nbytes for tensor in tensors.values()),
        lineages=[command_lines(run, "policy")],
    )
