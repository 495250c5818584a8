"""Reading logs: one file or many as one log, as a stream of checked batches or whole into memory.

    with open_logs(["logs/"], LogColumns()) as log:
        log.spec                     # actions, context, optional columns
        for batch in log.batches(("action", "cost")): ...
        arrays = log.read()          # numpy, whole

Row groups are decoded a few ahead on threads, so reading and what is done with it overlap, while memory stays
bounded by a handful of them, whatever the size of the log.
"""

import contextlib
import hashlib
import math
import os
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.document import KEY, KIND_LOGS, action_names, expect_kind, whole_number
from s2bl_cli.contract.input_files import DAMAGED, InputFile, damaged, open_inputs, open_parquet
from s2bl_cli.contract.lineage import Source, Step
from s2bl_cli.contract.logs.canonical import canonical_batch, context_from_first, plan_columns
from s2bl_cli.contract.logs.checks import FaultTally, check_batch, fixed_binary_view, without_nulls
from s2bl_cli.contract.logs.columns import MAX_ACTIONS, LogColumns
from s2bl_cli.contract.logs.footer import Footer
from s2bl_cli.contract.logs.schema import COLUMNS, LogSpec
from s2bl_cli.contract.parquet_documents import document_of
from s2bl_cli.errors import ContractError
from s2bl_cli.settings import recorded_changes

BATCH_BYTES = 8 << 20  # of contexts; also the size of the row groups that s2bl writes
_DECODERS = 2
_LARGE_GROUP = 32 << 20  # bytes: a row group beyond is streamed, not held
_ANY_CONTEXT = ContextSpec("uint8", (1,))  # where a spec is needed before the context is known

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LogArrays:
    """A log, or a batch of one, as numpy arrays."""

    context: npt.NDArray[np.generic]  # (rows, *shape), in the file's dtype
    action: Ints  # (rows,)
    propensity: Floats  # (rows,)
    cost: Floats  # (rows,), 0 where missing
    known: Mask  # (rows,), whether the cost is known
    is_test: Mask  # (rows,)
    label: Ints | None
    pi0: Floats | None  # (rows, actions)

    @property
    def rows(self) -> int:
        return len(self.action)

    def take(self, chosen: Mask) -> "LogArrays":
        """The chosen rows; arrays that are absent or were not read stay so."""
        if chosen.all():
            return self
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return LogArrays(**{k: v[chosen] if v is not None and len(v) == len(chosen) else v for k, v in values.items()})


