"""The user's own labelled table: a CSV or Parquet file with one row per example and a label column.

The table is streamed, so memory does not grow with it. A first pass learns the encoding and the classes, and later
passes encode batches. A CSV is first converted to a temporary Parquet file, also streamed.
"""

import contextlib
import fnmatch
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow.parquet as pq

from s2bl_cli.console import counted
from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.logs.columns import missing_column
from s2bl_cli.contract.logs.decoding import stream_batches
from s2bl_cli.contract.logs.schema import SPLITS
from s2bl_cli.contract.parquet_files import open_parquet
from s2bl_cli.datasets.labelled import LabelledBatch, LabelledPart
from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.datasets.table_encoding import TableEncoder
from s2bl_cli.errors import ContractError, InputFileError, one_line

_SPLIT_SEED = 20_130  # fixed, so that the test split does not depend on --seed
_MOST_CLASSES = 100_000
_LONGEST_NAMES = 1 << 20  # characters of all action names together, which the log's document stores
_FIT_ROWS = 200_000
_READ_ROWS = 1 << 15
_TYPED_ROWS = 10_000  # rows of a CSV from which the column types are inferred
_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"]


@dataclass(frozen=True)
class TableColumns:
    """The roles of the columns. All other columns of a supported type are features."""

    label: str
    split: str | None  # None: the test split is random
    test_share: float
    dropped: tuple[str, ...]  # by --drop-columns
    outcomes: tuple[str, ...]  # columns that the cost is computed from

    @property
    def non_features(self) -> set[str]:
        return {self.label, *self.dropped, *self.outcomes, *([self.split] if self.split is not None else [])}


@dataclass
class TableData:
    """A labelled table, streamed from Parquet."""

    name: str
    source: InputFile
    columns: TableColumns
    labels: list[Any]  # distinct label values; a row's class is the index of its label
    encoder: TableEncoder
    train_rows: int
    test_rows: int
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    action_names: tuple[str, ...]
    temporary: Any = field(default=None, repr=False)  # keeps the Parquet file of a converted CSV from being deleted

    @property
    def classes(self) -> int:
        return len(self.labels)

    @property
    def context(self) -> ContextSpec:
        return ContextSpec("float32", (self.encoder.width,))

    @property
    def rows(self) -> int:
        return self.train_rows + self.test_rows

    def batches(self, split: str, rows: int) -> Iterator[LabelledBatch]:
        for frame, is_test in _frames(self.source, self.columns):
            chosen = frame.filter(pl.Series(is_test if split == "test" else ~is_test))
            for part in chosen.iter_slices(rows):
                yield LabelledBatch(self.encoder.encode(part), self._classes_of(part), part)

    def to_fit(self) -> LabelledPart:
        """Return all train rows, or about 200,000 random ones if there are more."""
        rng = np.random.default_rng(_SPLIT_SEED)
        share = min(1.0, _FIT_ROWS / max(1, self.train_rows))
        contexts, labels = [], []
        for batch in self.batches("train", _READ_ROWS):
            is_sampled = rng.random(len(batch.label)) < share
            contexts.append(batch.context[is_sampled])
            labels.append(batch.label[is_sampled])
        return LabelledPart(np.concatenate(contexts), np.concatenate(labels))

    def _classes_of(self, frame: pl.DataFrame) -> npt.NDArray[np.int32]:
        column = frame[self.columns.label]
        index = pl.DataFrame(
            {"label": pl.Series(self.labels, dtype=column.dtype), "class": np.arange(self.classes, dtype=np.int32)}
        )
        joined = pl.DataFrame({"label": column}).join(index, on="label", how="left", maintain_order="left")
        return joined["class"].to_numpy()


