"""What most tables are: one row a setting, one column a method, each cell a number over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.reporting.quantities import ACCURACIES, HEALTH, VERDICTS, Quantity, Unit, quantity
from s2bl_cli.reporting.selection import (
    REFERENCES,
    check_metric,
    check_runs,
    is_at,
    is_reference,
    key_text,
    key_title,
    listed,
    of_metric,
    places,
)
from s2bl_cli.reporting.significance import differing_marked
from s2bl_cli.reporting.table import Cell, Row, Table

DRAWN = "sampled-accuracy"
_OF_THE_LOG = ("dataset", "tau", "log", "log_sha256", "split", "label")
_NO_KEYS = ("method", "value", "stderr", "low", "high", "note", "metric", "seed", "rows")

SIGNIFICANCE_NOTE = (
    "† differs from the best of its row beyond noise (5 % for the row): Welch's t over seeds, or over standard errors "
    "where there is one run."
)


@dataclass(frozen=True)
class Wanted:
    """What is asked of a table."""

    metric: str
    group_by: tuple[str, ...] = ()  # the columns that make the rows, instead of the table's own
    significance: bool = False


def parsed_group_by(text: str | None, columns: Sequence[str]) -> tuple[str, ...]:
    """`dataset,tau,lam` → the names, each a column that can make rows."""
    if text is None:
        return ()
    names = tuple(part.strip() for part in text.split(","))
    allowed = [name for name in columns if name not in _NO_KEYS]
    wrong = [name for name in names if name not in allowed]
    if wrong or len(set(names)) < len(names):
        raise SettingError(
            f"--group-by must be columns of {listed(allowed, (*wrong, '')[0])}, each once and with commas between "
            f"them, found {one_line(text, 60)!r}"
        )
    return names


def grid(
    frame: pl.DataFrame,
    wanted: Wanted,
    keys: Sequence[str],
    *,
    methods: Sequence[str] | None = None,
    with_references: bool = True,
) -> Table:
    """Rows by `keys` (or by what was asked for), columns by method; best and second of a row marked; wins counted."""
    check_metric(frame, wanted.metric)
    shown = quantity(wanted.metric)
    scores = of_metric(frame, wanted.metric)
    keys = row_keys(scores, wanted, keys)
    learned = scores.filter(~is_reference())
    notes = check_runs(learned, keys)
    columns = list(methods or ordered(learned["method"].unique().to_list()))
    references = _references(frame, wanted.metric) if with_references else {}
    cells = cells_by(learned, [*keys, "method"], shown.unit)
    rows: list[Row] = []
    for values in places(learned, keys):
        row = [cells.get((*values, method), Cell()) for method in columns]
        row += [_reference_cell(held, dict(zip(keys, values, strict=True))) for held in references.values()]
        rows.append((tuple(map(key_text, values)), marked(row, shown, significance=wanted.significance)))
    titles = (*map(title_of, columns), *(_reference_title(name, wanted.metric) for name in references))
    names = (*columns, *references)
    trained = frame.filter(~is_reference())["method"].unique().to_list()
    left_out = ordered([name for name in trained if name not in columns]) if methods is None else []
    notes = [
        *wins(rows, titles, shown),
        *([SIGNIFICANCE_NOTE] if any(cell.differs for _, row in rows for cell in row) else []),
        *notes,
        *([f"Without a score of {wanted.metric}, and so not here: {', '.join(left_out)}."] if left_out else []),
    ]
    caption = ", ".join((" ".join(filter(None, (shown.title, shown.unit.words))), runs_told(list(cells.values()))))
    heads = tuple(shown.by if key == "label" else key_title(key) for key in keys)
    return Table(heads, titles, tuple(rows), caption, names, tuple(notes))


def is_of_the_log(name: str) -> bool:
    """Whether a policy that was not trained has the column too."""
    return name in _OF_THE_LOG or name.startswith("logs.")


def row_keys(scores: pl.DataFrame, wanted: Wanted, keys: Sequence[str]) -> tuple[str, ...]:
    chosen = tuple(wanted.group_by or keys)
    is_by_class = scores["label"].null_count() < scores.height
    return (*chosen, "label") if is_by_class and "label" not in chosen else chosen


def cells_by(scores: pl.DataFrame, keys: Sequence[str], unit: Unit) -> dict[tuple[Any, ...], Cell]:
    """One cell a combination of the keys' values."""
    return {
        tuple(values): cell_of(held, unit)
        for values, held in scores.group_by(keys, maintain_order=True)
    }  # fmt: skip