def rows_to_a_batch(context: ContextSpec, more_bytes: int = 0) -> int:
    """So many rows that their contexts, and `more_bytes` a row, fill BATCH_BYTES."""
    return int(np.clip(BATCH_BYTES // (context.byte_width + more_bytes), 256, 1 << 16))


class Stretch(NamedTuple):
    """A row group of a log: where it is, and which rows of the log it has."""

    file: int
    group: int
    first_row: int
    rows: int


class Log:
    """An open log. Made by `open_logs`."""

    def __init__(
        self, files: Sequence[InputFile], names: LogColumns, *, verify: bool = False, title: str | None = None
    ) -> None:
        self._files = files
        self._title = title or files[0].base_name
        self._names = names
        self._verify = verify
        self._parquets = [open_parquet(file) for file in files]
        # Before the columns: those of another kind or of a later version need not be the contract's.
        documents = [_document(parquet, file) for file, parquet in zip(files, self._parquets, strict=True)]
        self._plans = [
            plan_columns(_schema(parquet, file), names, file.name)
            for file, parquet in zip(files, self._parquets, strict=True)
        ]
        self.lineages: list[Step | None] = [None if document is None else document["lineage"] for document in documents]
        self._check_alike()
        self._smallest_action: int | None = None  # known where the actions were counted
        declared = {
            whole_number(document, "actions", file.name, low=1, high=MAX_ACTIONS)
            for file, document in zip(files, documents, strict=True)
            if document is not None
        }
        if len(declared) > 1:
            raise ContractError(
                f"{self.name}: its files have {' and '.join(map(str, sorted(declared)))} actions; they must agree"
            )
        context = self._plans[0].context or self._context_of_first_row()
        actions = names.actions or (declared.pop() if declared else self._count_actions())
        names_of_actions = self._action_names(documents, actions)
        self.spec: LogSpec = replace(self._plans[0].spec(actions, context), action_names=names_of_actions)

    @property
    def name(self) -> str:
        first = self._files[0].name
        return first if len(self._files) == 1 else f"{first} and {len(self._files) - 1} more"

    @property
    def base_name(self) -> str:
        """What the log is called: its folder, or its first file."""
        return self._title

    @property
    def stem(self) -> str:
        """What to name outputs after."""
        return "logs" if self.base_name == "stdin" else self.base_name.removesuffix(".parquet")

    @cached_property
    def rows(self) -> int:
        return sum(_row_count(parquet, file) for parquet, file in zip(self._parquets, self._files, strict=True))

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The log's files as inputs in a lineage. Costs a read of each, for the digest."""
        return tuple(
            Source("logs", file.sha256(), None if step else _recorded_name(file), step)
            for file, step in zip(self._files, self.lineages, strict=True)
        )

    @property
    def sha256(self) -> str:
        """The digest of the file; of several, the digest of their digests."""
        digests = [source.sha256 for source in self.sources]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()

    @property
    def recorded_names(self) -> dict[str, Any]:
        """The column names and forms that differ from the contract's, as a lineage records them."""
        return recorded_changes(self._names)

    @property
    def set_aside(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Columns that bear a name of the contract and are not read as that: neither used nor carried along."""
        return self._plans[0].set_aside

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is allowed and yet probably not as it was meant, for a command to warn of."""
        smallest = self._smallest_action
        if smallest is None or smallest < 1 or self.rows == 0:  # below 0 it is a fault, told on reading
            return ()
        return (
            f"{self.name}: action 0 is never logged, the smallest is {smallest}: actions are counted from 0, so that "
            f"there are {self.spec.actions:,} of them here; number them anew, or say how many there are with --actions",
        )

    def check(self) -> None:
        """Read all of it for its faults alone."""
        for _ in self.batches(extra=True):
            pass

    def batches(self, columns: tuple[str, ...] = COLUMNS, *, extra: bool = False) -> Iterator[pa.RecordBatch]:
        """Canonical, checked batches in row order. All faults are told at the end, after the last batch:
        whoever writes while reading must write atomically. From the first fault on no batch is handed out."""
        tally = FaultTally()
        first_row = 0
        wanted = tuple(name for name in columns if self.spec.has(name))
        # With many actions a row's pi0 is far larger than its context.
        batch_rows = rows_to_a_batch(self.spec.context, 4 * self.spec.actions if "pi0" in wanted else 0)
        for file, parquet, plan in zip(self._files, self._parquets, self._plans, strict=True):
            names = plan.source_columns(wanted, extra=extra)
            rows, file_start = _row_count(parquet, file), first_row
            with contextlib.closing(_decoded_batches(file, names, batch_rows, verify=self._verify)) as decoded:
                for source in decoded:
                    with _damage_told(file):
                        batch = canonical_batch(source, plan, self.spec, wanted, first_row, tally, extra=extra)
                        check_batch(batch, self.spec, first_row, tally)
                    if not tally.faults:
                        yield batch
                    first_row += batch.num_rows
            if first_row != file_start + rows:
                raise damaged(file.name, ValueError(f"{first_row - file_start} rows, where its footer says {rows}"))
        tally.raise_if_any(self.name)

    def read(self, columns: tuple[str, ...] = COLUMNS) -> LogArrays:
        """The whole log in memory, checked. Arrays of columns that were not asked for are empty or None."""
        columns = tuple(name for name in columns if self.spec.has(name))
        if self.rows == 0:
            raise ContractError(f"{self.name}: it has no rows")
        try:
            whole = _empty_arrays(self.spec, self.rows, columns)
        except ValueError as error:  # more than numpy can count
            raise ContractError(f"{self.name}: it says that it has {self.rows} rows, which no memory holds") from error
        at = 0
        for batch in self.batches(columns):
            _copy_into(whole, log_arrays(batch, self.spec), at)
            at += batch.num_rows
        return whole

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """The row groups of all files, in row order."""
        found, first_row = [], 0
        for place, (file, parquet) in enumerate(zip(self._files, self._parquets, strict=True)):
            _row_count(parquet, file)  # the footer agrees with itself
            for group in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(group).num_rows
                found.append(Stretch(place, group, first_row, rows))
                first_row += rows
        return tuple(found)

    def read_stretches(self, stretches: Sequence[Stretch], columns: tuple[str, ...] = COLUMNS) -> LogArrays:
        """These row groups in memory, in the order given, checked."""
        columns = tuple(name for name in columns if self.spec.has(name))
        whole = _empty_arrays(self.spec, sum(stretch.rows for stretch in stretches), columns)
        tally, at = FaultTally(), 0
        for stretch in stretches:
            file, plan = self._files[stretch.file], self._plans[stretch.file]
            with _damage_told(file), open_parquet(file, verify=self._verify) as parquet:
                names = plan.source_columns(columns, extra=False)
                table = parquet.read_row_group(stretch.group, columns=names, use_threads=False)
                first_row = stretch.first_row
                for source in table.to_batches(max_chunksize=rows_to_a_batch(self.spec.context)):
                    batch = canonical_batch(source, plan, self.spec, columns, first_row, tally, extra=False)
                    check_batch(batch, self.spec, first_row, tally)
                    tally.raise_if_any(self.name)
                    _copy_into(whole, log_arrays(batch, self.spec), at)
                    first_row += batch.num_rows
                    at += batch.num_rows
        return whole

    def _check_alike(self) -> None:
        first = self._plans[0]
        for file, plan in zip(self._files, self._plans, strict=True):
            for what, here, there in (
                ("context columns", plan.features, first.features),
                ("contexts", (plan.context, plan.context_dtype), (first.context, first.context_dtype)),
                ("optional columns", plan.optional, first.optional),
                ("further columns", plan.extra, first.extra),
            ):
                if here != there:
                    raise ContractError(
                        f"{file.name}: its {what} differ from those of {self._files[0].name}; "
                        f"files read as one log must be alike"
                    )

    def _action_names(self, documents: Sequence[Mapping[str, Any] | None], actions: int) -> tuple[str, ...]:
        """What the actions stand for, where a file says it."""
        found: set[tuple[str, ...]] = set()
        for file, document in zip(self._files, documents, strict=True):
            named = () if document is None else action_names(document, document["actions"], file.name)
            if named:
                found.add(named)
        if len(found) > 1:
            raise ContractError(f"{self.name}: its files name their actions differently; they must agree")
        (only,) = found or {()}
        return only if len(only) == actions else ()  # --actions may say another number

    def _context_of_first_row(self) -> ContextSpec:
        for file, parquet, plan in zip(self._files, self._parquets, self._plans, strict=True):
            with _damage_told(file):
                for batch in parquet.iter_batches(batch_size=1, columns=[plan.sources["context"]]):
                    return context_from_first(plan, batch.column(0)[0], self._names, file.name)
        raise ContractError(f"{self.name}: it has no rows")

    def _count_actions(self) -> int:
        """What pi0 has, else the largest action + 1, for logs that do not say how many actions there are."""
        smallest, largest = MAX_ACTIONS, -1
        nowhere = FaultTally()  # faults of the values are told when the log is read
        for file, parquet, plan in zip(self._files, self._parquets, self._plans, strict=True):
            with _damage_told(file):
                if "pi0" in plan.sources:
                    for batch in parquet.iter_batches(batch_size=1, columns=[plan.sources["pi0"]]):
                        first = batch.column(0)[0].as_py() or b""
                        held = len(first) // 4 if isinstance(first, bytes) else len(first)
                        return min(max(1, held), MAX_ACTIONS)
                for batch in parquet.iter_batches(batch_size=1 << 16, columns=[plan.sources["action"]]):
                    spec = plan.spec(MAX_ACTIONS, _ANY_CONTEXT)
                    action = canonical_batch(batch, plan, spec, ("action",), 0, nowhere, extra=False).column("action")
                    largest = max(largest, int(np.max(action.fill_null(-1).to_numpy(), initial=-1)))
                    smallest = min(smallest, int(np.min(action.drop_null().to_numpy(), initial=MAX_ACTIONS)))
        if largest >= MAX_ACTIONS:
            raise ContractError(
                f"{self.name}: action must be below {MAX_ACTIONS}, found {largest}; number the actions from 0"
            )
        self._smallest_action = smallest if smallest <= largest else None
        return max(1, largest + 1)


def _folder_name(names: Sequence[str]) -> str | None:
    """The name of the one folder that was given, if one was: files in folders are called alike everywhere."""
    if len(names) != 1 or not os.path.isdir(names[0]):
        return None
    return os.path.basename(os.path.realpath(names[0])) or None


def _recorded_name(file: InputFile) -> str:
    """What a lineage calls a foreign file; one that came through a pipe has no name of its own."""
    return "logs.parquet" if file.base_name == "stdin" else file.base_name


@contextlib.contextmanager
def open_logs(names: Sequence[str], columns: LogColumns | None = None, *, verify: bool = False) -> Iterator[Log]:
    """Open files, globs, folders or `-` as one log; schema and document are checked here, values on reading.

    `verify` also checks the pages' checksums as they are read, and the headers and the footer, which have none: a third
    more time to read the contexts.
    """
    with open_inputs(names, folders=True) as files:
        log = Log(files, columns or LogColumns(), verify=verify, title=_folder_name(names))
        try:
            yield log
        finally:
            for parquet in log._parquets:
                parquet.close()


def log_arrays(batch: pa.RecordBatch, spec: LogSpec) -> LogArrays:
    """A canonical batch as numpy arrays, contexts uncopied. Nulls read as 0 (faults tell of them elsewhere)."""
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
        known=_is_known(batch) if "cost" in names else np.empty(0, bool),
        is_test=_is_test(batch),
        label=plain("label", np.int32) if "label" in names else None,
        pi0=packed("pi0", "float32", (spec.actions,)) if "pi0" in names else None,
    )


def _is_known(batch: pa.RecordBatch) -> Mask:
    cost = batch.column("cost")
    if not cost.null_count:
        return np.ones(batch.num_rows, bool)
    known: Mask = cost.is_valid().to_numpy(zero_copy_only=False)
    return known


def _is_test(batch: pa.RecordBatch) -> Mask:
    """Rows of the test split; without a `split` column every row is for training."""
    if "split" not in batch.schema.names:
        return np.zeros(batch.num_rows, bool)
    column = batch.column("split")
    tests = [i for i, text in enumerate(column.dictionary.to_pylist()) if text == "test"]
    is_test: Mask = np.isin(without_nulls(column.indices, -1), tests)
    return is_test


def _empty_arrays(spec: LogSpec, rows: int, columns: tuple[str, ...]) -> LogArrays:
    def array(name: str, dtype: npt.DTypeLike, *shape: int) -> npt.NDArray[Any]:
        return _from_arrows_pool((rows if name in columns else 0, *shape), np.dtype(dtype))

    return LogArrays(
        context=array("context", spec.context.dtype, *spec.context.shape),
        action=array("action", np.int32),
        propensity=array("propensity", np.float32),
        cost=array("cost", np.float32),
        known=array("cost", bool),
        is_test=np.empty(rows, bool),
        label=array("label", np.int32) if "label" in columns else None,
        pi0=array("pi0", np.float32, spec.actions) if "pi0" in columns else None,
    )


def _from_arrows_pool(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An uninitialised array in memory that Arrow may have used before: fresh pages cost as much as the copy."""
    size = math.prod(shape) * dtype.itemsize
    return np.frombuffer(pa.allocate_buffer(size), dtype=np.uint8).view(dtype).reshape(shape)


def _copy_into(whole: LogArrays, part: LogArrays, at: int) -> None:
    for field in fields(LogArrays):
        source, target = getattr(part, field.name), getattr(whole, field.name)
        if target is not None and len(target):
            target[at : at + len(source)].reshape(-1)[:] = source.reshape(-1)  # flat: one memcpy


def _decoded_batches(
    file: InputFile, columns: list[str], batch_rows: int, *, verify: bool
) -> Generator[pa.RecordBatch, None, None]:
    """The file's batches in order: row groups decoded ahead on threads, those too large to hold page by page.

    (Arrow's dataset scanner reads ahead too, but up to a gigabyte: memory would grow with the file.)
    """
    local = threading.local()

    def decoded(group: int) -> list[pa.RecordBatch]:
        if not hasattr(local, "parquet"):  # a ParquetFile is not for two threads at once
            local.parquet = open_parquet(file, verify=verify)
        table = local.parquet.read_row_group(group, columns=columns, use_threads=False)
        batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=batch_rows)
        return batches

    with (
        _damage_told(file),
        open_parquet(file, verify=verify) as parquet,
        open(file.path, "rb") as handle,
        _decoders() as pool,
    ):
        ahead: deque[Future[list[pa.RecordBatch]]] = deque()
        # Of others' files no more is asked than Arrow asks: not all tools list every encoding in the footer.
        is_own = KEY.encode() in (parquet.metadata.metadata or {})
        footer = Footer(handle) if verify and is_own else None
        for group in range(parquet.num_row_groups):
            if footer is not None:
                footer.check_pages(handle, group, columns)
            is_large = parquet.metadata.row_group(group).total_byte_size > _LARGE_GROUP
            if not is_large:
                ahead.append(pool.submit(decoded, group))
            while ahead and (is_large or len(ahead) > _DECODERS):
                yield from ahead.popleft().result()
            if is_large:
                yield from parquet.iter_batches(batch_size=batch_rows, row_groups=[group], columns=columns)
        while ahead:
            yield from ahead.popleft().result()


@contextlib.contextmanager
def _decoders() -> Iterator[ThreadPoolExecutor]:
    """Threads for decoding; what is still waiting for one when the reader stops is dropped."""
    pool = ThreadPoolExecutor(_DECODERS)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _row_count(parquet: pq.ParquetFile, file: InputFile) -> int:
    """As the footer has it, where it agrees with itself: arrays are made for so many rows."""
    with _damage_told(file):
        groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
        if min(groups, default=0) < 0 or sum(groups) != parquet.metadata.num_rows:
            raise ValueError("the row counts of its footer disagree")
        return sum(groups)


def _schema(parquet: pq.ParquetFile, file: InputFile) -> pa.Schema:
    with _damage_told(file):
        return parquet.schema_arrow


def _document(parquet: pq.ParquetFile, file: InputFile) -> dict[str, Any] | None:
    """The s2bl document of a log, or None for a log that another tool made."""
    document = document_of(parquet, file)
    if document is not None:
        expect_kind(document, KIND_LOGS, file.name)
    return document


@contextlib.contextmanager
def _damage_told(file: InputFile) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        raise damaged(file.name, error) from error
