"""The facts of a history file: the learning curves of `train --history`."""

from dataclasses import dataclass

from s2bl_cli.contract.document import KIND_HISTORY
from s2bl_cli.contract.history import read_history_files
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.inspection.tidy_facts import distinct, finite, text

MAX_LISTED_CURVES = 1000  # limits the facts; `report --figure` draws all curves


@dataclass(frozen=True)
class CurveFacts:
    """One quantity of one policy over the epochs. Values that are not finite are None."""

    policy: str
    quantity: str
    epochs: int
    first: float | None
    last: float | None


@dataclass(frozen=True)
class HistoryFacts:
    kind: str
    version: int | None
    name: str
    sha256: str
    rows: int
    policies: list[str]
    methods: list[str]
    seeds: list[int]
    epochs: int  # of the longest curve
    quantities: list[str]
    curves: list[CurveFacts]  # the first MAX_LISTED_CURVES
    lineages: list[list[str]]  # how the file was made, as shell commands


def inspect_history(file: InputFile, version: int | None) -> HistoryFacts:
    table, lineages = read_history_files([file])
    curves: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in table.select(["policy", "quantity", "epoch", "value"]).to_pylist():
        curves.setdefault((row["policy"], row["quantity"]), []).append((row["epoch"], row["value"]))
    return HistoryFacts(
        kind=KIND_HISTORY,
        version=version,
        name=file.name,
        sha256=file.sha256(),
        rows=table.num_rows,
        policies=distinct(table, "policy"),
        methods=distinct(table, "method"),
        seeds=table.column("seed").unique().to_pylist(),
        epochs=max(table.column("epoch").to_pylist()),
        quantities=distinct(table, "quantity"),
        curves=[
            CurveFacts(text(policy), text(quantity), len(points), finite(min(points)[1]), finite(max(points)[1]))
            for (policy, quantity), points in list(curves.items())[:MAX_LISTED_CURVES]
        ],
        lineages=[command_lines(step) for step in lineages],
    )