def cell_of(runs: pl.DataFrame, unit: Unit) -> Cell:
    """Over the runs; of a single one, with its standard error."""
    values: list[float] = runs["value"].to_list()
    if not values:
        return Cell()
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        verdict = VERDICTS.get(round(mean)) if runs["metric"][0] == HEALTH else None
        return Cell(mean, unit=unit, stderr=finite(runs["stderr"][0]), text=verdict)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return Cell(mean, std, unit=unit, runs=len(values))


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _references(frame: pl.DataFrame, metric: str) -> dict[str, pl.DataFrame]:
    """The scores of the policies that were not trained. Beside an argmax accuracy stands the share of right draws."""
    held = {}
    for name in REFERENCES:
        own = of_metric(frame.filter(pl.col("method") == name), _reference_metric(metric))
        if not own.is_empty() or name == LOGGING_POLICY:
            held[name] = own
    return held


def _reference_metric(metric: str) -> str:
    return DRAWN if metric in ACCURACIES else metric


def _reference_title(name: str, metric: str) -> str:
    return REFERENCES[name] + (" (drawn)" if metric in ACCURACIES else "")


def _reference_cell(scores: pl.DataFrame, keys: Mapping[str, Any]) -> Cell:
    shared = [name for name in keys if is_of_the_log(name)]
    here = scores.filter(is_at(shared, [keys[name] for name in shared]) if shared else pl.lit(True))
    # The same rows in another file, such as a masked copy: another digest, the same number.
    here = here.unique(["dataset", "tau", "value", "rows"], maintain_order=True)
    if here.select("dataset", "tau").n_unique() > 1:
        return Cell()  # a mean over other data than the row's would say nothing
    return cell_of(here, quantity(here["metric"][0]).unit) if here.height else Cell()


def marked(cells: Sequence[Cell], shown: Quantity, *, significance: bool = False) -> tuple[Cell, ...]:
    """Every cell that prints as well as the best is best: a tie at the printed digits is a tie. The second is told
    apart only among three or more."""
    if shown.better is None:
        return tuple(cells)
    sign = 1 if shown.better == "high" else -1
    printed = [None if cell.mean is None else sign * float(shown.unit.printed(cell.mean)) for cell in cells]
    ranks = sorted({value for value in printed if value is not None}, reverse=True)
    best = ranks[0] if ranks else None
    has_second = len(ranks) > 1 and sum(value is not None for value in printed) > 2
    second = ranks[1] if has_second else None
    ranked = tuple(
        replace(cell, is_best=value is not None and value == best, is_second=value is not None and value == second)
        for cell, value in zip(cells, printed, strict=True)
    )
    return differing_marked(ranked) if significance else ranked


def wins(rows: Sequence[Row], titles: Sequence[str], shown: Quantity) -> list[str]:
    """How often each column is the best, over the rows that have something to compare."""
    compared = [cells for _, cells in rows if sum(cell.mean is not None for cell in cells) > 1]
    if len(compared) < 2 or shown.better is None:
        return []
    counts = [(title, sum(cells[i].is_best for cells in compared)) for i, title in enumerate(titles)]
    told = ", ".join(f"{title} {count}" for title, count in sorted(counts, key=lambda pair: -pair[1]) if count)
    return [f"Best of its row, out of {len(compared)}: {told}."]


def ordered(methods: Sequence[str]) -> list[str]:
    known = [name for name in METHODS if name in methods]
    return known + sorted(name for name in methods if name not in METHODS)


def title_of(method: str) -> str:
    return METHODS[method].title if method in METHODS else REFERENCES.get(method) or one_line(method, 40)


def runs_told(cells: Sequence[Cell]) -> str:
    low, high = min(cell.runs for cell in cells), max(cell.runs for cell in cells)
    if high == 1:
        return "one run a cell"
    return f"mean ± std over {high} seeds" if low == high else f"mean ± std over {low} to {high} seeds"
