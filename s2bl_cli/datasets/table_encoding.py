"""Encode the columns of a table as numbers: numeric columns are standardised, text columns one-hot encoded.

Encodings are fitted to the train rows in one pass over batches, so memory does not grow with the table.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from s2bl_cli.console import counted
from s2bl_cli.errors import one_line

_MOST_LEVELS_COUNTED = 200_000  # a column with more distinct values is an id, not a category

Matrix = npt.NDArray[np.float32]


@dataclass
class NumericColumn:
    """(x − mean)/std. Missing values are replaced by the mean; if there are any, a second feature marks them."""

    name: str
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    missing: int = 0

    def learn(self, column: pl.Series) -> None:
        values = _finite(column)
        self.missing += int(np.isnan(values).sum())
        values = values[~np.isnan(values)]
        if not len(values):
            return
        mean, total = float(values.mean()), self.count + len(values)
        delta = mean - self.mean
        self.squares += float(np.square(values - mean).sum()) + delta**2 * self.count * len(values) / total
        self.mean += delta * len(values) / total
        self.count = total

    @property
    def width(self) -> int:
        return 2 if self.missing else 1

    def encode(self, column: pl.Series) -> Matrix:
        values = _finite(column)
        std = np.sqrt(self.squares / self.count) if self.count else 0.0
        is_missing = np.isnan(values)
        scaled = np.where(is_missing, 0.0, (values - self.mean) / (std or 1.0)).astype(np.float32)
        # If the train rows have no missing values, those of the test rows are the mean, without a mark.
        return np.stack([scaled, is_missing.astype(np.float32)], axis=1) if self.missing else scaled[:, None]


@dataclass
class TextColumn:
    """One feature per level. A missing value is a level, and all but the most frequent levels share a feature.

    A column in which most values are distinct is a name or an id. It is ignored.
    """

    name: str
    most_levels: int
    counts: Counter[str | None] = field(default_factory=Counter)
    is_identifier: bool = False
    levels: list[str | None] = field(default_factory=list)
    has_other: bool = False  # a feature that the less frequent levels share

    def learn(self, column: pl.Series) -> None:
        if self.is_identifier:
            return
        counts = column.cast(pl.String).alias("level").value_counts()  # the column itself may be named "count"
        self.counts.update(dict(zip(counts["level"].to_list(), counts["count"].to_list(), strict=True)))
        if len(self.counts) > _MOST_LEVELS_COUNTED:
            self.is_identifier = True
            self.counts.clear()

    def settle(self) -> None:
        """Choose the levels after the last batch: most frequent first, ties by name."""
        rows = sum(self.counts.values())
        self.is_identifier |= len(self.counts) > max(self.most_levels, rows // 2)
        ordered = sorted(self.counts.items(), key=lambda level: (-level[1], level[0] is None, level[0] or ""))
        self.levels = [level for level, _ in ordered[: self.most_levels]]
        self.has_other = len(ordered) > self.most_levels

    @property
    def width(self) -> int:
        return len(self.levels) + self.has_other

    def encode(self, column: pl.Series) -> Matrix:
        """One-hot rows. A level that is not in the train rows uses the shared feature, if there is one."""
        text = column.cast(pl.String)
        levels = pl.Series(self.levels, dtype=pl.String)
        index = pl.DataFrame({"level": levels, "feature": np.arange(len(levels))})
        rows = pl.DataFrame({"level": text}).join(
            index, on="level", how="left", nulls_equal=True, maintain_order="left"
        )
        feature = rows["feature"].fill_null(len(self.levels)).to_numpy()
        encoded = np.zeros((len(text), self.width), dtype=np.float32)
        has_feature = feature < self.width
        encoded[np.flatnonzero(has_feature), feature[has_feature]] = 1
        return encoded


class TableEncoder:
    """Encoder of all feature columns of a table."""

    def __init__(self, schema: pl.Schema, excluded: set[str], most_levels: int) -> None:
        self.numeric = [
            NumericColumn(n) for n, t in schema.items() if n not in excluded and (t.is_numeric() or t == pl.Boolean)
        ]
        self.text = [
            TextColumn(n, most_levels)
            for n, t in schema.items()
            if n not in excluded and isinstance(t, pl.String | pl.Categorical | pl.Enum)
        ]
        used = {column.name for column in self._columns}
        self.ignored = [name for name in schema if name not in used and name not in excluded]

    @property
    def _columns(self) -> list[NumericColumn | TextColumn]:
        return [*self.numeric, *self.text]

    def learn(self, frame: pl.DataFrame) -> None:
        for column in self._columns:
            column.learn(frame[column.name])

    def settle(self) -> None:
        for column in self.text:
            column.settle()
        self.ignored += [column.name for column in self.text if column.is_identifier]
        self.text = [column for column in self.text if not column.is_identifier]

    @property
    def width(self) -> int:
        return sum(column.width for column in self._columns)

    def encode(self, frame: pl.DataFrame) -> Matrix:
        blocks = [column.encode(frame[column.name]) for column in self._columns]
        return np.concatenate(blocks, axis=1)

    def notes(self) -> list[str]:
        """Describe the encoding for the user."""
        notes = []
        if self.numeric:
            number = counted(len(self.numeric), "numeric column")
            notes.append(f"{number} standardised: {_names(c.name for c in self.numeric)}")
        missing = [f"{one_line(c.name, 40)} ({c.missing:,})" for c in self.numeric if c.missing]
        if missing:
            notes.append(f"missing numbers replaced by the mean and marked by a feature: {', '.join(missing)}")
        if self.text:
            number = counted(len(self.text), "text column")
            notes.append(f"{number} one-hot encoded: {_names(f'{c.name} ({c.width})' for c in self.text)}")
        missing = [f"{one_line(c.name, 40)} ({c.counts[None]:,})" for c in self.text if c.counts.get(None)]
        if missing:
            notes.append(f"missing texts encoded as a separate level: {', '.join(missing)}")
        if self.ignored:
            notes.append(f"columns ignored (dates, nested or too many distinct values): {_names(self.ignored)}")
        return notes


def _names(names: Iterable[str]) -> str:
    return one_line(", ".join(names), 300)


def _finite(column: pl.Series) -> npt.NDArray[np.float64]:
    """The column as floats, with NaN for missing and infinite values."""
    values = column.cast(pl.Float64).to_numpy().astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)
