"""Action probabilities of another tool: a Parquet file with one row per decision, in the order of the log's rows.

    a column of lists, fixed-size lists or float32 binary, one value per action; or a column per action: p0, p1, …

The file is read in batches, because it is large if there are many actions.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from s2bl_cli.contract.input_files import InputFile, open_input
from s2bl_cli.contract.lineage import Source
from s2bl_cli.contract.logs.arrays import fixed_binary_view
from s2bl_cli.contract.logs.decoding import row_group_sizes, stream_batches
from s2bl_cli.contract.parquet_files import PARQUET_MAGIC, damaged, document_of, open_parquet
from s2bl_cli.errors import ContractError, one_line

SUM_TOLERANCE = 1e-3  # error of float32 sums over thousands of actions; unnormalised scores deviate far more

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ProbabilityFile:
    """A file whose schema is checked, but not its values yet. `columns` is one list column, or p0, p1, …"""

    file: InputFile
    columns: tuple[str, ...]
    rows: int
    source: Source

    @property
    def name(self) -> str:
        return self.file.base_name

    @property
    def is_wide(self) -> bool:
        return len(self.columns) > 1 or self.columns == ("p0",)

    def batches(self, actions: int, batch_rows: int) -> Iterator[Floats]:
        """Checked values in row order: arrays of (rows, actions)."""
        first_row = 0
        with open_parquet(self.file) as parquet:
            row_groups = range(parquet.num_row_groups)
            for batch in stream_batches(parquet, self.file, batch_rows, self.columns, row_groups):
                values = self._values(batch, actions, first_row)
                self._check(values, first_row)
                first_row += batch.num_rows
                yield values

    def _values(self, batch: pa.RecordBatch, actions: int, first_row: int) -> Floats:
        if self.is_wide:
            self._check_actions(len(self.columns), actions)
            return np.stack([_floats(batch.column(name)) for name in self.columns], axis=1)
        column = batch.column(self.columns[0])
        if column.null_count:
            null_row = first_row + int(np.argmax(column.is_null()))
            raise ContractError(f"{self.name}: probabilities must not be null, found null in row {null_row}")
        if pa.types.is_fixed_size_binary(column.type):
            self._check_actions(column.type.byte_width / 4, actions)
            return fixed_binary_view(column, np.dtype(np.float32))
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        for length in lengths[lengths != actions][:1]:
            self._check_actions(length, actions)
        return _floats(pc.list_flatten(column)).reshape(len(column), actions)

    def _check_actions(self, number: float, actions: int) -> None:
        if number != actions:
            raise ContractError(f"{self.name}: its number of actions is {number:g}, the log's is {actions}")

    def _check(self, values: Floats, first_row: int) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            sums = values.sum(axis=1)
            bad = ~((np.abs(sums - 1) <= SUM_TOLERANCE) & (values >= 0).all(axis=1))
        if bad.any():
            i = int(bad.argmax())
            raise ContractError(
                f"{self.name}: each row must contain probabilities that sum to 1: {int(bad.sum()):,} of {len(bad):,} "
                f"rows do not, the first is row {first_row + i} with a sum of {sums[i]:g}; normalise them"
            )


class ProbabilityReader:
    """Reads the chosen rows of a file in order, any number at a time."""

    def __init__(self, file: ProbabilityFile, chosen: Mask, actions: int, batch_rows: int) -> None:
        self._file = file
        self._chosen = chosen  # (rows of the file,)
        self._pieces = file.batches(actions, batch_rows)
        self._start = 0  # of the next piece, in the file
        self._waiting: Floats = np.empty((0, actions), np.float32)

    def read(self, count: int) -> Floats:
        while len(self._waiting) < count:
            piece = next(self._pieces, None)
            if piece is None:
                fault = ValueError(f"{self._start} rows, where its footer says {self._file.rows}")
                raise damaged(self._file.name, fault)
            stop = self._start + len(piece)
            self._waiting = np.concatenate([self._waiting, piece[self._chosen[self._start : stop]]])
            self._start = stop
        read, self._waiting = self._waiting[:count], self._waiting[count:]
        return read


def _floats(column: pa.Array) -> Floats:
    values: Floats = column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    return values


def is_probability_file(name: str) -> bool:
    """Whether a policy argument is a Parquet file. False for a pipe, which can be read only once."""
    if not os.path.isfile(name):
        return False
    with open_input(name) as file:
        return file.start(len(PARQUET_MAGIC)) == PARQUET_MAGIC


@contextlib.contextmanager
def open_probabilities(name: str) -> Iterator[ProbabilityFile]:
    """Check the schema and count the rows. Values are checked when they are read."""
    with open_input(name) as file:
        with open_parquet(file) as parquet:
            _reject_s2bl_files(parquet, file)
            columns, rows = _columns(parquet.schema_arrow, file), sum(row_group_sizes(parquet, file))
        yield ProbabilityFile(file, columns, rows, Source("policy", file.sha256(), file.base_name))


def _reject_s2bl_files(parquet: pq.ParquetFile, file: InputFile) -> None:
    document = document_of(parquet, file)
    if document is not None:
        raise ContractError(
            f"{file.name} is a {document['kind']} file, but a policy is needed here: a file from s2bl train, logging, "
            f"uniform, or a Parquet file of action probabilities"
        )


def _columns(schema: pa.Schema, file: InputFile) -> tuple[str, ...]:
    numbered: list[str] = []
    while f"p{len(numbered)}" in schema.names:
        numbered.append(f"p{len(numbered)}")
    if numbered and all(_is_number(schema.field(name).type) for name in numbered):
        return tuple(numbered)
    lists = [field.name for field in schema if _is_list(field.type)]
    if len(lists) == 1:
        return (lists[0],)
    columns = f"{len(lists)} columns of lists" if lists else one_line(", ".join(schema.names) or "none", 80)
    raise ContractError(
        f"{file.name}: a Parquet file of action probabilities must have one column of lists (or float32 binary) with "
        f"one value per action, or columns p0, p1, …; found {columns}"
    )


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_list(kind: Any) -> bool:
    if pa.types.is_fixed_size_binary(kind):
        return True
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and _is_number(kind.value_type)
