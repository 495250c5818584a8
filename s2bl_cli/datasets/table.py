"""Your own labelled table: a CSV or Parquet file, one row an example, one column the label.

The table is streamed: a pass learns the encoding and the classes, further passes encode batches, so a table of
any length is converted in bounded memory. A CSV is first turned into a temporary Parquet file, also streamed.
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
from s2bl_cli.contract.logs.decoding import stream_batches
from s2bl_cli.contract.logs.schema import SPLITS
from s2bl_cli.contract.parquet_files import open_parquet
from s2bl_cli.datasets.labelled import LabelledBatch, LabelledPart
from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.datasets.table_encoding import TableEncoder
from s2bl_cli.errors import ContractError, InputFileError, one_line

_SPLIT_SEED = 20_130  # fixed: the same rows are for testing whatever --seed says
_MOST_CLASSES = 100_000
_LONGEST_NAMES = 1 << 20  # characters of all the actions' names: they are kept in the log's document
_FIT_ROWS = 200_000
_READ_ROWS = 1 << 15
_TYPED_ROWS = 10_000  # of a CSV, from which its columns' types are guessed
_GAPS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"]


@dataclass(frozen=True)
class TableColumns:
    """Which column is what; the others are features, if they can be."""

    label: str
    split: str | None  # None: a random share of the rows is for testing
    test_share: float
    dropped: tuple[str, ...]  # as asked
    outcomes: tuple[str, ...]  # what the cost is computed from

    @property
    def no_features(self) -> set[str]:
        return {self.label, *self.dropped, *self.outcomes, *([self.split] if self.split is not None else [])}


@dataclass
class TableData:
    """A labelled table, streamed from Parquet."""

    name: str
    source: InputFile
    columns: TableColumns
    labels: list[Any]  # label values; a row's class is its label's place here
    encoder: TableEncoder
    train_rows: int
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    action_names: tuple[str, ...]
    temporary: Any = field(default=None, repr=False)  # keeps a converted CSV's Parquet alive

    @property
    def classes(self) -> int:
        return len(self.labels)

    @property
    def context(self) -> ContextSpec:
        return ContextSpec("float32", (self.encoder.width,))

    def batches(self, split: str, rows: int) -> Iterator[LabelledBatch]:
        for frame, is_test in _frames(self.source, self.columns):
            chosen = frame.filter(pl.Series(is_test if split == "test" else ~is_test))
            for part in chosen.iter_slices(rows):
                yield LabelledBatch(self.encoder.encode(part), self._classes_of(part), part)

    def to_fit(self) -> LabelledPart:
        """All train rows, or a random 200,000 of them where there are more."""
        rng = np.random.default_rng(_SPLIT_SEED)
        share = min(1.0, _FIT_ROWS / max(1, self.train_rows))
        contexts, labels = [], []
        for batch in self.batches("train", _READ_ROWS):
            taken = rng.random(len(batch.label)) < share
            contexts.append(batch.context[taken])
            labels.append(batch.label[taken])
        return LabelledPart(np.concatenate(contexts), np.concatenate(labels))

    def _classes_of(self, frame: pl.DataFrame) -> npt.NDArray[np.int32]:
        column = frame[self.columns.label]
        place = pl.DataFrame(
            {"label": pl.Series(self.labels, dtype=column.dtype), "at": np.arange(self.classes, dtype=np.int32)}
        )
        joined = pl.DataFrame({"label": column}).join(place, on="label", how="left", maintain_order="left")
        return joined["at"].to_numpy()


def load(settings: DatasetSettings, cost_columns: frozenset[str] = frozenset()) -> TableData:
    """`cost_columns` are those that the cost of a row is computed from."""
    source, temporary = _as_parquet(settings)
    schema = _schema(source)
    columns = _columns(schema, settings, cost_columns, source.name)
    label = columns.label
    encoder = TableEncoder(schema, columns.no_features, settings.max_levels)
    counts: dict[Any, int] = {}
    train_rows = test_rows = 0
    for frame, is_test in _frames(source, columns):
        counted_labels = frame[label].alias("value").value_counts()  # its own name might be "count"
        for value, count in zip(counted_labels["value"].to_list(), counted_labels["count"].to_list(), strict=True):
            counts[value] = counts.get(value, 0) + count
        if len(counts) > _MOST_CLASSES:
            raise ContractError(
                f"{source.name}: column {label!r} has more than {_MOST_CLASSES:,} distinct values: "
                f"it is no class to predict"
            )
        encoder.learn(frame.filter(pl.Series(~is_test)))
        train_rows += int((~is_test).sum())
        test_rows += int(is_test.sum())
    encoder.settle()
    if not train_rows:
        raise ContractError(f"{source.name}: it has no train rows with a {label!r}")
    if len(counts) == 1:
        raise ContractError(
            f"{source.name}: column {label!r} has one value only ({one_line(next(iter(counts)), 40)}), so there is "
            f"nothing to choose between: choose another --label-column"
        )
    if not encoder.width:
        raise ContractError(f"{source.name}: it has no numeric or text column beside {label!r} to learn from")
    labels = sorted(counts, key=lambda value: (str(type(value)), value))
    unlabelled = pq.read_metadata(source.path).num_rows - train_rows - test_rows
    notes = [
        f"{train_rows:,} train and {test_rows:,} test rows",
        _action_words(label, labels),
        *encoder.notes(),
        *_left_out_words(columns),
    ]
    if unlabelled:
        notes.append(f"{counted(unlabelled, 'row')} without {label!r} left out")
    if train_rows > _FIT_ROWS:
        notes.append(f"the logging policy is fitted to about {_FIT_ROWS:,} random train rows")
    warnings = _doubts(label, labels, train_rows + test_rows)
    names = _action_names(labels)
    if sum(map(len, names)) > _LONGEST_NAMES:
        notes.append(
            f"the values of {one_line(label, 60)} are too long to be stored: the log has the actions' numbers only"
        )
        names = ()
    return TableData(
        settings.short_name, source, columns, labels, encoder, train_rows, tuple(notes), warnings, names, temporary
    )


def _columns(schema: pl.Schema, settings: DatasetSettings, cost_columns: frozenset[str], subject: str) -> TableColumns:
    """What the settings say about the columns, checked."""
    label, there = settings.label_column, one_line(", ".join(schema), 160)
    if label not in schema:
        raise ContractError(
            f"{subject}: no column {label!r} to predict: name it with --label-column (its columns: {there})"
        )
    if schema[label].is_nested():
        raise ContractError(
            f"{subject}: column {label!r} must be numbers, text or dates to be predicted, found {schema[label]}: "
            f"choose another --label-column"
        )
    dropped: list[str] = []
    for pattern in filter(None, map(str.strip, (settings.drop_columns or "").split(","))):
        matched = [name for name in schema if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        dropped += [name for name in matched if name != label]
        if not matched or matched == [label]:
            why = "that is the column to predict" if matched else f"there is no such column (its columns: {there})"
            raise ContractError(f"{subject}: --drop-columns {one_line(pattern, 60)!r} drops nothing: {why}")
    split: str | None = settings.split_column
    if split != "split" and split and split not in schema:
        raise ContractError(f"{subject}: no column {split!r} for --split-column (its columns: {there})")
    if not split or split not in schema or split in dropped:
        split = None
    elif schema[split].is_nested():
        raise ContractError(f"{subject}: column {split!r} must be text, found {schema[split]}; {_NO_SPLIT}")
    if split == label:
        raise ContractError(f"{subject}: column {label!r} cannot be both --label-column and --split-column")
    outcomes = () if settings.keep_cost_columns else tuple(n for n in schema if n in cost_columns and n != label)
    return TableColumns(label, split, settings.test_share, tuple(dict.fromkeys(dropped)), outcomes)


_NO_SPLIT = "name another with --split-column, or '' for a random one"


def _left_out_words(columns: TableColumns) -> Iterator[str]:
    if columns.dropped:
        yield f"dropped as asked: {one_line(', '.join(columns.dropped), 300)}"
    if columns.outcomes:
        yield (
            f"left out of the features because --cost uses them: {one_line(', '.join(columns.outcomes), 300)} "
            f"(--keep-cost-columns keeps them)"
        )


def _doubts(label: str, labels: list[Any], rows: int) -> tuple[str, ...]:
    """Labels that are probably no classes."""
    each = f"each of the {len(labels):,} becomes an action: is it a class?"
    if any(isinstance(value, float) and not value.is_integer() for value in labels):
        return (f"the values of {one_line(label, 60)} have fractions, and {each}",)
    if 2 * len(labels) > rows:
        return (f"most of the {counted(rows, 'row')} have a {one_line(label, 60)} of their own, and {each}",)
    return ()


def _action_names(labels: list[Any]) -> tuple[str, ...]:
    """The label's values as text, unless they are the actions' own numbers."""
    names = tuple(map(str, labels))
    return () if names == tuple(map(str, range(len(names)))) else names


def _action_words(label: str, labels: list[Any]) -> str:
    shown = ", ".join(f"{i} = {one_line(value, 30)}" for i, value in enumerate(labels[:20]))
    return f"the values of {label} become the actions {shown}" + (
        f" … {len(labels):,} in all" if len(labels) > 20 else ""
    )


def _as_parquet(settings: DatasetSettings) -> tuple[InputFile, Any]:
    path = Path(settings.dataset)
    if not path.is_file():
        raise InputFileError(f"{one_line(path)} does not exist: check the name and the folder")
    if path.suffix.lower() == ".parquet":
        return InputFile(one_line(path), str(path), path.name), None
    temporary = tempfile.NamedTemporaryFile(prefix="s2bl-", suffix=".parquet")  # noqa: SIM115 (lives as long as the data)
    try:
        _csv_to_parquet(path, temporary.name)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputFileError(f"{one_line(path)} cannot be read as CSV ({one_line(error, 160)}): mend it") from error
    return InputFile(one_line(path), temporary.name, path.name), temporary


def _csv_to_parquet(path: Path, target: str) -> None:
    """With the types that all of its rows have.

    Looking at every cell for that takes most of the time (12 s of 16 for 200,000 rows), so the first rows are looked
    at, and all of them only where those cannot tell (a column that has gaps only) or the others do not follow.
    """
    start = pl.read_csv(path, n_rows=_TYPED_ROWS, infer_schema=False, null_values=_GAPS)
    if start.height < _TYPED_ROWS or not any(column.is_null().all() for column in start.get_columns()):
        with contextlib.suppress(pl.exceptions.PolarsError):
            return _sink_csv(path, target, _TYPED_ROWS)
    return _sink_csv(path, target, None)


def _sink_csv(path: Path, target: str, typed_rows: int | None) -> None:
    frame = pl.scan_csv(path, infer_schema_length=typed_rows, null_values=_GAPS, try_parse_dates=True)
    frame.sink_parquet(target)


def _schema(source: InputFile) -> pl.Schema:
    with open_parquet(source) as parquet:
        empty = pl.from_arrow(parquet.schema_arrow.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema


def _frames(source: InputFile, columns: TableColumns) -> Iterator[tuple[pl.DataFrame, npt.NDArray[np.bool_]]]:
    """The labelled rows in order, and which of them are for testing."""
    rng = np.random.Generator(np.random.Philox(key=_SPLIT_SEED))
    with open_parquet(source) as parquet:
        row_groups = range(parquet.num_row_groups)
        for batch in stream_batches(parquet, source, _READ_ROWS, parquet.schema_arrow.names, row_groups):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            is_test = _test_rows(frame, rng, columns, source.name)
            label = frame[columns.label]
            # NaN is a gap too. As a class it would be a new one in each batch: it does not equal itself.
            labelled = (label.fill_nan(None) if label.dtype.is_float() else label).is_not_null().to_numpy()
            yield frame.filter(pl.Series(labelled)), is_test[labelled]


def _test_rows(
    frame: pl.DataFrame, rng: np.random.Generator, columns: TableColumns, subject: str
) -> npt.NDArray[np.bool_]:
    if columns.split is None:
        return rng.random(frame.height) < columns.test_share
    split = frame[columns.split].cast(pl.String)
    wrong = split.filter(~split.is_in(list(SPLITS)) | split.is_null())
    if len(wrong):
        raise ContractError(
            f"{subject}: column {columns.split!r} must be {' or '.join(SPLITS)}, found {one_line(wrong[0], 40)!r}; "
            f"mend it, {_NO_SPLIT}"
        )
    is_test: npt.NDArray[np.bool_] = (split == "test").to_numpy()
    return is_test
