"""From a file's own columns to the contract's: names mapped, types cast, list contexts packed into binary.

`plan_columns` decides from the schema alone and tells all that is wrong with it at once; `canonical_batch`
then turns each batch. What only the values show (unequal widths, fractions as actions) goes to the tally.

In a canonical batch a null is a value that the tally was told of (in `cost`: missing feedback), so that
no later check tells of it a second time in other words.
"""

import fnmatch
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from s2bl_cli.contract.context_spec import MAX_FEATURES, ContextSpec
from s2bl_cli.contract.logs.checks import FaultTally, Mask, without_nulls
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.contract.logs.schema import COLUMNS, OPTIONAL, SPLIT_TYPE, SPLITS, LogSpec, declared_context
from s2bl_cli.errors import ContractError, one_line

_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class ColumnPlan:
    """Which source column becomes which column of the contract."""

    sources: dict[str, str]  # contract column → source column, for all but feature columns
    features: tuple[str, ...]  # one column a feature, or empty where `sources` has the context
    context: ContextSpec | None  # None: only the first row tells how wide it is
    context_dtype: str
    is_reward: bool
    optional: tuple[str, ...]
    extra: tuple[tuple[str, pa.DataType], ...]
    set_aside: tuple[tuple[str, pa.DataType], ...]  # columns that bear a name of the contract and are not read as that

    def spec(self, actions: int, context: ContextSpec) -> LogSpec:
        return LogSpec(actions, context, self.optional, self.extra)

    def source_columns(self, columns: tuple[str, ...], *, extra: bool) -> list[str]:
        """The source columns to read for these columns of the contract."""
        wanted = [self.sources[name] for name in columns if name in self.sources]
        if "context" in columns:
            wanted += self.features
        return wanted + ([name for name, _ in self.extra] if extra else [])


def plan_columns(schema: pa.Schema, names: LogColumns, subject: str) -> ColumnPlan:
    """Match the schema with the contract; every fault of the schema in one message."""
    faults: list[str] = []
    duplicated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if duplicated:
        raise ContractError(f"{subject}: column {one_line(duplicated[0], 60)!r} is there more than once; rename one")
    sources: dict[str, str] = {}

    def take(column: str, source: str, flag: str, fits: bool, rule: str) -> None:
        if source not in schema.names:
            faults.append(f"no column {source!r} for the {column}: name it with {flag}")
        elif not fits:
            kind = schema.field(source).type
            remedy = _remedy(column, source, kind)
            faults.append(f"column {source!r} must be {rule}, found {one_line(kind, 60)}{remedy}")
        else:
            sources[column] = source

    def is_number(source: str) -> bool:
        return source in schema.names and _is_number(schema.field(source).type)

    take("action", names.action_column, "--action-column", is_number(names.action_column), "whole numbers")
    take(
        "propensity",
        names.propensity_column,
        "--propensity-column",
        is_number(names.propensity_column),
        "numbers",
    )
    feedback = names.reward_column or names.cost_column
    take(
        "cost",
        feedback,
        "--cost-column or --reward-column",
        is_number(feedback) or _is_null(schema, feedback),
        "numbers",
    )
    optional_sources = {"label": names.label_column, "pi0": "pi0", "split": names.split_column}
    for column, source in optional_sources.items():
        is_asked = source != column  # by a flag; else the name alone says so, and a name may be chance
        if source in schema.names:
            fits = _fits_optional(column, schema.field(source).type)
            # A row is trained on unless it is a test row: of a split that cannot be read, somebody must say what it is.
            if is_asked or column == "split" or (fits and source not in sources.values()):
                take(column, source, "", fits, _OPTIONAL_RULES[column])
        elif is_asked and source:
            faults.append(f"no column {source!r} for the {column}: name it with --{column}-column")
    features, context, context_dtype = _plan_context(schema, names, sources, faults, subject)
    if faults:
        there = one_line(", ".join(schema.names), 160)
        raise ContractError(f"{subject}: {'; '.join(faults)} (its columns: {there})")
    used = {*sources.values(), *features}
    return ColumnPlan(
        sources=sources,
        features=features,
        context=context,
        context_dtype=context_dtype,
        is_reward=names.reward_column is not None,
        optional=tuple(column for column in OPTIONAL if column in sources),
        # A leftover column that bears a contract name (a second `cost`, say) would clash on writing.
        extra=_others(schema, used, lambda name: name not in COLUMNS),
        set_aside=_others(schema, used, lambda name: name in COLUMNS),
    )


