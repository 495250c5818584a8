"""From Parquet bytes to Arrow batches: threads decode a few row groups ahead, in bounded memory.

The batches are valid Arrow data with as many rows as the file declares. Anything else is reported as damage.
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
_LARGE_ROW_GROUP = 32 << 20  # bytes; larger row groups are streamed, not decoded at once


class RowGroup(NamedTuple):
    """A row group of a log: its position, and the rows of the log in it."""

    file: int  # number of the file in the log
    number: int  # within the file
    first_row: int
    rows: int


def row_group_sizes(parquet: pq.ParquetFile, file: InputFile) -> list[int]:
    """The number of rows per row group. The footer must be consistent, because arrays of this size are allocated."""
    with parquet_errors(file.name):
        metadata = parquet.metadata
        sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        rows = metadata.num_rows
    if min(sizes, default=0) < 0 or sum(sizes) != rows:
        raise damaged(file.name, "the row counts in its footer are inconsistent")
    return sizes


def decode_row_group(parquet: pq.ParquetFile, file: InputFile, number: int, columns: Sequence[str]) -> pa.Table:
    with parquet_errors(file.name):
        table = parquet.read_row_group(number, columns=list(columns), use_threads=False)
        table.validate(full=True)  # rejects text that is not UTF-8 and indices outside of their dictionary
        rows = parquet.metadata.row_group(number).num_rows
    _check_rows(file, table.num_rows, rows)
    return table


def _check_rows(file: InputFile, decoded: int, declared: int) -> None:
    if decoded != declared:
        raise damaged(file.name, f"it has {decoded} rows, but its footer declares {declared}")


def stream_batches(
    parquet: pq.ParquetFile, file: InputFile, batch_rows: int, columns: Sequence[str], numbers: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The batches of these row groups, decoded page by page."""
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
    """The file's batches in order. Threads decode row groups ahead; large ones are decoded page by page.

    Arrow's dataset scanner also reads ahead, but up to a gigabyte, so memory would grow with the file.
    """
    decoders = threading.local()
    with contextlib.ExitStack() as opened, _thread_pool() as pool:

        def decode(number: int) -> list[pa.RecordBatch]:
            if not hasattr(decoders, "parquet"):  # one per thread: a ParquetFile is not thread-safe
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
    """Threads for decoding. If the reader stops early, queued row groups are dropped."""
    pool = ThreadPoolExecutor(_THREADS)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
