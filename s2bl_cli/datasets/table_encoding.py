"""From a table's columns to numbers: numeric columns standardised, text columns one-hot, gaps filled and marked.

Everything is learned from the train rows, in one pass over batches; memory does not grow with the table.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from s2bl_cli.console import counted
from s2bl_cli.errors import one_line

_MOST_LEVELS_COUNTED = 200_000  # more distinct values than these are not even counted: an id, not a category

Matrix = npt.NDArray[np.float32]


@dataclass
class NumericColumn:
    """(x − mean)/std; a gap reads as the mean, and a column with gaps has a second feature that marks them."""

    name: str
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    gaps: int = 0

    def learn(self, column: pl.Series) -> None:
        values = _finite(column)
        self.gaps += int(np.isnan(values).sum())
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
        return 2 if self.gaps else 1

    def encode(self, column: pl.Series) -> Matrix:
        values = _finite(column)
        spread = np.sqrt(self.squares / self.count) if self.count else 0.0
        is_gap = np.isnan(values)
        scaled = np.where(is_gap, 0.0, (values - self.mean) / (spread or 1.0)).astype(np.float32)
        # A gap in a column that had none in the train rows has no mark: it reads as the mean.
        return np.stack([scaled, is_gap.astype(np.float32)], axis=1) if self.gaps else scaled[:, None]


@dataclass
class TextColumn:
    """One feature a level; a gap is a level of its own; levels beyond the most frequent ones share a feature.

    A column most of whose values are distinct is a name or an id: it is left out.
    """

    name: str
    most_levels: int
    counts: Counter[str | None] = field(default_factory=Counter)
    is_identifier: bool = False
    levels: list[str | None] = field(default_factory=list)
    has_others: bool = False

    def learn(self, column: pl.Series) -> None:
        if self.is_identifier:
            return
        counted = column.cast(pl.String).alias("level").value_counts()  # its own name might be "count"
        self.counts.update(dict(zip(counted["level"].to_list(), counted["count"].to_list(), strict=True)))
        if len(self.counts) > _MOST_LEVELS_COUNTED:
            self.is_identifier = True
            self.counts.clear()

    def settle(self) -> None:
        """Fix the levels, most frequent first, ties by name."""
        rows = sum(self.counts.values())
        self.is_identifier |= len(self.counts) > max(self.most_levels, rows // 2)
        ordered = sorted(self.counts.items(), key=lambda level: (-level[1], level[0] is None, level[0] or ""))
        self.levels = [level for level, _ in ordered[: self.most_levels]]
        self.has_others = len(ordered) > self.most_levels

    @property
    def width(self) -> int:
        return len(self.levels) + self.has_others

    def encode(self, column: pl.Series) -> Matrix:
        """A level that the train rows never had goes to the shared feature, where there is one."""
        text = column.cast(pl.String)
        known = pl.Series(self.levels, dtype=pl.String)
        index = pl.DataFrame({"level": known, "at": np.arange(len(known))})
        at = pl.DataFrame({"level": text}).join(index, on="level", how="left", nulls_equal=True, maintain_order="left")[
            "at"
        ]
        position = at.fill_null(len(self.levels)).to_numpy()
        encoded = np.zeros((len(text), self.width), dtype=np.float32)
        inside = position < self.width
        encoded[np.flatnonzero(inside), position[inside]] = 1
        return encoded


class TableEncoder:
    """All feature columns of a table."""

    def __init__(self, schema: pl.Schema, leave_out: set[str], most_levels: int) -> None:
        self.numeric = [
            NumericColumn(n) for n, t in schema.items() if n not in leave_out and (t.is_numeric() or t == pl.Boolean)
        ]
        self.text = [
            TextColumn(n, most_levels)
            for n, t in schema.items()
            if n not in leave_out and isinstance(t, pl.String | pl.Categorical | pl.Enum)
        ]
        taken = {column.name for column in self._columns}
        self.ignored = [name for name in schema if name not in taken and name not in leave_out]

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
        """What was done, in words."""
        notes = []
        if self.numeric:
            number = counted(len(self.numeric), "numeric column")
            notes.append(f"{number} standardised: {_names(c.name for c in self.numeric)}")
        gaps = [f"{one_line(c.name, 40)} ({c.gaps:,})" for c in self.numeric if c.gaps]
        if gaps:
            notes.append(f"missing numbers read as the mean and marked by a feature each: {', '.join(gaps)}")
        if self.text:
            number = counted(len(self.text), "text column")
            notes.append(f"{number} one-hot: {_names(f'{c.name} ({c.width})' for c in self.text)}")
        gaps = [f"{one_line(c.name, 40)} ({c.counts[None]:,})" for c in self.text if c.counts.get(None)]
        if gaps:
            notes.append(f"missing texts are a level of their own: {', '.join(gaps)}")
        if self.ignored:
            notes.append(f"columns left out (dates, nested or too many distinct values): {_names(self.ignored)}")
        return notes


def _names(names: Iterable[str]) -> str:
    return one_line(", ".join(names), 300)


def _finite(column: pl.Series) -> npt.NDArray[np.float64]:
    """Numbers with NaN for every gap; infinities count as gaps too."""
    values = column.cast(pl.Float64).to_numpy().astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)
