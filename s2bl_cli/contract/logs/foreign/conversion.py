"""Convert columns of other tools to the contract's types: cast numbers, pack lists and features into binary.

Values that do not fit are counted as faults and become null.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from s2bl_cli.contract.logs.arrays import Mask, valid_rows, without_nulls
from s2bl_cli.contract.logs.checks import FaultTally
from s2bl_cli.contract.logs.foreign.arrow_types import is_binary, is_text
from s2bl_cli.contract.logs.schema import SPLITS, LogSpec
from s2bl_cli.contract.row_hashes import text_hashes
from s2bl_cli.errors import one_line

_INT32 = np.iinfo(np.int32)


def convert_column(name: str, column: pa.Array, spec: LogSpec, first_row: int, tally: FaultTally) -> pa.Array | None:
    """The column in the contract's type; None if no row fits."""
    match name:
        case "context":
            return _pack(column, spec.context.dtype, spec.context.features, name, first_row, tally)
        case "pi0":
            return _pack(column, "float32", spec.actions, name, first_row, tally)
        case "action" | "label":
            return _whole_numbers(column, name, first_row, tally)
        case "split":
            return _splits(column, first_row, tally)
        case "cluster":
            return _identities(column, first_row, tally)
    floats = _floats(column)
    if name == "propensity":
        tally.add_nulls(floats, name, first_row)
    return floats


def pack_features(columns: pa.RecordBatch, first_row: int, tally: FaultTally) -> pa.Array:
    """Pack one numeric column per feature into one column of contexts."""
    packed = np.empty((columns.num_rows, columns.num_columns), dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for i, name in enumerate(columns.schema.names):
            column = _decoded(columns.column(i))
            tally.add_nulls(column, f"context column {one_line(name, 60)}", first_row)
            packed[:, i] = _numbers(column)
    width = 4 * columns.num_columns
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), columns.num_rows, [None, pa.py_buffer(packed)])


def _pack(column: pa.Array, dtype: str, features: int, name: str, first_row: int, tally: FaultTally) -> pa.Array | None:
    """Convert binary or lists to fixed-size binary.

    None if no row fits: nulls take as much memory as values, and a wrong width may be arbitrarily large.
    """
    width = features * np.dtype(dtype).itemsize
    tally.add_nulls(column, name, first_row)
    if pa.types.is_fixed_size_binary(column.type):
        tally.add(f"{name} must have {width} bytes", len(column), first_row, f"{column.type.byte_width} bytes")
        return None
    has_bytes = is_binary(column.type)
    expected, unit = (width, "bytes") if has_bytes else (features, "values")
    lengths = without_nulls(pc.binary_length(column) if has_bytes else pc.list_value_length(column), expected)
    wrong = lengths != expected
    tally.add_where(wrong, f"{name} must have {expected} {unit} in every row", lengths, first_row)
    fits: Mask = valid_rows(column) & ~wrong
    if not fits.any():
        return None
    if has_bytes:
        packed = _only(column, fits).cast(pa.binary(width))
    else:
        incomplete = _with_null_values(column, fits)
        tally.add_where(incomplete, f"{name} values must not be null", np.full(len(incomplete), "null"), first_row)
        fits &= ~incomplete
        packed = _pack_lists(_only(column, fits), dtype, width)
    return packed if fits.all() else packed.take(pa.array(np.cumsum(fits) - 1, mask=~fits))


def _pack_lists(column: pa.Array, dtype: str, width: int) -> pa.Array:
    with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are counted by the check of values
        packed = np.ascontiguousarray(_numbers(column.flatten()).astype(dtype, copy=False))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(column), [None, pa.py_buffer(packed)])


def _with_null_values(column: pa.Array, fits: Mask) -> Mask:
    """Which of the lists that fit, and so have equal lengths, contain a null."""
    incomplete = np.zeros(len(column), dtype=bool)
    values = _only(column, fits).flatten()
    if values.null_count:
        incomplete[fits] = (~valid_rows(values)).reshape(int(fits.sum()), -1).any(axis=1)
    return incomplete


def _only(column: pa.Array, rows: Mask) -> pa.Array:
    return column if rows.all() else column.filter(pa.array(rows))


def _whole_numbers(column: pa.Array, name: str, first_row: int, tally: FaultTally) -> pa.Array:
    column = _decoded(column)
    tally.add_nulls(column, name, first_row)
    values = _numbers(column)
    if values.dtype.kind == "f":
        values = values.astype(np.float64)  # float32 cannot represent 2³¹−1, so comparing in it would accept 2³¹
    fits = (values >= _INT32.min) & (values <= _INT32.max) & (values == np.floor(values))
    remedy = "; --label-column '' for no label" if name == "label" else ""
    tally.add_where(~fits, f"{name} must be whole numbers (int32{remedy})", values, first_row)
    return pa.array(np.where(fits, values, 0).astype(np.int32), mask=~(valid_rows(column) & fits))


def _splits(column: pa.Array, first_row: int, tally: FaultTally) -> pa.Array:
    """Convert text to the contract's dictionary type."""
    text = pc.cast(_decoded(column), pa.string())
    tally.add_nulls(text, "split", first_row)
    index = pc.index_in(text, value_set=pa.array(SPLITS, pa.string()))
    rule = f"split must be {' or '.join(SPLITS)} (--split-column names another column, or '' for none)"
    invalid = ~valid_rows(index) & valid_rows(text)
    tally.add_where(invalid, rule, text.to_numpy(zero_copy_only=False), first_row)
    return pa.DictionaryArray.from_arrays(index.cast(pa.int8()), pa.array(SPLITS, pa.string()))


def _identities(column: pa.Array, first_row: int, tally: FaultTally) -> pa.Array:
    """Whole numbers as they are, everything else as hashes."""
    column = _decoded(column)
    tally.add_nulls(column, "cluster", first_row)
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    if is_text(column.type) or is_binary(column.type):
        values = text_hashes(column).view(np.int64)
    else:
        numbers = _numbers(column)
        values = numbers.astype(np.int64) if numbers.dtype.kind != "f" else _whole_or_bits(numbers.astype(np.float64))
    return pa.array(values, pa.int64(), mask=~valid_rows(column))


def _whole_or_bits(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Floats that are whole numbers equal those whole numbers."""
    is_whole = (np.abs(values) < 2**53) & (values == np.floor(values))
    return np.where(is_whole, np.where(is_whole, values, 0).astype(np.int64), values.view(np.int64))


def _floats(column: pa.Array) -> pa.Array:
    column = _decoded(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.float32())
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return pc.cast(column, pa.float32(), safe=False)


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    """A column as numpy numbers. Nulls, which are counted as faults, become 0."""
    column = _decoded(column)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return without_nulls(column, 0)


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
