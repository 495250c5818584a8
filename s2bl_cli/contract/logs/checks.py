"""The rules for a log's values: small checks of one batch, and the tally of faults.

A check counts faults and never raises. The reader reports all faults together, at the end.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from s2bl_cli.contract.logs.arrays import Mask, fixed_binary_view, valid_rows, without_nulls
from s2bl_cli.contract.logs.schema import LogSpec
from s2bl_cli.errors import ContractError, one_line

PI0_TOLERANCE = 1e-3  # error of float32 sums over thousands of actions; a wrong column deviates far more


@dataclass
class Fault:
    rule: str
    rows: int
    first_row: int
    first_value: str


class FaultTally:
    """All faults of a log: for each rule, the number of rows and the first of them."""

    def __init__(self) -> None:
        self.faults: dict[str, Fault] = {}

    def add(self, rule: str, rows: int, first_row: int, first_value: object) -> None:
        if rule in self.faults:
            self.faults[rule].rows += rows
        else:
            self.faults[rule] = Fault(rule, rows, first_row, one_line(first_value, 60))

    def add_where(self, bad: Mask, rule: str, values: npt.NDArray[Any], first_row: int) -> None:
        """Count the rows for which `bad` is true; `values` has the value to report."""
        if bad.any():
            i = int(bad.argmax())
            self.add(rule, int(bad.sum()), first_row + i, values[i])

    def add_nulls(self, column: pa.Array, name: str, first_row: int) -> None:
        if column.null_count:
            bad = ~valid_rows(column)
            self.add(f"{name} must not be null", int(bad.sum()), first_row + int(bad.argmax()), "null")

    def raise_if_any(self, subject: str) -> None:
        if not self.faults:
            return
        rules = [
            f"{fault.rule}: {fault.rows:,} row{'s' if fault.rows > 1 else ''}, "
            f"the first is row {fault.first_row} with {fault.first_value}"
            for fault in self.faults.values()
        ]
        raise ContractError(f"{subject}: {'; '.join(rules)} (rows count from 0); fix or drop these rows")


def check_batch(
    batch: pa.RecordBatch, spec: LogSpec, first_row: int, tally: FaultTally, *, is_reward: bool = False
) -> None:
    """Check every rule about the batch's columns.

    The batch is canonical: its types are right, and its nulls have been counted. With `is_reward`, its costs were read
    from a column of rewards, and faults are reported as faults of rewards.
    """
    names = set(batch.schema.names)
    if "context" in names:
        _check_context(batch.column("context"), spec, first_row, tally)
    if "action" in names:
        _check_index(batch.column("action"), "action", spec.actions, first_row, tally)
    if "label" in names:
        _check_index(batch.column("label"), "label", spec.actions, first_row, tally, "; --label-column '' for no label")
    if "propensity" in names:
        _check_propensity(batch.column("propensity"), first_row, tally)
    if "cost" in names:
        _check_cost(batch.column("cost"), first_row, tally, is_reward=is_reward)
    if {"pi0", "action", "propensity"} <= names:
        _check_pi0(batch, spec, first_row, tally)


def _check_context(column: pa.Array, spec: LogSpec, first_row: int, tally: FaultTally) -> None:
    if spec.context.dtype == "float32":
        values = fixed_binary_view(column, np.dtype(np.float32))
        # A sum of squares is finite only if every value is. If it overflows, the exact check below decides. Calling
        # isfinite on every batch would need a mask as large as the batch.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.einsum("ij,ij->", values, values)):
                return
        bad = ~np.isfinite(values).all(axis=1) & valid_rows(column)
        tally.add_where(bad, "context values must be finite", np.full(len(bad), "NaN or infinity"), first_row)


def _check_index(
    column: pa.Array, name: str, actions: int, first_row: int, tally: FaultTally, remedy: str = ""
) -> None:
    values = without_nulls(column, 0)
    bad = (values < 0) | (values >= actions)
    tally.add_where(bad, f"{name} must be in [0, {actions - 1}] ({actions} actions{remedy})", values, first_row)


def _check_propensity(column: pa.Array, first_row: int, tally: FaultTally) -> None:
    values = without_nulls(column, 1)
    tally.add_where(~((values > 0) & (values <= 1)), "propensity must be in (0, 1]", values, first_row)


def _check_cost(column: pa.Array, first_row: int, tally: FaultTally, *, is_reward: bool) -> None:
    values = without_nulls(column, 0)
    tally.add_where(
        ~np.isfinite(values),
        f"{'reward' if is_reward else 'cost'} must be finite, or null if it is missing (polars: fill_nan(None))",
        -values if is_reward else values,
        first_row,
    )


def _check_pi0(batch: pa.RecordBatch, spec: LogSpec, first_row: int, tally: FaultTally) -> None:
    pi0 = fixed_binary_view(batch.column("pi0"), np.dtype(np.float32))  # (rows, actions)
    action, propensity = without_nulls(batch.column("action"), 0), without_nulls(batch.column("propensity"), 1)
    with np.errstate(invalid="ignore", over="ignore"):
        sums = pi0.sum(axis=1)
        bad = ~((np.abs(sums - 1) <= PI0_TOLERANCE) & (pi0 >= 0).all(axis=1)) & valid_rows(batch.column("pi0"))
        tally.add_where(bad, "pi0 must be probabilities that sum to 1", sums, first_row)
        inside = (action >= 0) & (action < spec.actions) & ~bad
        for name in ("pi0", "action", "propensity"):
            inside &= valid_rows(batch.column(name))
        logged = pi0[np.arange(len(action)), np.where(inside, action, 0)]
        bad = inside & ~(np.abs(logged - propensity) <= PI0_TOLERANCE * np.maximum(logged, propensity))
    tally.add_where(bad, "pi0 of the logged action must equal propensity", logged, first_row)