def load(settings: DatasetSettings, cost_columns: frozenset[str] = frozenset()) -> TableData:
    """Load the table. `cost_columns` are the columns that the cost of a row is computed from."""
    source, temporary = _as_parquet(settings)
    schema = _schema(source)
    columns = _columns(schema, settings, cost_columns, source.name)
    label = columns.label
    encoder = TableEncoder(schema, columns.non_features, settings.max_levels)
    counts: dict[Any, int] = {}
    train_rows = test_rows = 0
    for frame, is_test in _frames(source, columns):
        counted_labels = frame[label].alias("value").value_counts()  # the column itself may be named "count"
        for value, count in zip(counted_labels["value"].to_list(), counted_labels["count"].to_list(), strict=True):
            counts[value] = counts.get(value, 0) + count
        if len(counts) > _MOST_CLASSES:
            raise ContractError(
                f"{source.name}: column {label!r} must have at most {_MOST_CLASSES:,} distinct values, found more: "
                f"choose another --label-column"
            )
        encoder.learn(frame.filter(pl.Series(~is_test)))
        train_rows += int((~is_test).sum())
        test_rows += int(is_test.sum())
    encoder.settle()
    if not train_rows:
        raise ContractError(
            f"{source.name}: no train row has a value in column {label!r}: check --label-column, --split-column "
            f"and --test-share"
        )
    if len(counts) == 1:
        raise ContractError(
            f"{source.name}: column {label!r} must have at least two distinct values, found only "
            f"{one_line(next(iter(counts)), 40)}: choose another --label-column"
        )
    if not encoder.width:
        raise ContractError(
            f"{source.name}: no numeric or text column is left as a feature: add one, or drop fewer columns"
        )
    labels = sorted(counts, key=lambda value: (str(type(value)), value))
    unlabelled = pq.read_metadata(source.path).num_rows - train_rows - test_rows
    notes = [
        f"{train_rows:,} train and {test_rows:,} test rows",
        _action_note(label, labels),
        *encoder.notes(),
        *_excluded_notes(columns),
    ]
    if unlabelled:
        notes.append(f"{counted(unlabelled, 'row')} without {label!r} skipped")
    if train_rows > _FIT_ROWS:
        notes.append(f"the logging policy is fitted to about {_FIT_ROWS:,} random train rows")
    warnings = _label_warnings(label, labels, train_rows + test_rows)
    names = _action_names(labels)
    if sum(map(len, names)) > _LONGEST_NAMES:
        notes.append(
            f"the values of {one_line(label, 60)} are too long to store: the log has only the numbers of the actions"
        )
        names = ()
    return TableData(
        name=settings.short_name,
        source=source,
        columns=columns,
        labels=labels,
        encoder=encoder,
        train_rows=train_rows,
        test_rows=test_rows,
        notes=tuple(notes),
        warnings=warnings,
        action_names=names,
        temporary=temporary,
    )


