"""What most tables are: one row per setting, one column per method, each cell a number over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.keys import sorted_places
from s2bl_cli.reporting.quantities import ACCURACIES, Quantity, quantity
from s2bl_cli.reporting.runs import arranged, cells_by, ordered, runs_in_words, share_makes_rows, title_of
from s2bl_cli.reporting.selection import REFERENCES, check_metric, listed, of_metrics, trained
from s2bl_cli.reporting.significance import marked, wins
from s2bl_cli.reporting.table import Cell, Row, Table

_NO_KEYS = ("method", "value", "stderr", "low", "high", "note", "metric", "seed", "rows")

SIGNIFICANCE_NOTE = (
    "† differs from the best of its row beyond noise (5 % for the row): Welch's t over seeds, or over standard errors "
    "where there is one run."
)


@dataclass(frozen=True)
class TableRequest:
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


def grid(frame: pl.DataFrame, request: TableRequest, keys: Sequence[str], methods: Sequence[str] = ()) -> Table:
    """Rows by `keys` (or by what was asked for), columns by method; best and second of a row marked; wins counted.

    All methods are there, and a column of the logging policy, unless `methods` are given.
    """
    check_metric(frame, request.metric)
    shown = quantity(request.metric)
    scores = of_metrics(frame, [request.metric])
    table = arranged(scores, row_keys(scores, request, keys), methods)
    titles = column_titles(table.titles, request.metric)
    if not methods:
        titles |= column_titles({LOGGING_POLICY: title_of(LOGGING_POLICY)}, request.metric)
    cells = cells_by(table.runs, [*table.keys, "column"], request.metric)
    rows: list[Row] = []
    for values in sorted_places(table.runs, table.keys):
        row = [cells.get((*values, column), Cell()) for column in titles]
        rows.append((values, marked(row, shown, least=least_of(request.metric), significance=request.significance)))
    left_out = sorted(set(trained(frame)["method"]) - set(table.runs["method"]))
    notes = [
        *wins(rows, list(titles.values()), shown),
        *([SIGNIFICANCE_NOTE] if any(cell.differs for _, row in rows for cell in row) else []),
        *table.notes,
        *(
            [f"Without a score of {request.metric}, and so not here: {', '.join(ordered(left_out))}."]
            if left_out
            else []
        ),
    ]
    repeated = runs_in_words([cell for place, cell in cells.items() if place[-1] not in REFERENCES])
    heads = tuple(shown.by if key == "label" else key for key in table.keys)
    return Table(heads, titles, tuple(rows), f"{words_of(shown)}, {repeated}", tuple(notes))


def row_keys(scores: pl.DataFrame, request: TableRequest, keys: Sequence[str]) -> tuple[str, ...]:
    """What was asked for, else the table's own; a row per class where scores are by class."""
    if request.group_by:
        keys = request.group_by
    elif not share_makes_rows(scores):
        keys = [key for key in keys if key != "rho"]
    is_by_class = scores["label"].null_count() < scores.height
    return (*keys, "label") if is_by_class and "label" not in keys else tuple(keys)


def column_titles(titles: Mapping[str, str], metric: str) -> dict[str, str]:
    """The accuracy of a reference is that of its draws, and its title says so."""
    drawn = " (drawn)" if metric in ACCURACIES else ""
    return {name: title + drawn if name in REFERENCES else title for name, title in titles.items()}


def least_of(metric: str) -> float:
    """A divergence is at least 0; what is estimated below is noise."""
    return 0.0 if metric.startswith(("kl-", "reverse-kl-")) else -math.inf


def words_of(shown: Quantity) -> str:
    return " ".join(filter(None, (shown.title, shown.unit.words)))