def _others(schema: pa.Schema, used: set[str], chosen: Callable[[str], bool]) -> tuple[tuple[str, pa.DataType], ...]:
    return tuple((field.name, field.type) for field in schema if field.name not in used and chosen(field.name))


def _remedy(column: str, source: str, kind: pa.DataType) -> str:
    if column == "action" and _is_text(kind):
        return f" (number the actions from 0; with polars: pl.col({source!r}).rank('dense') - 1)"
    if column in ("label", "split"):
        return f" (name another with --{column}-column, or '' for none)"
    return ""


_OPTIONAL_RULES = {"label": "whole numbers", "pi0": "float32 binary or lists of numbers", "split": "text"}


def _plan_context(
    schema: pa.Schema, names: LogColumns, sources: dict[str, str], faults: list[str], subject: str
) -> tuple[tuple[str, ...], ContextSpec | None, str]:
    patterns = [pattern.strip() for pattern in names.context_columns.split(",") if pattern.strip()]
    # In the order of the patterns, and of the file within one: 'f_b,f_a' is another order than 'f_a,f_b'.
    matched = list(dict.fromkeys(n for p in patterns for n in schema.names if n == p or fnmatch.fnmatchcase(n, p)))
    unmatched = [p for p in patterns if not any(name == p or fnmatch.fnmatchcase(name, p) for name in schema.names)]
    shape = names.parsed_shape()
    if unmatched or not patterns:
        missing = unmatched[0] if unmatched else names.context_columns
        faults.append(f"no column {missing!r} for the context: name it with --context-columns, such as 'x_*'")
        return (), None, "float32"
    if len(matched) == 1 and not _is_number(schema.field(matched[0]).type):
        field = schema.field(matched[0])
        sources["context"] = field.name
        return (), *_plan_packed_context(field, names.context_dtype, shape, faults, subject)
    wrong = [name for name in matched if not _is_number(schema.field(name).type)]
    if wrong:
        faults.append(f"context column {wrong[0]!r} must be numbers, found {one_line(schema.field(wrong[0]).type, 60)}")
    clash = [(source, role) for role, source in sources.items() if source in matched]
    for source, role in clash[:1]:
        faults.append(f"column {source!r} cannot be both a context and the log's {role}: narrow --context-columns")
    context = _shaped(ContextSpec("float32", (len(matched),), tuple(matched)), shape, faults)
    return tuple(matched), context, "float32"


