"""From Parquet bytes to Arrow batches: row groups decoded a few ahead on threads, in bounded memory.

What this module hands out is valid Arrow data with as many rows as the file says; all else is damage.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.parquet_files import damaged, open_parquet, parquet_errors

_THREADS = 2
_LARGE_ROW_GROUP = 32 << 20  # bytes: a row group beyond is streamed, not decoded at once


class RowGroup(NamedTuple):
    """A row group of a log: where it is, and which rows of the log it has."""

    file: int
    number: int  # in its file
    first_row: int
    rows: int


def row_group_sizes(parquet: pq.ParquetFile, file: InputFile) -> list[int]:
    """The rows of each row group, where the footer agrees with itself: arrays are allocated for so many rows."""
    with parquet_errors(file.name):
        metadata = parquet.metadata
        sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        rows = metadata.num_rows
    if min(sizes, default=0) < 0 or sum(sizes) != rows:
        raise damaged(file.name, "the row counts of its footer disagree")
    return sizes


def decode_row_group(parquet: pq.ParquetFile, file: InputFile, number: int, columns: Sequence[str]) -> pa.Table:
    with parquet_errors(file.name):
        table = parquet.read_row_group(number, columns=list(columns), use_threads=False)
        table.validate(full=True)  # text that is no UTF-8, indices outside of their dictionary
        rows = parquet.metadata.row_group(number).num_rows
    _check_rows(file, table.num_rows, rows)
    return table


def _check_rows(file: InputFile, decoded: int, declared: int) -> None:
    if decoded != declared:
        raise damaged(file.name, f"{decoded} rows, where its footer says {declared}")


def stream_batches(
    parquet: pq.ParquetFile, file: InputFile, batch_rows: int, columns: Sequence[str], numbers: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The batches of these row groups, page by page."""
    decoded = 0
    with parquet_errors(file.name):
        batches = parquet.iter_batches(batch_size=batch_rows, row_groups=list(numbers), columns=list(columns))
    while True:
        with parquet_errors(file.name):
            batch = next(batches, None)
            if batch is not None:
                batch.validate(full=True)
        if batch is None:
            break
        decoded += batch.num_rows
        yield batch
    _check_rows(file, decoded, sum(parquet.metadata.row_group(number).num_rows for number in numbers))


def decode_batches(
    file: InputFile, columns: Sequence[str], batch_rows: int, *, verify: bool
) -> Generator[pa.RecordBatch, None, None]:
    """The file's batches in order: row groups decoded ahead on threads, large ones page by page.

    (Arrow's dataset scanner reads ahead too, but up to a gigabyte: memory would grow with the file.)
    """
    decoders = threading.local()
    with contextlib.ExitStack() as opened, _thread_pool() as pool:

        def decode(number: int) -> list[pa.RecordBatch]:
            if not hasattr(decoders, "parquet"):  # a ParquetFile is not for two threads at once
                decoders.parquet = opened.enter_context(open_parquet(file, verify=verify))
            table = decode_row_group(decoders.parquet, file, number, columns)
            batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=batch_rows)
            return batches

        parquet = opened.enter_context(open_parquet(file, verify=verify))
        waiting: deque[Future[list[pa.RecordBatch]]] = deque()
        for number in range(len(row_group_sizes(parquet, file))):
            is_large = parquet.metadata.row_group(number).total_byte_size > _LARGE_ROW_GROUP
            if not is_large:
                waiting.append(pool.submit(decode, number))
            while waiting and (is_large or len(waiting) > _THREADS):
                yield from waiting.popleft().result()
            if is_large:
                yield from stream_batches(parquet, file, batch_rows, columns, [number])
        while waiting:
            yield from waiting.popleft().result()


@contextlib.contextmanager
def _thread_pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for decoding; what still waits for one when the reader stops is dropped."""
    pool = ThreadPoolExecutor(_THREADS)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
