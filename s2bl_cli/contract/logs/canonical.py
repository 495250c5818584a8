"""Batches in the contract's layout. Columns that have this layout are used unchanged, others are converted.

In a canonical batch a null is a value that the tally has already counted (in `cost`: missing feedback), so later checks
do not report it again.
"""

import pyarrow as pa
import pyarrow.compute as pc

from s2bl_cli.contract.logs.checks import FaultTally
from s2bl_cli.contract.logs.foreign.conversion import convert_column, pack_features
from s2bl_cli.contract.logs.foreign.matching import ColumnPlan
from s2bl_cli.contract.logs.schema import COLUMNS, SPLITS, LogSpec


def canonical_batch(
    batch: pa.RecordBatch,
    plan: ColumnPlan,
    spec: LogSpec,
    columns: tuple[str, ...],
    first_row: int,
    tally: FaultTally,
    *,
    extra: bool,
) -> pa.RecordBatch:
    """The batch with the contract's columns and types. A column in which no row fits is left out."""
    fields, arrays = [], []
    for field in spec.schema():
        if field.name in columns:
            array = _canonical_column(batch, field, plan, spec, first_row, tally)
        elif extra and field.name not in COLUMNS:
            array = batch.column(field.name)
        else:
            continue
        if array is not None:
            fields.append(field.with_nullable(True))  # Arrow must accept nulls, which are counted as faults
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _canonical_column(
    batch: pa.RecordBatch, field: pa.Field, plan: ColumnPlan, spec: LogSpec, first_row: int, tally: FaultTally
) -> pa.Array | None:
    name = field.name
    if name == "context" and plan.features:
        return pack_features(batch.select(list(plan.features)), first_row, tally)
    column = batch.column(plan.sources[name])
    if not _is_canonical(column, field):
        column = convert_column(name, column, spec, first_row, tally)
    elif name != "cost":
        tally.add_nulls(column, name, first_row)
    return pc.negate(column) if name == "cost" and plan.is_reward else column


def _is_canonical(column: pa.Array, field: pa.Field) -> bool:
    if column.type != field.type:
        return False
    return field.name != "split" or set(column.dictionary.to_pylist()) <= set(SPLITS)
