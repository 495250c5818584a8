"""Predicates on Arrow types: which role in a log a column can have."""

import pyarrow as pa


def is_number(kind: pa.DataType) -> bool:
    kind = _values_of(kind)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    kind = _values_of(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def is_identity(kind: pa.DataType) -> bool:
    """Whether equal values mean the same thing, such as a user: any type but nested ones."""
    kind = _values_of(kind)
    is_time = pa.types.is_temporal(kind) and kind.bit_width <= 64
    return bool(is_number(kind) or is_text(kind) or is_binary(kind) or is_time)


def is_number_list(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(is_list and is_number(kind.value_type))


def _values_of(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
