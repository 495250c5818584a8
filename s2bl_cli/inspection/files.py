"""From names to facts: a file's content decides what it is, never its name."""

from collections.abc import Sequence
from dataclasses import dataclass

from s2bl_cli.console import Console
from s2bl_cli.contract.document import KEY, KIND_LOGS, KIND_POLICY, KIND_SCORES, decode_document
from s2bl_cli.contract.input_files import DAMAGED, InputFile, damaged, guessed_text, open_inputs, open_parquet
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.errors import InputFileError
from s2bl_cli.inspection.logs import LogFacts, inspect_log
from s2bl_cli.inspection.policies import PolicyFacts, inspect_policy
from s2bl_cli.inspection.scores import ScoresFacts, inspect_scores

Facts = LogFacts | PolicyFacts | ScoresFacts

_MAX_SAFETENSORS_HEADER = 100_000_000  # the format's own bound; eight letters of a text file are far above it


@dataclass(frozen=True)
class Identity:
    """What a file says it is."""

    kind: str
    version: int | None = None  # of the contract; None for a log that another tool made


def inspect_files(names: Sequence[str], columns: LogColumns, console: Console) -> list[Facts]:
    """The facts of every file: the logs among them as one log, each policy and each scores file by itself."""
    with open_inputs(names, folders=True) as files:
        identities = [_identify(file) for file in files]
        found: list[Facts] = []
        logs = [file for file, identity in zip(files, identities, strict=True) if identity.kind == KIND_LOGS]
        if logs:
            versions = [identity.version for identity in identities if identity.kind == KIND_LOGS]
            found.append(inspect_log(logs, columns, _shared(versions), console))
        for file, identity in zip(files, identities, strict=True):
            if identity.kind == KIND_POLICY:
                found.append(inspect_policy(file))
            elif identity.kind == KIND_SCORES:
                found.append(inspect_scores(file, identity.version))
        return found


def _identify(file: InputFile) -> Identity:
    start = file.start(200)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= _MAX_SAFETENSORS_HEADER:
        return Identity(KIND_POLICY)
    if start and not start.startswith(b"PAR1"):
        hint = guessed_text(start) or "; s2bl make-logs, train and evaluate make such files"
        raise InputFileError(
            f"{file.name} is no log, scores or policy file: it starts with {start[:8]!r}, and not as Parquet (b'PAR1') "
            f"or safetensors do{hint}"
        )
    with open_parquet(file) as parquet:
        try:
            raw = (parquet.schema_arrow.metadata or {}).get(KEY.encode())
        except DAMAGED as error:
            raise damaged(file.name, error) from error
    if raw is None:
        return Identity(KIND_LOGS)  # another tool's: the reader says what it lacks, if it is no log
    document = decode_document(raw, file.name)
    if document["kind"] == KIND_POLICY:
        raise InputFileError(f"{file.name} says that it is a policy, but it is Parquet: policies are safetensors files")
    return Identity(document["kind"], document["version"])


def _shared(versions: list[int | None]) -> int | None:
    """The version that holds for files read as one log; none as soon as another tool made one of them."""
    known = [version for version in versions if version is not None]
    return max(known) if len(known) == len(versions) else None
