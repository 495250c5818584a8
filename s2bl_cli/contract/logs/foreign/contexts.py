"""Find the contexts of a file, in one packed column or one numeric column per feature, and their dtype and shape."""

import fnmatch
import math
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from s2bl_cli.contract.context_spec import MAX_FEATURES, ContextSpec
from s2bl_cli.contract.logs.columns import LogColumns, missing_column
from s2bl_cli.contract.logs.foreign.arrow_types import is_binary, is_number, is_number_list
from s2bl_cli.contract.logs.schema import declared_context
from s2bl_cli.errors import ContractError, one_line


class ContextMatch(NamedTuple):
    """`packed` is the column with whole contexts; if it is None, `features` has one column per feature."""

    packed: str | None
    features: tuple[str, ...]
    spec: ContextSpec | None  # None if its width is known only from the first row
    dtype: str


def match_context(
    schema: pa.Schema, names: LogColumns, sources: dict[str, str], faults: list[str], subject: str
) -> ContextMatch:
    """Find the context columns. `sources` are columns that already have another role."""
    patterns = [pattern.strip() for pattern in names.context_columns.split(",") if pattern.strip()]
    # In the order of the patterns, and within a pattern in the order of the file: 'f_b,f_a' differs from 'f_a,f_b'.
    by_pattern = {pattern: [name for name in schema.names if _matches(name, pattern)] for pattern in patterns}
    matched = tuple(dict.fromkeys(name for matching in by_pattern.values() for name in matching))
    unmatched = [pattern for pattern, matching in by_pattern.items() if not matching]
    if unmatched or not patterns:
        missing = unmatched[0] if unmatched else names.context_columns
        remedy = "--context-columns, such as 'x_*'"
        faults.append(missing_column(missing, "context", "--context-columns", schema.names, remedy))
        return ContextMatch(None, (), None, "float32")
    shape = names.parsed_shape()
    if len(matched) == 1 and not is_number(schema.field(matched[0]).type):
        field = schema.field(matched[0])
        spec, dtype = _packed_context(field, names.context_dtype, shape, faults, subject)
        return ContextMatch(field.name, (), spec, dtype)
    wrong = [name for name in matched if not is_number(schema.field(name).type)]
    if wrong:
        faults.append(
            f"context column {wrong[0]!r} must be numbers, found {one_line(schema.field(wrong[0]).type, 60)}: encode "
            f"it first; with polars: frame.to_dummies({wrong[0]!r})"
        )
    clashes = [(source, column) for column, source in sources.items() if source in matched]
    for source, column in clashes[:1]:
        faults.append(f"column {source!r} cannot be both a context and the log's {column}: narrow --context-columns")
    spec = _shaped(ContextSpec("float32", (len(matched),), matched), shape, faults)
    return ContextMatch(None, matched, spec, spec.dtype)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _packed_context(
    field: pa.Field, dtype: str | None, shape: tuple[int, ...] | None, faults: list[str], subject: str
) -> tuple[ContextSpec | None, str]:
    if is_binary(field.type):
        return _binary_context(field, dtype, shape, faults, subject)
    if is_number_list(field.type):
        return _list_context(field.type, shape, faults)
    faults.append(f"column {field.name!r} must be binary or lists of numbers, found {one_line(field.type, 60)}")
    return None, "float32"


def _binary_context(
    field: pa.Field, dtype: str | None, shape: tuple[int, ...] | None, faults: list[str], subject: str
) -> tuple[ContextSpec | None, str]:
    byte_width = field.type.byte_width if pa.types.is_fixed_size_binary(field.type) else None
    declared = declared_context(field, subject)
    if declared is not None:
        if byte_width not in (None, declared.byte_width):
            faults.append(f"context {declared} needs {declared.byte_width} bytes per row, found {byte_width}")
        return declared, declared.dtype
    if dtype is None:
        faults.append("binary contexts do not declare their type: pass --context-dtype uint8 or float32")
        return None, "uint8"
    if byte_width is None:
        return None, dtype
    itemsize = np.dtype(dtype).itemsize
    if byte_width % itemsize or not byte_width:
        faults.append(f"contexts of {byte_width} bytes are not a whole number of {dtype} values: check --context-dtype")
        return None, dtype
    return _shaped(ContextSpec(dtype, (byte_width // itemsize,)), shape, faults), dtype


def _list_context(
    kind: pa.DataType, shape: tuple[int, ...] | None, faults: list[str]
) -> tuple[ContextSpec | None, str]:
    dtype = "uint8" if kind.value_type == pa.uint8() else "float32"
    if not pa.types.is_fixed_size_list(kind):
        return None, dtype
    if not 1 <= kind.list_size <= MAX_FEATURES:
        faults.append(f"contexts must have 1 to {MAX_FEATURES} values, found {kind.list_size}")
        return None, dtype
    return _shaped(ContextSpec(dtype, (kind.list_size,)), shape, faults), dtype


def _shaped(spec: ContextSpec, shape: tuple[int, ...] | None, faults: list[str]) -> ContextSpec:
    if shape is None:
        return spec
    if math.prod(shape) != spec.features:
        faults.append(f"--context-shape {'x'.join(map(str, shape))} must have {spec.features} values, as a context has")
        return spec
    return ContextSpec(spec.dtype, shape, spec.names)


def context_of_first_row(first: pa.Scalar, dtype: str, shape: tuple[int, ...] | None, subject: str) -> ContextSpec:
    """The context, if the schema does not determine its width: all rows must be as wide as the first."""
    value = first.as_py()
    itemsize = np.dtype(dtype).itemsize if isinstance(value, bytes) else 1
    if not value or len(value) % itemsize or len(value) // itemsize > MAX_FEATURES:
        size = "null" if value is None else f"{len(value)} {'bytes' if isinstance(value, bytes) else 'values'}"
        raise ContractError(f"{subject}: the first context must have 1 to {MAX_FEATURES} {dtype} values, found {size}")
    faults: list[str] = []
    spec = _shaped(ContextSpec(dtype, (len(value) // itemsize,)), shape, faults)
    if faults:
        raise ContractError(f"{subject}: {faults[0]}")
    return spec