def _plan_packed_context(
    field: pa.Field, dtype: str | None, shape: tuple[int, ...] | None, faults: list[str], subject: str
) -> tuple[ContextSpec | None, str]:
    kind = field.type
    if _is_binary(kind):
        declared = declared_context(field, subject)
        if declared is not None:
            if pa.types.is_fixed_size_binary(kind) and kind.byte_width != declared.byte_width:
                faults.append(f"context {declared} needs {declared.byte_width} bytes a row, found {kind.byte_width}")
            return declared, declared.dtype
        if dtype is None:
            faults.append("binary contexts do not say what they hold: pass --context-dtype uint8 or float32")
            return None, "uint8"
        if pa.types.is_fixed_size_binary(kind):
            itemsize = np.dtype(dtype).itemsize
            if kind.byte_width % itemsize or not kind.byte_width:
                faults.append(
                    f"contexts of {kind.byte_width} bytes do not hold whole {dtype} values: check --context-dtype"
                )
                return None, dtype
            return _shaped(ContextSpec(dtype, (kind.byte_width // itemsize,)), shape, faults), dtype
        return None, dtype
    if _is_list(kind) and _is_number(kind.value_type):
        dtype = "uint8" if kind.value_type == pa.uint8() else "float32"
        if pa.types.is_fixed_size_list(kind):
            if not 1 <= kind.list_size <= MAX_FEATURES:
                faults.append(f"contexts must have 1 to {MAX_FEATURES} values, found {kind.list_size}")
                return None, dtype
            return _shaped(ContextSpec(dtype, (kind.list_size,)), shape, faults), dtype
        return None, dtype
    faults.append(f"column {field.name!r} must be binary or lists of numbers, found {one_line(kind, 60)}")
    return None, "float32"


def _shaped(spec: ContextSpec, shape: tuple[int, ...] | None, faults: list[str]) -> ContextSpec:
    if shape is None:
        return spec
    if math.prod(shape) != spec.features:
        faults.append(f"--context-shape {'x'.join(map(str, shape))} is not {spec.features} values, which a context has")
        return spec
    return ContextSpec(spec.dtype, shape, spec.names)


def context_from_first(plan: ColumnPlan, first: pa.Scalar, names: LogColumns, subject: str) -> ContextSpec:
    """Where the schema does not fix the width, the first row does; the others must follow it."""
    value = None if first is None else first.as_py()
    itemsize = np.dtype(plan.context_dtype).itemsize if isinstance(value, bytes) else 1
    if not value or len(value) % itemsize or len(value) // itemsize > MAX_FEATURES:
        found = "null" if value is None else f"{len(value)} {'bytes' if isinstance(value, bytes) else 'values'}"
        raise ContractError(
            f"{subject}: the first context must hold 1 to {MAX_FEATURES} {plan.context_dtype} values, found {found}"
        )
    faults: list[str] = []
    spec = _shaped(ContextSpec(plan.context_dtype, (len(value) // itemsize,)), names.parsed_shape(), faults)
    if faults:
        raise ContractError(f"{subject}: {faults[0]}")
    return spec


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
    """The batch with the contract's columns and types. A column of which no row fits is left out."""
    arrays: dict[str, pa.Array] = {}
    fields = [field for field in spec.schema() if field.name in columns or (extra and field.name not in COLUMNS)]
    for field in fields:
        name = field.name
        if name == "context" and plan.features:
            array = _pack_features(batch.select(list(plan.features)), first_row, tally)
        elif name == "context":
            array = _pack(
                batch.column(plan.sources[name]),
                spec.context.dtype,
                spec.context.features,
                "context",
                first_row,
                tally,
            )
        elif name == "pi0":
            array = _pack(batch.column(plan.sources[name]), "float32", spec.actions, "pi0", first_row, tally)
        elif name in ("action", "label"):
            array = _whole_numbers(batch.column(plan.sources[name]), name, first_row, tally)
        elif name == "propensity":
            array = _floats(batch.column(plan.sources[name]))
            _tell_nulls(array, name, first_row, tally)
        elif name == "cost":
            array = _floats(batch.column(plan.sources[name]))
            array = pc.negate(array) if plan.is_reward else array
        elif name == "split":
            array = _splits(batch.column(plan.sources[name]), first_row, tally)
        else:
            array = batch.column(name)
        if array is not None:
            arrays[name] = array
    # Nulls are told with a count, not refused by Arrow without one.
    schema = pa.schema([field.with_nullable(True) for field in fields if field.name in arrays])
    return pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)


def _pack(column: pa.Array, dtype: str, features: int, name: str, first_row: int, tally: FaultTally) -> pa.Array | None:
    """Binary or list rows as fixed-size binary; rows that do not fit are told and become null.

    None where no row fits: nulls take as much memory as values, and a wrong width may be of any size.
    """
    width = features * np.dtype(dtype).itemsize
    _tell_nulls(column, name, first_row, tally)
    if pa.types.is_fixed_size_binary(column.type):
        if column.type.byte_width == width:
            return column
        tally.add(f"{name} must have {width} bytes", len(column), first_row, f"{column.type.byte_width} bytes")
        return None
    is_binary = _is_binary(column.type)
    expected, unit = (width, "bytes") if is_binary else (features, "values")
    lengths = without_nulls(pc.binary_length(column) if is_binary else pc.list_value_length(column), expected)
    wrong = lengths != expected
    tally.add_where(wrong, f"{name} must have {expected} {unit} in every row", lengths, first_row)
    fits: Mask = column.is_valid().to_numpy(zero_copy_only=False) & ~wrong
    if not fits.any():
        return None
    if is_binary:
        packed = _only(column, fits).cast(pa.binary(width))
    else:
        holes = _with_null_values(column, fits)
        tally.add_where(holes, f"{name} values must not be null", np.full(len(holes), "null"), first_row)
        fits &= ~holes
        packed = _pack_lists(_only(column, fits), dtype, width)
    return packed if fits.all() else packed.take(pa.array(np.cumsum(fits) - 1, mask=~fits))


def _pack_lists(column: pa.Array, dtype: str, width: int) -> pa.Array:
    with np.errstate(over="ignore"):  # a double beyond float32 becomes infinity, which the check then tells
        packed = np.ascontiguousarray(_numbers(column.flatten()).astype(dtype, copy=False))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(column), [None, pa.py_buffer(packed)])


def _with_null_values(column: pa.Array, fits: Mask) -> Mask:
    """Which of the lists that fit (and so are equally long) have a null among their values."""
    holes = np.zeros(len(column), dtype=bool)
    values = _only(column, fits).flatten()
    if values.null_count:
        holes[fits] = values.is_null().to_numpy(zero_copy_only=False).reshape(int(fits.sum()), -1).any(axis=1)
    return holes


def _only(column: pa.Array, rows: Mask) -> pa.Array:
    return column if rows.all() else column.filter(pa.array(rows))


def _pack_features(columns: pa.RecordBatch, first_row: int, tally: FaultTally) -> pa.Array:
    packed = np.empty((columns.num_rows, columns.num_columns), dtype=np.float32)
    with np.errstate(over="ignore"):
        for i, name in enumerate(columns.schema.names):
            column = _decoded(columns.column(i))
            _tell_nulls(column, f"context column {one_line(name, 60)}", first_row, tally)
            packed[:, i] = _numbers(column)
    width = 4 * columns.num_columns
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), columns.num_rows, [None, pa.py_buffer(packed)])


def _tell_nulls(column: pa.Array, name: str, first_row: int, tally: FaultTally) -> None:
    if column.null_count:
        bad = column.is_null().to_numpy(zero_copy_only=False)
        tally.add(f"{name} must not be null", int(bad.sum()), first_row + int(bad.argmax()), "null")


def _whole_numbers(column: pa.Array, name: str, first_row: int, tally: FaultTally) -> pa.Array:
    """int32; what is no such number is told and becomes null."""
    column = _decoded(column)
    _tell_nulls(column, name, first_row, tally)
    if column.type == pa.int32():
        return column
    values = _numbers(column)
    if values.dtype.kind == "f":
        values = values.astype(np.float64)  # float32 has no 2³¹−1: its comparison would let 2³¹ pass
    fits = (values >= _INT32.min) & (values <= _INT32.max) & (values == np.floor(values))
    remedy = "; --label-column '' for no label" if name == "label" else ""
    tally.add_where(~fits, f"{name} must be whole numbers (int32{remedy})", values, first_row)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(np.where(fits, values, 0).astype(np.int32), mask=~(valid & fits))


def _splits(column: pa.Array, first_row: int, tally: FaultTally) -> pa.Array:
    """Text as the contract's dictionary; other text is told and becomes null."""
    if column.type == SPLIT_TYPE and not column.null_count and set(column.dictionary.to_pylist()) <= set(SPLITS):
        return column
    text = pc.cast(_decoded(column), pa.string())
    _tell_nulls(text, "split", first_row, tally)
    index = pc.index_in(text, value_set=pa.array(SPLITS, pa.string()))
    other = (index.is_null().to_numpy(zero_copy_only=False)) & text.is_valid().to_numpy(zero_copy_only=False)
    rule = f"split must be {' or '.join(SPLITS)} (--split-column names another column, or '' for none)"
    tally.add_where(other, rule, text.to_numpy(zero_copy_only=False), first_row)
    return pa.DictionaryArray.from_arrays(index.cast(pa.int8()), pa.array(SPLITS, pa.string()))


def _floats(column: pa.Array) -> pa.Array:
    if column.type == pa.float32():
        return column
    column = _decoded(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.float32())
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return pc.cast(column, pa.float32(), safe=False)


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    """A column as numpy numbers; nulls, of which the tally was told, as 0."""
    column = _decoded(column)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return without_nulls(column, 0)


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _is_number(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _is_null(schema: pa.Schema, name: str) -> bool:
    return name in schema.names and bool(pa.types.is_null(schema.field(name).type))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _fits_optional(column: str, kind: pa.DataType) -> bool:
    if column == "label":
        return _is_number(kind)
    if column == "split":
        return _is_text(kind)
    return _is_binary(kind) or (_is_list(kind) and _is_number(kind.value_type))
