"""From names to facts. The kind of a file is determined by its content, never by its name."""

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
_IN_TENSORS = (KIND_POLICY, KIND_CHECKPOINT)  # safetensors; the other kinds are Parquet
_PATTERNS = ("*.parquet", "*.safetensors", "*.checkpoint")  # of the files in a folder


@dataclass(frozen=True)
class Identity:
    """The kind and version that a file declares."""

    kind: str
    version: int | None = None  # of the contract; None for a log that another tool made


def inspect_files(names: Sequence[str], columns: LogColumns, console: Console) -> list[Facts]:
    """The facts of all files: the logs as one log, then each other file."""
    with open_inputs(names, folders=True, patterns=_PATTERNS) as files:
        identities = [_identify(file) for file in files]
        all_facts: list[Facts] = []
        logs = [file for file, identity in zip(files, identities, strict=True) if identity.kind == KIND_LOGS]
        if logs:
            versions = [identity.version for identity in identities if identity.kind == KIND_LOGS]
            all_facts.append(inspect_log(logs, columns, _common_version(versions), console))
        for file, identity in zip(files, identities, strict=True):
            if identity.kind != KIND_LOGS:
                all_facts.append(_INSPECTORS[identity.kind](file, identity.version))
        return all_facts


def _identify(file: InputFile) -> Identity:
    start = file.start(200)
    if is_tensor_file(start):
        document = peek_document(file)
        if document is not None and document["kind"] not in _IN_TENSORS:
            raise InputFileError(
                f"{file.name} declares itself a {document['kind']} file, but it is safetensors, and such files are "
                f"Parquet: make the file again"
            )
        # Without a document it is not a policy, which the reader of policies reports.
        return Identity(KIND_POLICY) if document is None else Identity(document["kind"], document["version"])
    if start and not start.startswith(PARQUET_MAGIC):
        hint = text_format_hint(start) or "; s2bl make-logs, train and evaluate make such files"
        raise InputFileError(
            f"{file.name} is not a log, scores or policy file: it starts with {start[:8]!r}, and not like Parquet "
            f"(b'PAR1') or safetensors{hint}"
        )
    document = read_document(file)
    if document is None:
        return Identity(KIND_LOGS)  # of another tool; if it is not a log, the reader reports what is missing
    if document["kind"] in _IN_TENSORS:
        kind = document["kind"]
        raise InputFileError(
            f"{file.name} declares itself a {kind} file, but it is Parquet, and such files are safetensors: make the "
            f"file again"
        )
    return Identity(document["kind"], document["version"])


def _common_version(versions: list[int | None]) -> int | None:
    """The version of files read as one log; None if another tool made any of them."""
    known = [version for version in versions if version is not None]
    return max(known) if len(known) == len(versions) else None
