"""The parts of a log's Parquet that no checksum covers, held against each other.

A byte of a page's header says how its values are encoded, a byte of the footer where they are and of which type: if it
changes, a sound page is read as other values. Each of these is said twice in the file.
"""

import base64
import io
import itertools
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from s2bl_cli.contract.thrift import Struct, read_struct

_TAIL = 8  # bytes: the length of the footer, PAR1

# Numbers of fields in the structs of the Parquet format
_FILE_SCHEMA, _FILE_GROUPS, _FILE_TEXTS = 2, 4, 5
_ELEMENT_TYPE, _ELEMENT_REPETITION, _ELEMENT_NAME, _ELEMENT_CHILDREN = 1, 3, 4, 5
_CHUNK_TYPE, _CHUNK_ENCODINGS, _CHUNK_PATH, _CHUNK_CODEC = 1, 2, 3, 4
_CHUNK_VALUES, _CHUNK_SIZE, _CHUNK_DATA, _CHUNK_DICTIONARY = 5, 7, 9, 11
_PAGE_FULL_SIZE, _PAGE_SIZE = 2, 3
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 5, 7, 8
_PAGE_ENCODINGS = {_DATA_PAGE: (2, 3, 4), _DICTIONARY_PAGE: (2,), _DATA_PAGE_V2: (4,)}  # of values, and of levels

_STORED_SCHEMA = b"ARROW:schema"


class Chunk(NamedTuple):
    """A column of a row group, as the footer has it."""

    column: str
    start: int
    end: int
    values: int
    encodings: Sequence[int]
    is_compressed: bool


_SHORT_HEADER, _LONG_HEADER = 1 << 10, 1 << 22  # bytes


class Footer:
    """The footer, where it agrees with itself; ValueError where it does not."""

    def __init__(self, handle: BinaryIO) -> None:
        metadata = _read_footer(handle)
        elements = metadata[_FILE_SCHEMA][1:]  # the first is the root
        _check_nullable(elements, metadata)
        leaves = [element for element in elements if _ELEMENT_TYPE in element]
        self.groups = [_chunks([column[3] for column in group[1]], leaves) for group in metadata[_FILE_GROUPS]]
        extents = sorted((chunk.start, chunk.end) for chunks in self.groups for chunk in chunks)
        if any(end > start for (_, end), (start, _) in itertools.pairwise(extents)):
            raise ValueError("two column chunks of its footer overlap")

    def check_pages(self, handle: BinaryIO, group: int, columns: Sequence[str]) -> None:
        """ValueError where a page header of these columns is not as the footer says."""
        for chunk in self.groups[group]:
            if chunk.column in columns:
                _check_pages(handle, chunk)


def _read_footer(handle: BinaryIO) -> Struct:
    end = handle.seek(-_TAIL, io.SEEK_END)
    size = int.from_bytes(handle.read(4), "little")
    handle.seek(end - size)
    return read_struct(io.BytesIO(handle.read(size)))


def _check_nullable(elements: Sequence[Struct], metadata: Struct) -> None:
    """Arrow's own schema, which pyarrow also stores, says too which columns may be null."""
    texts = {text[1]: text[2] for text in metadata[_FILE_TEXTS]}
    if _STORED_SCHEMA not in texts:
        return
    stored = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(texts[_STORED_SCHEMA])))
    told = [(element[_ELEMENT_NAME].decode(), element[_ELEMENT_REPETITION]) for element in _of_root(elements)]
    if told != [(field.name, int(field.nullable)) for field in stored]:
        raise ValueError("the schemas of its footer disagree")


def _of_root(elements: Sequence[Struct]) -> list[Struct]:
    """The columns of the table: without what is inside of lists and structs."""
    found, at = [], 0
    while at < len(elements):
        found.append(elements[at])
        at = _behind(elements, at)
    return found


def _behind(elements: Sequence[Struct], at: int) -> int:
    """Where the next element begins that is not inside of this one."""
    left = 1
    while left:
        left += max(0, elements[at].get(_ELEMENT_CHILDREN, 0)) - 1
        at += 1
    return at


def _chunks(columns: Sequence[Struct], leaves: Sequence[Struct]) -> list[Chunk]:
    told = [(column[_CHUNK_TYPE], column[_CHUNK_PATH][-1]) for column in columns]
    if told != [(leaf[_ELEMENT_TYPE], leaf[_ELEMENT_NAME]) for leaf in leaves]:
        raise ValueError("the columns of its footer are not those of its schema")
    return [_chunk(column) for column in columns]


def _chunk(column: Struct) -> Chunk:
    start = column[_CHUNK_DICTIONARY if _CHUNK_DICTIONARY in column else _CHUNK_DATA]
    return Chunk(
        column[_CHUNK_PATH][0].decode(),
        start,
        start + column[_CHUNK_SIZE],
        column[_CHUNK_VALUES],
        column[_CHUNK_ENCODINGS],
        column[_CHUNK_CODEC] != 0,
    )


def _check_pages(handle: BinaryIO, chunk: Chunk) -> None:
    at, values = chunk.start, 0
    while at < chunk.end:
        page, size = _read_header(handle, at, chunk.end - at)
        kind, header = _header(page)
        if any(header[field] not in chunk.encodings for field in _PAGE_ENCODINGS[kind]):
            raise ValueError(f"a page of column {chunk.column!r} is not encoded as the footer says")
        if not chunk.is_compressed and page[_PAGE_SIZE] != page[_PAGE_FULL_SIZE]:
            raise ValueError(f"a page of column {chunk.column!r} is compressed, and the footer says that it is not")
        values += 0 if kind == _DICTIONARY_PAGE else header[1]
        at += size + max(0, page[_PAGE_SIZE])
    if at != chunk.end or values != chunk.values:
        raise ValueError(f"the pages of column {chunk.column!r} are not as the footer says")


def _read_header(handle: BinaryIO, at: int, most: int) -> tuple[Struct, int]:
    """A page's header, and its size. It is short, unless it has long values as statistics."""
    for size in (_SHORT_HEADER, _LONG_HEADER):
        handle.seek(at)
        memory = io.BytesIO(handle.read(min(most, size)))
        try:
            return read_struct(memory), memory.tell()
        except ValueError:
            if size == _LONG_HEADER or most <= size:
                raise
    raise AssertionError


def _header(page: Struct) -> tuple[int, Any]:
    kinds = [kind for kind in _PAGE_ENCODINGS if kind in page]
    if len(kinds) != 1:
        raise ValueError("a page is neither of data nor of a dictionary")
    return kinds[0], page[kinds[0]]
