"""The facts of a scores file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from s2bl_cli.contract.document import KIND_SCORES
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.scores import read_scores_files
from s2bl_cli.inspection.tidy_facts import distinct, finite, text

MAX_LISTED_VALUES = 1000  # limits the facts; `report` shows all scores


@dataclass(frozen=True)
class ValueFacts:
    """One score of a policy on a log. None is a null of the file, or a value that is not finite."""

    policy: str
    log: str
    method: str
    split: str
    metric: str
    label: int | None  # the class, for a score by class; the bin number, for a histogram
    interval: str | None
    value: float | None
    stderr: float | None
    rows: int | None


@dataclass(frozen=True)
class ScoresFacts:
    kind: str
    version: int | None
    name: str
    sha256: str
    rows: int
    policies: list[str]
    logs: list[str]
    methods: list[str]
    splits: list[str]
    metrics: list[str]
    values: list[ValueFacts]  # the first MAX_LISTED_VALUES
    lineages: list[list[str]]  # how the file was made, as shell commands


def inspect_scores(file: InputFile, version: int | None) -> ScoresFacts:
    table, lineages = read_scores_files([file])
    return ScoresFacts(
        kind=KIND_SCORES,
        version=version,
        name=file.name,
        sha256=file.sha256(),
        rows=table.num_rows,
        policies=distinct(table, "policy"),
        logs=distinct(table, "log"),
        methods=distinct(table, "method"),
        splits=distinct(table, "split"),
        metrics=distinct(table, "metric"),
        values=[_value(row) for row in table.slice(0, MAX_LISTED_VALUES).to_pylist()],
        lineages=[command_lines(step) for step in lineages],
    )


def _value(row: Mapping[str, Any]) -> ValueFacts:
    return ValueFacts(
        policy=text(row["policy"]),
        log=text(row["log"]),
        method=text(row["method"]),
        split=text(row["split"]),
        metric=text(row["metric"]),
        label=row["label"],
        interval=None if row["interval"] is None else text(row["interval"]),
        value=finite(row["value"]),
        stderr=finite(row["stderr"]),
        rows=row["rows"],
    )
