"""Reading logs: one or more files as one log, as a stream of checked batches or whole into memory.

    with open_logs(["logs/"], LogColumns()) as log:
        log.spec                     # actions, context, optional columns
        for batch in log.batches(("action", "cost")): ...
        arrays = log.read()          # the whole log as numpy arrays

Streaming needs memory for a few row groups, however large the log is.
"""

import contextlib
import copy
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.document import KIND_LOGS, action_names, expect_kind, whole_number
from s2bl_cli.contract.input_files import InputFile, open_inputs
from s2bl_cli.contract.lineage import Source, Step
from s2bl_cli.contract.logs.arrays import LogArrays, Mask, copy_rows, empty_arrays, log_arrays, split_column
from s2bl_cli.contract.logs.canonical import canonical_batch
from s2bl_cli.contract.logs.checks import FaultTally, check_batch
from s2bl_cli.contract.logs.columns import MAX_ACTIONS, LogColumns, SplitSettings, missing_column
from s2bl_cli.contract.logs.decoding import (
    RowGroup,
    decode_batches,
    decode_row_group,
    row_group_sizes,
    stream_batches,
)
from s2bl_cli.contract.logs.foreign.contexts import context_of_first_row
from s2bl_cli.contract.logs.foreign.matching import ColumnPlan, plan_columns
from s2bl_cli.contract.logs.schema import COLUMNS, OPTIONAL, SPLIT_TYPE, LogSpec
from s2bl_cli.contract.parquet_files import document_of, open_parquet
from s2bl_cli.errors import ContractError, one_line
from s2bl_cli.settings import recorded_changes

BATCH_BYTES = 8 << 20  # of contexts per batch; also the size of the row groups that s2bl writes
_ANY_CONTEXT = ContextSpec("uint8", (1,))  # for a spec that is needed before the context is known


