"""The facts of a history file: the learning curves of `train --history`."""

import math
from dataclasses import dataclass

from s2bl_cli.contract.document import KIND_HISTORY
from s2bl_cli.contract.history import read_history_files
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.errors import one_line

MAX_LISTED_CURVES = 1000  # bounds the facts; `report --figure` is for all of them


@dataclass(frozen=True)
class CurveFacts:
    """One quantity of one policy, over the epochs. None is a value that is not finite."""

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
    lineages: list[list[str]]  # one way to make it, as shell commands


def inspect_history(file: InputFile, version: int | None) -> HistoryFacts:
    table, lineages = read_history_files([file])
    curves: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in table.select(["policy", "quantity", "epoch", "value"]).to_pylist():
        curves.setdefault((row["policy"], row["quantity"]), []).append((row["epoch"], row["value"]))

    def different(column: str) -> list[str]:
        return [one_line(value, 200) for value in table.column(column).unique().to_pylist()]

    return HistoryFacts(
        kind=KIND_HISTORY,
        version=version,
        name=file.name,
        sha256=file.sha256(),
        rows=table.num_rows,
        policies=different("policy"),
        methods=different("method"),
        seeds=table.column("seed").unique().to_pylist(),
        epochs=max(table.column("epoch").to_pylist()),
        quantities=different("quantity"),
        curves=[
            CurveFacts(
                one_line(policy, 200), one_line(quantity, 60), len(points), _finite(min(points)), _finite(max(points))
            )
            for (policy, quantity), points in list(curves.items())[:MAX_LISTED_CURVES]
        ],
        lineages=[command_lines(step) for step in lineages],
    )


def _finite(point: tuple[int, float]) -> float | None:
    """The value at an epoch."""
    return point[1] if math.isfinite(point[1]) else None
