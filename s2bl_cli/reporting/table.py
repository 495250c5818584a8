"""A report before it is formatted: tables of typed keys and marked cells, verdicts, figures and commands. Also names,
texts and order of keys."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from s2bl_cli.errors import one_line
from s2bl_cli.objectives.hyperparameters import declared_hyperparameters
from s2bl_cli.registry import DATASETS
from s2bl_cli.reporting.differences import Repetitions
from s2bl_cli.reporting.quantities import PERCENT, Unit

Key = str | float | int | None

NOTHING = "–"

_TITLES = {
    "tau": "τ",
    "rho": "ρ",
    "mask.rho": "ρ",
    "trained_tau": "trained at τ",
    "trained_on": "trained on",
    "known": "known rows",
    "missing": "missing rows",
    "ratio": "missing / known",
    "policy_sha256": "policy",
    "log_sha256": "log",
    "reg": "regulariser",
    "reg_rows": "regulariser's rows",
}
_PHRASES = {
    "dataset": "{}",
    "model": "{}",
    "log": "{}",
    "split": "{}",
    "policy": "{}",
    "epochs": "{} epochs",
    "known": "{} known rows",
}


def key_title(name: str) -> str:
    """The title of a column in tables; for a hyperparameter, its symbol."""
    symbols = {declared.name: declared.symbol for declared in declared_hyperparameters().values()}
    return {**_TITLES, **symbols}.get(name, name.removeprefix("asked."))


def key_text(value: object) -> str:
    """A key as text, with four significant digits."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:g}"
    return one_line(value, 80)


def key_phrase(name: str, value: object) -> str:
    """A column and its value in a title: `λ 0.1`, `10 epochs`."""
    phrase = _PHRASES.get(name, f"{key_title(name)} {{}}").format(key_text(value))
    return phrase.removesuffix("s") if phrase == "1 epochs" else phrase


def in_words(names: Sequence[str], values: Sequence[object]) -> str:
    """A row in a sentence: `dataset sample, τ 10, ρ 0.02`."""
    return ", ".join(f"{key_title(name)} {key_text(value)}" for name, value in zip(names, values, strict=True))


def row_order(keys: Sequence[str]) -> list[pl.Expr]:
    """The expressions to sort by: datasets in the order of the registry, then others by name."""
    ranks = {name: rank for rank, name in enumerate(DATASETS.names)}
    rank = pl.col("dataset").replace_strict(ranks, default=len(ranks), return_dtype=pl.Int64)
    return [part for key in keys for part in ([rank, pl.col(key)] if key == "dataset" else [pl.col(key)])]


@dataclass(frozen=True)
class Cell:
    """A number over runs, or a text. A cell with neither is empty, not zero."""

    mean: float | None = None
    std: float | None = None  # over seeds; None for a single run
    is_best: bool = False  # significantly better than all others of its row
    is_second: bool = False
    differs: bool = False  # significantly, from the best of the row
    unit: Unit = PERCENT
    runs: int = 1
    stderr: float | None = None  # of a single run
    repetitions: Repetitions | None = None  # what the mean was made of
    low: float | None = None  # of the interval, if the table shows one
    high: float | None = None
    text: str | None = None
    is_signed: bool = False  # a difference

    @property
    def noise(self) -> Repetitions | None:
        """What is known of the noise of the mean: of a published number, the deviation over its runs."""
        if self.repetitions is not None or self.mean is None:
            return self.repetitions
        variance = self.std**2 / self.runs if self.std is not None and self.runs > 1 else None
        return Repetitions(self.mean, variance, self.runs - 1, self.stderr)

    @property
    def is_empty(self) -> bool:
        return self.mean is None and self.text is None

    def words(self, plus_minus: str = "±") -> str:
        """The cell without its marks."""
        if self.text is not None or self.mean is None:
            return self.text or NOTHING
        printed = self.unit.printed
        mean = self.unit.signed(self.mean) if self.is_signed else printed(self.mean)
        if self.low is not None:
            return (
                f"{mean} (≥ {printed(self.low)})"
                if self.high is None
                else (f"{mean} [{printed(self.low)}, {printed(self.high)}]")
            )
        return mean if self.std is None else f"{mean} {plus_minus} {printed(self.std)}"

    def styled(self, text: str, best: str, second: str) -> str:
        """The text with the style of its mark."""
        return best.format(text) if self.is_best else second.format(text) if self.is_second else text

    def record(self) -> dict[str, Any]:
        """All fields for programs, in the unit of the table, without rounding errors: 85.01, not 85.00999999999999."""
        numbers = {name: getattr(self, name) for name in ("mean", "std", "stderr", "low", "high")}
        factor = self.unit.factor
        return {
            **{name: None if value is None else float(f"{factor * value:.12g}") for name, value in numbers.items()},
            "runs": self.runs,
            "text": self.text,
            "best": self.is_best,
            "second": self.is_second,
            "differs": self.differs,
        }


Row = tuple[tuple[Key, ...], tuple[Cell, ...]]


@dataclass(frozen=True)
class Table:
    """Rows of typed keys, with one cell per column. Formats convert the keys to text."""

    keys: tuple[str, ...]  # names of the columns that define the rows
    columns: Mapping[str, str]  # name → title
    rows: tuple[Row, ...]
    caption: str
    notes: tuple[str, ...] = ()  # one line each

    @property
    def key_titles(self) -> tuple[str, ...]:
        return tuple(map(key_title, self.keys))

    def cells(self) -> dict[tuple[Key, ...], dict[str, Cell]]:
        """By row and column."""
        return {keys: dict(zip(self.columns, cells, strict=True)) for keys, cells in self.rows}

    def means(self) -> dict[tuple[Key, ...], dict[str, float]]:
        """The numbers by row and column, without the empty cells."""
        return {
            keys: {name: cell.mean for name, cell in zip(self.columns, cells, strict=True) if cell.mean is not None}
            for keys, cells in self.rows
        }


@dataclass(frozen=True)
class Verdict:
    """The result of one claim in one row."""

    claim: str
    holds: bool
    details: str  # with the numbers

    @property
    def word(self) -> str:
        return "holds" if self.holds else "fails"


@dataclass(frozen=True)
class Health:
    """Whether the estimates of a policy on a log are reliable."""

    policy: str
    log: str
    level: int  # 2 reliable, 1 caution, 0 unreliable
    words: str

    @property
    def line(self) -> str:
        return f"{self.policy} on {self.log}: {self.words}"


@dataclass(frozen=True)
class Report:
    tables: tuple[Table, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()  # title and SVG
    health: tuple[Health, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()  # commands that make each scores file
    claims: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    plot_name: str = ""
    plot: bytes = b""  # the file of --plot
