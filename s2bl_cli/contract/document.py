"""The metadata document: one JSON object, under the single key `s2bl`, in every file that s2bl writes.

    {"kind": "logs" | "policy" | …, "version": 1, "lineage": {...}, ...further keys by kind}

It is schema metadata in Parquet and header metadata in safetensors. Files of other tools have no document. The version
of a kind is incremented if a reader of the old version would misread the new one.
"""

import json
from collections.abc import Mapping
from typing import Any

from s2bl_cli.contract.lineage import Step, decode_step, encode_step
from s2bl_cli.errors import ContractError, one_line

KEY = "s2bl"

KIND_LOGS = "logs"
KIND_POLICY = "policy"
KIND_SCORES = "scores"
KIND_HISTORY = "history"
KIND_CHECKPOINT = "checkpoint"

VERSIONS = {KIND_LOGS: 1, KIND_POLICY: 2, KIND_SCORES: 2, KIND_HISTORY: 2, KIND_CHECKPOINT: 2}

_MADE_BY = {
    KIND_LOGS: "make-logs or mask",
    KIND_POLICY: "train",
    KIND_SCORES: "evaluate",
    KIND_HISTORY: "train --history",
    KIND_CHECKPOINT: "train",
}


def encode_document(kind: str, lineage: Step, body: Mapping[str, Any]) -> str:
    """The document as text. Keys are sorted and there are no spaces, so equal documents have equal bytes."""
    document = {"kind": kind, "version": VERSIONS[kind], "lineage": encode_step(lineage), **body}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode_document(raw: bytes | str, subject: str) -> dict[str, Any]:
    """A document of any kind, with its version checked and its lineage decoded into a `Step`."""
    try:
        document = strict_json(raw)
    except (ValueError, RecursionError) as error:
        raise ContractError(
            f"{subject}: its s2bl document is not JSON ({one_line(error, 80)}); make the file again"
        ) from error
    if not isinstance(document, dict):
        raise ContractError(f"{subject}: its s2bl document is not a JSON object; make the file again")
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ContractError(
            f"{subject}: contract version must be a whole number of 1 or more, found {one_line(version, 40)!r}"
        )
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in VERSIONS:
        raise ContractError(f"{subject}: kind must be one of {', '.join(VERSIONS)}, found {one_line(kind, 40)!r}")
    if version > VERSIONS[kind]:
        raise ContractError(
            f"{subject}: it has contract version {one_line(version, 40)}, "
            f"but this s2bl reads up to {VERSIONS[kind]}: upgrade s2bl"
        )
    document["lineage"] = decode_step(document.get("lineage"), subject)
    return document


def strict_json(raw: bytes | str) -> Any:
    """Parse JSON. Raises ValueError or RecursionError if it is invalid or could not be written again."""
    value = json.loads(raw)
    json.dumps(
        value, ensure_ascii=False, allow_nan=False
    ).encode()  # rejects NaN, infinity and lone surrogates, which json.loads accepts
    return value


def expect_kind(document: Mapping[str, Any], kind: str, subject: str) -> None:
    """Reject a file of another kind, and name the command that makes the right one."""
    if document["kind"] != kind:
        raise ContractError(
            f"{subject}: it is a {document['kind']} file, but a {kind} file is needed here "
            f"(made by s2bl {_MADE_BY[kind]})"
        )


def whole_number(document: Mapping[str, Any], key: str, subject: str, *, low: int, high: int) -> int:
    """A whole number of the document. The bounds keep a crafted file from requesting huge amounts of memory."""
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ContractError(
            f"{subject}: {key} in its document must be a whole number in [{low}, {high}], found {one_line(value, 40)}"
        )
    return value


def action_names(document: Mapping[str, Any], actions: int, subject: str) -> tuple[str, ...]:
    """The name of each action; empty if the document has none."""
    names = document.get("action_names")
    if names is None:
        return ()
    if not isinstance(names, list) or len(names) != actions or not all(isinstance(name, str) for name in names):
        raise ContractError(f"{subject}: action_names in its document must be {actions} strings; make the file again")
    return tuple(names)
