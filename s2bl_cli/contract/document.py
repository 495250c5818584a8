"""The metadata document: one JSON object, under the single key `s2bl`, in every file that s2bl writes.

    {"kind": "logs" | "policy" | …, "version": 1, "lineage": {...}, ...what the kind needs}

In Parquet it is schema metadata; in safetensors it is header metadata. Files that other tools made have
none. A kind's version rises when a reader of the old form would misread the new one.
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

VERSIONS = {KIND_LOGS: 1, KIND_POLICY: 1, KIND_SCORES: 2, KIND_HISTORY: 2, KIND_CHECKPOINT: 2}

_MADE_BY = {
    KIND_LOGS: "make-logs or mask",
    KIND_POLICY: "train",
    KIND_SCORES: "evaluate",
    KIND_HISTORY: "train --history",
    KIND_CHECKPOINT: "train",
}


def encode_document(kind: str, lineage: Step, body: Mapping[str, Any]) -> str:
    """The document as text: keys sorted, no spaces, so that equal documents are equal bytes."""
    document = {"kind": kind, "version": VERSIONS[kind], "lineage": encode_step(lineage), **body}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode_document(raw: bytes | str, subject: str) -> dict[str, Any]:
    """The document of any kind, its version checked and its lineage decoded into a `Step`."""
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
        raise ContractError(f"{subject}: contract version {one_line(version, 40)!r} is not a whole number from 1 on")
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in VERSIONS:
        raise ContractError(f"{subject}: its kind is {one_line(kind, 40)!r}, not one of {', '.join(VERSIONS)}")
    if version > VERSIONS[kind]:
        raise ContractError(
            f"{subject}: it has contract version {one_line(version, 40)} "
            f"and this s2bl reads up to {VERSIONS[kind]}: upgrade s2bl"
        )
    document["lineage"] = decode_step(document.get("lineage"), subject)
    return document


def strict_json(raw: bytes | str) -> Any:
    """ValueError or RecursionError where it is no JSON, or none that a file could carry on."""
    value = json.loads(raw)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # NaN, infinity, lone surrogates: Python reads them
    return value


def expect_kind(document: Mapping[str, Any], kind: str, subject: str) -> None:
    """Refuse a file of another kind, saying which command makes the right one."""
    if document["kind"] != kind:
        raise ContractError(
            f"{subject}: it is a {document['kind']} file, but a {kind} file is needed here "
            f"(made by s2bl {_MADE_BY[kind]})"
        )


def whole_number(document: Mapping[str, Any], key: str, subject: str, *, low: int, high: int) -> int:
    """A whole number of the document, within bounds that keep a stranger's file from asking for the moon."""
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ContractError(
            f"{subject}: {key} in its document must be a whole number in [{low}, {high}], found {one_line(value, 40)}"
        )
    return value


def action_names(document: Mapping[str, Any], actions: int, subject: str) -> tuple[str, ...]:
    """What each action stands for; empty where the document does not say."""
    named = document.get("action_names")
    if named is None:
        return ()
    if not isinstance(named, list) or len(named) != actions or not all(isinstance(name, str) for name in named):
        raise ContractError(f"{subject}: action_names in its document must be {actions} texts; make the file again")
    return tuple(named)