def rows_per_batch(context: ContextSpec, more_bytes: int = 0) -> int:
    """The number of rows whose contexts, plus `more_bytes` per row, fill BATCH_BYTES."""
    return int(np.clip(BATCH_BYTES // (context.byte_width + more_bytes), 256, 1 << 16))


@dataclass(frozen=True)
class _LogFile:
    """One file of a log, with its metadata."""

    file: InputFile
    document: dict[str, Any] | None  # None for a file that another tool made
    plan: ColumnPlan
    row_groups: list[int]  # number of rows of each

    @property
    def lineage(self) -> Step | None:
        return None if self.document is None else self.document["lineage"]

    @property
    def source(self) -> Source:
        """The file as an input in a lineage. Reads the whole file to compute its digest."""
        return Source("logs", self.file.sha256(), None if self.lineage else _recorded_name(self.file), self.lineage)

    def stream(self, column: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """One column of the contract, unchecked."""
        with open_parquet(self.file) as parquet:
            row_groups = range(len(self.row_groups))
            yield from stream_batches(parquet, self.file, batch_rows, [self.plan.sources[column]], row_groups)


class Log:
    """A log of files that are open already. `open_logs` opens one by name."""

    def __init__(self, files: Sequence[InputFile], names: LogColumns | None = None, *, verify: bool = False) -> None:
        self._names = names or LogColumns()
        self._verify = verify
        self.split: SplitSettings | None = None  # how the test rows were chosen, if not by a column
        self.split_clusters: str | None = None  # the --cluster-column by which they were, if it was given
        self._is_test: Mask | None = None  # (rows,) of a log that is split
        self._files = [_open_log_file(file, self._names) for file in files]
        self._check_files_agree()
        self._smallest_action: int | None = None  # known if the actions were counted
        declared = self._declared_actions()
        context = self._files[0].plan.context or self._context_of_first_row()
        actions = self._names.actions or declared or self._count_actions()
        spec = self._files[0].plan.spec(actions, context)
        self.spec: LogSpec = replace(spec, action_names=self._action_names(actions))

    @property
    def name(self) -> str:
        """The log's name in messages: its folder, or its first file and the number of other files."""
        titles = list(dict.fromkeys(one_line(part.file.folder or part.file.name) for part in self._files))
        return titles[0] if len(titles) == 1 else f"{titles[0]} and {len(titles) - 1} more"

    @property
    def base_name(self) -> str:
        """The log's name in scores: the base name of its folder, or of its first file."""
        return _base_name(self._files[0].file)

    @property
    def stem(self) -> str:
        """The start of default output names."""
        return "logs" if self.base_name == "stdin" else self.base_name.removesuffix(".parquet")

    @property
    def lineages(self) -> list[Step | None]:
        return [part.lineage for part in self._files]

    @cached_property
    def rows(self) -> int:
        return sum(sum(part.row_groups) for part in self._files)

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The log's files as inputs in a lineage. Reads each whole file to compute its digest."""
        return tuple(part.source for part in self._files)

    @property
    def sha256(self) -> str:
        """The digest of the file; for several files, the digest of their digests."""
        digests = [source.sha256 for source in self.sources]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()

    @property
    def recorded_names(self) -> dict[str, Any]:
        """The settings of columns and split that differ from their defaults, as a lineage records them."""
        split = {} if self.split is None else recorded_changes(self.split)
        return {**recorded_changes(self._names), **split}

    @property
    def ignored_columns(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Columns with a name of the contract that are neither used nor passed through."""
        return self._files[0].plan.ignored

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about properties that are allowed but probably not intended."""
        smallest = self._smallest_action
        if smallest is None or smallest < 1 or self.rows == 0:  # an action below 0 is a fault, reported on reading
            return ()
        return (
            f"{self.name}: action 0 is never logged, the smallest is {smallest}: actions are counted from 0, so this "
            f"log has {self.spec.actions:,} actions; renumber them, or pass their number with --actions",
        )

    def reopened(self, names: LogColumns) -> "Log":
        """The same files, with other columns."""
        log = Log([part.file for part in self._files], names, verify=self._verify)
        log.sources = self.sources
        return log

    @property
    def test_rows(self) -> Mask:
        """Of a log that is split: (rows,)."""
        assert self._is_test is not None
        return self._is_test

    @property
    def cluster_column(self) -> str | None:
        """The --cluster-column, if it was given."""
        return self._names.cluster_column

    def with_test_rows(self, is_test: Mask, split: SplitSettings, split_clusters: str | None) -> "Log":
        """The log as if it had a column `split` with these test rows."""
        log = copy.copy(self)
        log._is_test, log.split, log.split_clusters = is_test, split, split_clusters
        optional = tuple(name for name in OPTIONAL if name == "split" or self.spec.has(name))
        log.spec = replace(self.spec, optional=optional)
        return log

    def check(self) -> None:
        """Read the whole log to check it."""
        for _ in self.batches(extra=True):
            pass

    def batches(self, columns: tuple[str, ...] = COLUMNS, *, extra: bool = False) -> Iterator[pa.RecordBatch]:
        """Canonical, checked batches in row order. All faults are reported at the end, after the last batch, so a
        caller that writes while reading must write atomically. No batch is yielded after the first fault."""
        tally = FaultTally()
        first_row = 0
        columns = self._present(columns)
        # If there are many actions, a row's pi0 is far larger than its context.
        batch_rows = rows_per_batch(self.spec.context, 4 * self.spec.actions if "pi0" in columns else 0)
        for part in self._files:
            sources = part.plan.source_columns(columns, extra=extra)
            with contextlib.closing(decode_batches(part.file, sources, batch_rows, verify=self._verify)) as decoded:
                for source in decoded:
                    batch = self._checked_batch(source, part.plan, columns, first_row, tally, extra=extra)
                    if not tally.faults:
                        yield batch
                    first_row += batch.num_rows
        tally.raise_if_any(self.name)

    def read(self, columns: tuple[str, ...] = COLUMNS) -> LogArrays:
        """The whole log in memory, checked. Arrays of columns that were not requested are empty or None."""
        columns = self._present(columns)
        if self.rows == 0:
            raise ContractError(f"{self.name}: it has no rows")
        try:
            arrays = empty_arrays(self.spec, self.rows, columns)
        except (ValueError, OverflowError) as error:  # more rows than numpy can index
            raise ContractError(
                f"{self.name}: its footer declares {self.rows} rows, which do not fit in memory"
            ) from error
        first_row = 0
        for batch in self.batches(columns):
            copy_rows(log_arrays(batch, self.spec), arrays, first_row)
            first_row += batch.num_rows
        return arrays

    def read_column(self, name: str, option: str) -> pa.ChunkedArray:
        """A column that is none of the contract's, as it is in the files. `option` names it."""
        parts: list[pa.Array] = []
        for part in self._files:
            with open_parquet(part.file) as parquet:
                existing = parquet.schema_arrow.names
                if name not in existing:
                    raise ContractError(f"{part.file.name}: {missing_column(name, 'time', option, existing)}")
                batches = stream_batches(parquet, part.file, 1 << 16, [name], range(len(part.row_groups)))
                parts += [batch.column(0) for batch in batches]
        return pa.chunked_array(parts)

    @cached_property
    def row_groups(self) -> tuple[RowGroup, ...]:
        """The row groups of all files, in row order."""
        row_groups, first_row = [], 0
        for number, part in enumerate(self._files):
            for group, rows in enumerate(part.row_groups):
                row_groups.append(RowGroup(number, group, first_row, rows))
                first_row += rows
        return tuple(row_groups)

    def read_row_groups(self, row_groups: Sequence[RowGroup], columns: tuple[str, ...] = COLUMNS) -> LogArrays:
        """These row groups in memory, in the given order, checked."""
        columns = self._present(columns)
        arrays = empty_arrays(self.spec, sum(group.rows for group in row_groups), columns)
        tally, at = FaultTally(), 0
        for group in row_groups:
            part = self._files[group.file]
            sources = part.plan.source_columns(columns, extra=False)
            with open_parquet(part.file, verify=self._verify) as parquet:
                table = decode_row_group(parquet, part.file, group.number, sources)
            first_row = group.first_row
            for source in table.to_batches(max_chunksize=rows_per_batch(self.spec.context)):
                batch = self._checked_batch(source, part.plan, columns, first_row, tally, extra=False)
                tally.raise_if_any(self.name)
                copy_rows(log_arrays(batch, self.spec), arrays, at)
                first_row += batch.num_rows
                at += batch.num_rows
        return arrays

    def _present(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in columns if self.spec.has(name))

    def _checked_batch(
        self,
        source: pa.RecordBatch,
        plan: ColumnPlan,
        columns: tuple[str, ...],
        first_row: int,
        tally: FaultTally,
        *,
        extra: bool,
    ) -> pa.RecordBatch:
        in_file = tuple(name for name in columns if self._is_test is None or name != "split")
        batch = canonical_batch(source, plan, self.spec, in_file, first_row, tally, extra=extra)
        check_batch(batch, self.spec, first_row, tally, is_reward=plan.is_reward)
        if self._is_test is not None and "split" in columns:
            is_test = self._is_test[first_row : first_row + batch.num_rows]
            batch = batch.append_column(pa.field("split", SPLIT_TYPE), split_column(is_test))
        return batch

    def _check_files_agree(self) -> None:
        first = self._files[0].plan
        for part in self._files:
            plan = part.plan
            for property_name, ours, theirs in (
                ("context columns", plan.features, first.features),
                ("contexts", (plan.context, plan.context_dtype), (first.context, first.context_dtype)),
                ("optional columns", plan.optional, first.optional),
                ("other columns", plan.extra, first.extra),
            ):
                if ours != theirs:
                    raise ContractError(
                        f"{part.file.name}: its {property_name} differ from those of {self._files[0].file.name}; "
                        f"all files of a log must have the same columns"
                    )

    def _declared_actions(self) -> int | None:
        """The number of actions that the documents declare; None if all files are from other tools."""
        declared = {
            whole_number(part.document, "actions", part.file.name, low=1, high=MAX_ACTIONS)
            for part in self._files
            if part.document is not None
        }
        if len(declared) > 1:
            raise ContractError(
                f"{self.name}: its files have {' and '.join(map(str, sorted(declared)))} actions; they must agree"
            )
        return declared.pop() if declared else None

    def _action_names(self, actions: int) -> tuple[str, ...]:
        """The names of the actions; empty if no file has them."""
        all_names: set[tuple[str, ...]] = set()
        for part in self._files:
            if part.document is not None:
                names = action_names(part.document, part.document["actions"], part.file.name)
                all_names |= {names} if names else set()
        if len(all_names) > 1:
            raise ContractError(f"{self.name}: its files name their actions differently; they must agree")
        names = all_names.pop() if all_names else ()
        return names if len(names) == actions else ()  # --actions may be another number

    def _context_of_first_row(self) -> ContextSpec:
        for part in self._files:
            for batch in part.stream("context", batch_rows=1):
                shape = self._names.parsed_shape()
                return context_of_first_row(batch.column(0)[0], part.plan.context_dtype, shape, part.file.name)
        raise ContractError(f"{self.name}: it has no rows")

    def _count_actions(self) -> int:
        """The number of actions of a log that does not declare it: that of pi0, else the largest action + 1."""
        smallest, largest = MAX_ACTIONS, -1
        ignored = FaultTally()  # faults of the values are reported when the log is read
        for part in self._files:
            if "pi0" in part.plan.sources:
                for batch in part.stream("pi0", batch_rows=1):
                    return _actions_of_pi0(batch.column(0)[0])
            spec = part.plan.spec(MAX_ACTIONS, _ANY_CONTEXT)
            for source in part.stream("action", batch_rows=1 << 16):
                batch = canonical_batch(source, part.plan, spec, ("action",), 0, ignored, extra=False)
                action = batch.column("action").drop_null().to_numpy()
                largest = max(largest, int(np.max(action, initial=-1)))
                smallest = min(smallest, int(np.min(action, initial=MAX_ACTIONS)))
        if largest >= MAX_ACTIONS:
            raise ContractError(
                f"{self.name}: action must be below {MAX_ACTIONS}, found {largest}; number the actions from 0"
            )
        self._smallest_action = smallest if smallest <= largest else None
        return max(1, largest + 1)


def _open_log_file(file: InputFile, names: LogColumns) -> _LogFile:
    with open_parquet(file) as parquet:
        # Before the columns, which differ in files of another kind or of a later version.
        document = document_of(parquet, file)
        if document is not None:
            expect_kind(document, KIND_LOGS, file.name)
        plan = plan_columns(parquet.schema_arrow, names, file.name, is_own=document is not None)
        return _LogFile(file, document, plan, row_group_sizes(parquet, file))


def _actions_of_pi0(first: pa.Scalar) -> int:
    value = first.as_py() or b""
    actions = len(value) // 4 if isinstance(value, bytes) else len(value)
    return min(max(1, actions), MAX_ACTIONS)


def _base_name(file: InputFile) -> str:
    if file.folder is None:
        return file.base_name
    return one_line(os.path.basename(os.path.realpath(file.folder)), 255) or file.base_name


def _recorded_name(file: InputFile) -> str:
    """The name of another tool's file in a lineage: that of its folder or of the file; a pipe has no name."""
    return "logs.parquet" if file.base_name == "stdin" else _base_name(file)


@contextlib.contextmanager
def open_logs(names: Sequence[str], columns: LogColumns | None = None, *, verify: bool = False) -> Iterator[Log]:
    """Open files, globs, folders or `-` as one log. Schema and document are checked here, values on reading.

    `verify` also checks the page checksums on reading, which takes a third more time for the contexts.
    """
    with open_inputs(names, folders=True) as files:
        yield Log([file for file in files if file.folder is None or _may_be_log(file)] or files, columns, verify=verify)


def _may_be_log(file: InputFile) -> bool:
    """Whether a file of a folder is not one of another kind that s2bl has written beside the logs, such as scores."""
    with open_parquet(file) as parquet:
        document = document_of(parquet, file)
    return document is None or document["kind"] == KIND_LOGS


@contextlib.contextmanager
def all_faults_reported(log: Log) -> Iterator[None]:
    """Report the faults of all columns, although a pass reads only some of them."""
    try:
        yield
    except ContractError:
        log.check()
        raise