def _columns(schema: pl.Schema, settings: DatasetSettings, cost_columns: frozenset[str], subject: str) -> TableColumns:
    """Determine the roles of the columns from the settings, and check them."""
    label, existing = settings.label_column, one_line(", ".join(schema), 160)
    if label not in schema:
        fault = missing_column(label, "label", "--label-column", tuple(schema))
        raise ContractError(f"{subject}: {fault} (its columns: {existing})")
    if schema[label].is_nested():
        raise ContractError(
            f"{subject}: column {label!r} must be numbers, text or dates, found {schema[label]}: "
            f"choose another --label-column"
        )
    dropped: list[str] = []
    for pattern in filter(None, map(str.strip, (settings.drop_columns or "").split(","))):
        matched = [name for name in schema if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        dropped += [name for name in matched if name != label]
        if not matched or matched == [label]:
            reason = "it is the label column" if matched else f"no such column (its columns: {existing})"
            raise ContractError(f"{subject}: --drop-columns {one_line(pattern, 60)!r} drops nothing: {reason}")
    split: str | None = settings.split_column
    if split != "split" and split and split not in schema:
        fault = missing_column(split, "split", "--split-column", tuple(schema))
        raise ContractError(f"{subject}: {fault} (its columns: {existing})")
    if not split or split not in schema or split in dropped:
        split = None
    elif schema[split].is_nested():
        raise ContractError(f"{subject}: column {split!r} must be text, found {schema[split]}: {_OTHER_SPLIT}")
    if split == label:
        raise ContractError(
            f"{subject}: column {label!r} cannot be both --label-column and --split-column: name two columns"
        )
    outcomes = () if settings.keep_cost_columns else tuple(n for n in schema if n in cost_columns and n != label)
    return TableColumns(label, split, settings.test_share, tuple(dict.fromkeys(dropped)), outcomes)


_OTHER_SPLIT = "name another column with --split-column, or '' for a random split"


def _excluded_notes(columns: TableColumns) -> Iterator[str]:
    if columns.dropped:
        yield f"dropped by --drop-columns: {one_line(', '.join(columns.dropped), 300)}"
    if columns.outcomes:
        yield (
            f"excluded from the features because --cost uses them: {one_line(', '.join(columns.outcomes), 300)} "
            f"(--keep-cost-columns keeps them)"
        )


def _label_warnings(label: str, labels: list[Any], rows: int) -> tuple[str, ...]:
    """Warn if the labels are probably not classes."""
    name = one_line(label, 60)
    consequence = f"each value becomes an action: is {name} a class?"
    if any(isinstance(value, float) and not value.is_integer() for value in labels):
        return (f"column {name} has {len(labels):,} values with fractions, and {consequence}",)
    if 2 * len(labels) > rows:
        return (f"column {name} has {len(labels):,} distinct values in {counted(rows, 'row')}, and {consequence}",)
    return ()


def _action_names(labels: list[Any]) -> tuple[str, ...]:
    """The label values as text; empty if they equal the numbers of the actions."""
    names = tuple(map(str, labels))
    return () if names == tuple(map(str, range(len(names)))) else names


def _action_note(label: str, labels: list[Any]) -> str:
    shown = ", ".join(f"{i} = {one_line(value, 30)}" for i, value in enumerate(labels[:20]))
    total = f" … ({len(labels):,} in total)" if len(labels) > 20 else ""
    return f"the values of {label} become the actions {shown}{total}"


def _as_parquet(settings: DatasetSettings) -> tuple[InputFile, Any]:
    path = Path(settings.dataset)
    if not path.is_file():
        raise InputFileError(f"{one_line(path)} does not exist: check the name and the folder")
    if path.suffix.lower() == ".parquet":
        return InputFile(one_line(path), str(path), path.name), None
    temporary = tempfile.NamedTemporaryFile(prefix="s2bl-", suffix=".parquet")  # noqa: SIM115 (deleted with the data)
    try:
        _csv_to_parquet(path, temporary.name)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputFileError(
            f"{one_line(path)} cannot be read as CSV ({one_line(error, 160)}): fix the file"
        ) from error
    return InputFile(one_line(path), temporary.name, path.name), temporary


def _csv_to_parquet(path: Path, target: str) -> None:
    """Convert a CSV, with column types that fit all of its rows.

    Inferring types from every cell takes most of the time (12 of 16 s for 200,000 rows), so they are inferred from the
    first rows. All rows are used only if the first ones are not enough (a column has only missing values) or if later
    rows do not fit the types.
    """
    start = pl.read_csv(path, n_rows=_TYPED_ROWS, infer_schema=False, null_values=_MISSING)
    if start.height < _TYPED_ROWS or not any(column.is_null().all() for column in start.get_columns()):
        with contextlib.suppress(pl.exceptions.PolarsError):
            return _sink_csv(path, target, _TYPED_ROWS)
    return _sink_csv(path, target, None)


def _sink_csv(path: Path, target: str, typed_rows: int | None) -> None:
    frame = pl.scan_csv(path, infer_schema_length=typed_rows, null_values=_MISSING, try_parse_dates=True)
    frame.sink_parquet(target)


def _schema(source: InputFile) -> pl.Schema:
    with open_parquet(source) as parquet:
        empty = pl.from_arrow(parquet.schema_arrow.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema


def _frames(source: InputFile, columns: TableColumns) -> Iterator[tuple[pl.DataFrame, npt.NDArray[np.bool_]]]:
    """Yield the labelled rows in order, and which of them are test rows."""
    rng = np.random.Generator(np.random.Philox(key=_SPLIT_SEED))
    with open_parquet(source) as parquet:
        row_groups = range(parquet.num_row_groups)
        for batch in stream_batches(parquet, source, _READ_ROWS, parquet.schema_arrow.names, row_groups):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            is_test = _test_rows(frame, rng, columns, source.name)
            label = frame[columns.label]
            # NaN counts as missing. It does not equal itself, so as a class it would be a new one in each batch.
            labelled = (label.fill_nan(None) if label.dtype.is_float() else label).is_not_null().to_numpy()
            yield frame.filter(pl.Series(labelled)), is_test[labelled]


def _test_rows(
    frame: pl.DataFrame, rng: np.random.Generator, columns: TableColumns, subject: str
) -> npt.NDArray[np.bool_]:
    if columns.split is None:
        return rng.random(frame.height) < columns.test_share
    split = frame[columns.split].cast(pl.String)
    invalid = split.filter(~split.is_in(list(SPLITS)) | split.is_null())
    if len(invalid):
        raise ContractError(
            f"{subject}: column {columns.split!r} must be {' or '.join(SPLITS)}, found {one_line(invalid[0], 40)!r}: "
            f"fix it, {_OTHER_SPLIT}"
        )
    is_test: npt.NDArray[np.bool_] = (split == "test").to_numpy()
    return is_test
