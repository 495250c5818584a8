"""From names to facts: a file's content decides what it is, never its name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from s2bl_cli.console import Console
from s2bl_cli.contract.document import KIND_CHECKPOINT, KIND_HISTORY, KIND_LOGS, KIND_POLICY, KIND_SCORES
from s2bl_cli.contract.input_files import InputFile, open_inputs
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.contract.parquet_files import PARQUET_MAGIC, read_document, text_format_hint
from s2bl_cli.contract.tensor_files import is_tensor_file, peek_document
from s2bl_cli.errors import InputFileError
from s2bl_cli.inspection.checkpoints import CheckpointFacts, inspect_checkpoint
from s2bl_cli.inspection.histories import HistoryFacts, inspect_history
from s2bl_cli.inspection.logs import LogFacts, inspect_log
from s2bl_cli.inspection.policies import PolicyFacts, inspect_policy
from s2bl_cli.inspection.scores import ScoresFacts, inspect_scores

Facts = LogFacts | PolicyFacts | ScoresFacts | HistoryFacts | CheckpointFacts

_INSPECTORS: dict[str, Callable[[InputFile, int | None], Facts]] = {
    KIND_POLICY: inspect_policy,
    KIND_SCORES: inspect_scores,
    KIND_HISTORY: inspect_history,
    KIND_CHECKPOINT: inspect_checkpoint,
}
_IN_TENSORS = (KIND_POLICY, KIND_CHECKPOINT)  # safetensors; all else is Parquet


@dataclass(frozen=True)
class Identity:
    """What a file says it is."""

    kind: str
    version: int | None = None  # of the contract; None for a log that another tool made


def inspect_files(names: Sequence[str], columns: LogColumns, console: Console) -> list[Facts]:
    """The facts of every file: the logs among them as one log, each other file by itself."""
    with open_inputs(names, folders=True) as files:
        identities = [_identify(file) for file in files]
        found: list[Facts] = []
        logs = [file for file, identity in zip(files, identities, strict=True) if identity.kind == KIND_LOGS]
        if logs:
            versions = [identity.version for identity in identities if identity.kind == KIND_LOGS]
            found.append(inspect_log(logs, columns, _shared(versions), console))
        for file, identity in zip(files, identities, strict=True):
            if identity.kind != KIND_LOGS:
                found.append(_INSPECTORS[identity.kind](file, identity.version))
        return found


def _identify(file: InputFile) -> Identity:
    start = file.start(200)
    if is_tensor_file(start):
        document = peek_document(file)
        if document is not None and document["kind"] not in _IN_TENSORS:
            raise InputFileError(
                f"{file.name} says that it is a {document['kind']} file, but it is safetensors: such files are Parquet"
            )
        # Without a document it is no policy: the reader of policies says why.
        return Identity(KIND_POLICY) if document is None else Identity(document["kind"], document["version"])
    if start and not start.startswith(PARQUET_MAGIC):
        hint = text_format_hint(start) or "; s2bl make-logs, train and evaluate make such files"
        raise InputFileError(
            f"{file.name} is no log, scores or policy file: it starts with {start[:8]!r}, and not as Parquet (b'PAR1') "
            f"or safetensors do{hint}"
        )
    document = read_document(file)
    if document is None:
        return Identity(KIND_LOGS)  # another tool's: the reader says what it lacks, if it is no log
    if document["kind"] in _IN_TENSORS:
        kind = document["kind"]
        raise InputFileError(
            f"{file.name} says that it is a {kind}, but it is Parquet: such files are safetensors files"
        )
    return Identity(document["kind"], document["version"])


def _shared(versions: list[int | None]) -> int | None:
    """The version that holds for files read as one log; none as soon as another tool made one of them."""
    known = [version for version in versions if version is not None]
    return max(known) if len(known) == len(versions) else None
