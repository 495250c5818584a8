"""A log, or a batch of one, as numpy arrays."""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from s2bl_cli.contract.logs.schema import SPLITS, LogSpec

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LogArrays:
    """A log, or a batch of one, as numpy arrays."""

    context: npt.NDArray[np.generic]  # (rows, *shape), in the file's dtype
    action: Ints  # (rows,)
    propensity: Floats  # (rows,)
    cost: Floats  # (rows,), 0 if missing
    known: Mask  # (rows,), whether the cost is known
    is_test: Mask  # (rows,)
    label: Ints | None
    pi0: Floats | None  # (rows, actions)
    cluster: npt.NDArray[np.int64] | None = None  # (rows,)

    @property
    def rows(self) -> int:
        return len(self.action)

    def take(self, chosen: Mask) -> "LogArrays":
        """The chosen rows. Arrays that are None or were not read stay unchanged."""
        if chosen.all():
            return self
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return LogArrays(**{k: v[chosen] if v is not None and len(v) == len(chosen) else v for k, v in values.items()})


def log_arrays(batch: pa.RecordBatch, spec: LogSpec) -> LogArrays:
    """A canonical batch as numpy arrays; contexts are not copied. Nulls, which are reported as faults, become 0."""
    names = set(batch.schema.names)

    def plain(name: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        if name not in names:
            return np.empty(0, dtype)
        return without_nulls(batch.column(name), 0)

    def packed(name: str, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        if name not in names or batch.column(name).null_count:
            return np.zeros((batch.num_rows if name in names else 0, *shape), dtype)
        return fixed_binary_view(batch.column(name), np.dtype(dtype)).reshape(batch.num_rows, *shape)

    return LogArrays(
        context=packed("context", spec.context.dtype, spec.context.shape),
        action=plain("action", np.int32),
        propensity=plain("propensity", np.float32),
        cost=plain("cost", np.float32),
        known=is_known_row(batch) if "cost" in names else np.empty(0, bool),
        is_test=is_test_row(batch),
        label=plain("label", np.int32) if "label" in names else None,
        pi0=packed("pi0", "float32", (spec.actions,)) if "pi0" in names else None,
        cluster=plain("cluster", np.int64) if "cluster" in names else None,
    )


def is_known_row(batch: pa.RecordBatch) -> Mask:
    cost = batch.column("cost")
    if not cost.null_count:
        return np.ones(batch.num_rows, bool)
    return valid_rows(cost)


def is_test_row(batch: pa.RecordBatch) -> Mask:
    """Which rows are in the test split; without a `split` column, none."""
    if "split" not in batch.schema.names:
        return np.zeros(batch.num_rows, bool)
    column = batch.column("split")
    tests = [i for i, text in enumerate(column.dictionary.to_pylist()) if text == "test"]
    is_test: Mask = np.isin(without_nulls(column.indices, -1), tests)
    return is_test


def split_column(is_test: Mask) -> pa.DictionaryArray:
    """The column `split` of these rows."""
    return pa.DictionaryArray.from_arrays(pa.array(is_test.astype(np.int8)), pa.array(SPLITS, pa.string()))


def empty_arrays(spec: LogSpec, rows: int, columns: tuple[str, ...]) -> LogArrays:
    """Uninitialised arrays for this number of rows of these columns."""

    def array(name: str, dtype: npt.DTypeLike, *shape: int) -> npt.NDArray[Any]:
        return _from_arrow_pool((rows if name in columns else 0, *shape), np.dtype(dtype))

    return LogArrays(
        context=array("context", spec.context.dtype, *spec.context.shape),
        action=array("action", np.int32),
        propensity=array("propensity", np.float32),
        cost=array("cost", np.float32),
        known=array("cost", bool),
        is_test=np.empty(rows, bool),
        label=array("label", np.int32) if "label" in columns else None,
        pi0=array("pi0", np.float32, spec.actions) if "pi0" in columns else None,
        cluster=array("cluster", np.int64) if "cluster" in columns else None,
    )


def _from_arrow_pool(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An uninitialised array from Arrow's memory pool: touching fresh pages would take as long as the copy."""
    size = math.prod(shape) * dtype.itemsize
    return np.frombuffer(pa.allocate_buffer(size), dtype=np.uint8).view(dtype).reshape(shape)


def copy_rows(source: LogArrays, target: LogArrays, first_row: int) -> None:
    """Copy all rows of the source into the target, starting at its row `first_row`."""
    for field in fields(LogArrays):
        values, destination = getattr(source, field.name), getattr(target, field.name)
        if destination is not None and len(destination):
            destination[first_row : first_row + len(values)].reshape(-1)[:] = values.reshape(
                -1
            )  # flattened, so that it is one memcpy


def valid_rows(column: pa.Array) -> Mask:
    """Which values are not null."""
    valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def without_nulls(column: pa.Array, replacement: int) -> npt.NDArray[Any]:
    """A column of numbers as numpy. Without nulls nothing is copied."""
    values: npt.NDArray[Any] = (column.fill_null(replacement) if column.null_count else column).to_numpy()
    return values


def fixed_binary_view(column: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A fixed-size binary column as a (rows, values) array, without a copy. Null rows have arbitrary values."""
    width = column.type.byte_width
    data = column.buffers()[1]
    flat = np.frombuffer(data, dtype=np.uint8, count=len(column) * width, offset=column.offset * width)
    return flat.view(dtype).reshape(len(column), width // dtype.itemsize)
