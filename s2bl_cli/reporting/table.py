"""A table before it is printed: what is in each cell, and how cells are marked. Formats do the rest."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A number over runs. No runs: an empty cell, never a zero."""

    mean: float | None = None
    std: float | None = None  # over seeds; None for a single run
    is_best: bool = False


@dataclass(frozen=True)
class Table:
    """Row keys as text, then one cell a column."""

    key_names: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Cell, ...]], ...]
    caption: str
