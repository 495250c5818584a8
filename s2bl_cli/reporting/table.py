"""A table before it is printed: what is in each cell, and how cells are marked. Formats do the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from s2bl_cli.reporting.keys import NOTHING, Key, key_text, key_title
from s2bl_cli.reporting.quantities import PERCENT, Unit


@dataclass(frozen=True)
class Cell:
    """A number over runs, or words. Neither: an empty cell, never a zero."""

    mean: float | None = None
    std: float | None = None  # over seeds; None for a single run
    is_best: bool = False  # better than all others of its row, beyond noise
    is_second: bool = False
    differs: bool = False  # beyond noise, from the row's best
    unit: Unit = PERCENT
    runs: int = 1
    stderr: float | None = None  # of a single run
    low: float | None = None  # an interval, where the table shows one
    high: float | None = None
    text: str | None = None
    is_signed: bool = False  # a difference

    @property
    def printed_mean(self) -> str | None:
        if self.mean is None:
            return None
        return self.unit.signed(self.mean) if self.is_signed else self.unit.printed(self.mean)

    def words(self, plus_minus: str = "±") -> str:
        """The cell without its marks."""
        if self.text is not None:
            return self.text
        if self.mean is None or self.printed_mean is None:
            return NOTHING
        if self.low is not None and self.high is not None:
            return f"{self.printed_mean} [{self.unit.printed(self.low)}, {self.unit.printed(self.high)}]"
        if self.low is not None:
            return f"{self.printed_mean} (≥ {self.unit.printed(self.low)})"
        if self.std is not None:
            return f"{self.printed_mean} {plus_minus} {self.unit.printed(self.std)}"
        return self.printed_mean


Row = tuple[tuple[Key, ...], tuple[Cell, ...]]


@dataclass(frozen=True)
class Table:
    """Rows of typed keys and one cell per column. Formats make text of the keys."""

    keys: tuple[str, ...]  # the names of the columns that make the rows
    columns: Mapping[str, str]  # name → title
    rows: tuple[Row, ...]
    caption: str
    notes: tuple[str, ...] = ()  # what to know of it, a line each

    @property
    def key_titles(self) -> tuple[str, ...]:
        return tuple(map(key_title, self.keys))

    def place(self, keys: Sequence[Key]) -> str:
        """A row in a sentence: `dataset sample, τ 10, ρ 0.02`."""
        return ", ".join(f"{title} {key_text(key)}" for title, key in zip(self.key_titles, keys, strict=True))
