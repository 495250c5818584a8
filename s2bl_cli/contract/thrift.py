"""Structs of Thrift's compact protocol, in which Parquet writes its footer and page headers. Reading only.

Arrow hands out little of them, and asked for a column of a damaged footer it ends the process.
"""

from io import BytesIO
from typing import Any

Struct = dict[int, Any]  # field number → whole number, truth, bytes, list or struct

_MAX_DEPTH = 12  # Parquet's own structs nest to half of that
_CANNOT_BE_READ = "its metadata cannot be read"


def read_struct(handle: BytesIO, depth: int = 0) -> Struct:
    """The struct that begins where the handle stands, which is left behind its end. ValueError where it is none.

    From memory alone: what a damaged count asks for ends where the bytes do.
    """
    found: Struct = {}
    field = 0
    while head := _byte(handle):
        field = field + (head >> 4) if head >> 4 else _signed(handle)
        kind = head & 15
        found[field] = kind == 1 if kind in (1, 2) else _read_value(handle, kind, depth)
    return found


def _read_value(handle: BytesIO, kind: int, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(_CANNOT_BE_READ)
    match kind:
        case 1 | 2 | 3:  # in a list a truth has a byte
            return _byte(handle)
        case 4 | 5 | 6:
            return _signed(handle)
        case 7:
            return _bytes(handle, 8)
        case 8:
            return _bytes(handle, _unsigned(handle))
        case 9 | 10:
            head = _byte(handle)
            count = head >> 4 if head >> 4 < 15 else _unsigned(handle)
            return [_read_value(handle, head & 15, depth + 1) for _ in range(count)]
        case 12:
            return read_struct(handle, depth + 1)
    raise ValueError(_CANNOT_BE_READ)


def _signed(handle: BytesIO) -> int:
    value = _unsigned(handle)
    return (value >> 1) ^ -(value & 1)


def _unsigned(handle: BytesIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = _byte(handle)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError(_CANNOT_BE_READ)


def _byte(handle: BytesIO) -> int:
    return _bytes(handle, 1)[0]


def _bytes(handle: BytesIO, count: int) -> bytes:
    read = handle.read(count)
    if len(read) < count:
        raise ValueError(_CANNOT_BE_READ)
    return read
