"""The main table: rows dataset/τ/ρ, one column a method, mean ± std over seeds, best in bold.

The last column is the logging policy: the share of right draws in the log, as in the paper's tables.
"""

import math
from collections.abc import Sequence

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.reporting.selection import check_one_run_a_seed
from s2bl_cli.reporting.table import Cell, Table

KEYS = ("dataset", "tau", "rho")
DRAWN = "sampled-accuracy"


def build(frame: pl.DataFrame, metric: str) -> Table:
    """`frame` has the scores of `metric`, and of the drawn actions for the logging policy."""
    learned = frame.filter((pl.col("method") != LOGGING_POLICY) & (pl.col("metric") == metric))
    if learned.is_empty():
        raise SettingError(f"no trained policy has a score of {metric} in these files: evaluate some")
    check_one_run_a_seed(learned)
    logging = frame.filter((pl.col("method") == LOGGING_POLICY) & (pl.col("metric") == DRAWN))
    methods = _ordered(learned["method"].unique().to_list())
    rows = []
    for keys in learned.select(KEYS).unique().sort(KEYS, nulls_last=True).iter_rows():
        here = learned.filter(_matches(KEYS, keys))
        cells = [_cell(here.filter(pl.col("method") == method)["value"].to_list()) for method in methods]
        made_by = logging.filter(_matches(KEYS[:2], keys[:2])).unique(["value", "rows"], maintain_order=True)
        cells.append(_cell(made_by["value"].to_list()))
        rows.append((tuple(_key_text(value) for value in keys), _best_marked(cells)))
    columns = (*(METHODS[m].title if m in METHODS else m for m in methods), "Logging policy (drawn)")
    return Table(("dataset", "τ", "ρ"), columns, tuple(rows), f"{_words(metric)} in %, {_runs(learned)}")


def _matches(names: Sequence[str], values: Sequence[object]) -> pl.Expr:
    return pl.all_horizontal(pl.col(name).eq_missing(pl.lit(value)) for name, value in zip(names, values, strict=True))


def _cell(values: list[float]) -> Cell:
    if not values:
        return Cell()
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Cell(mean)
    return Cell(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)))


def _best_marked(cells: list[Cell]) -> tuple[Cell, ...]:
    """Every cell that prints as high as the highest is best: a tie at two digits of a percent is a tie."""
    printed = [None if cell.mean is None else round(100 * cell.mean, 2) for cell in cells]
    best = max(value for value in printed if value is not None)
    return tuple(Cell(cell.mean, cell.std, value == best) for cell, value in zip(cells, printed, strict=True))


def _ordered(methods: list[str]) -> list[str]:
    known = [name for name in METHODS if name in methods]
    return known + sorted(name for name in methods if name not in METHODS)


def _key_text(value: float | str | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:g}"


def _words(metric: str) -> str:
    return metric.replace("-", " ").capitalize()


def _runs(learned: pl.DataFrame) -> str:
    seeds = learned.group_by([*KEYS, "method"]).len()["len"].to_list()
    low, high = min(seeds), max(seeds)
    if high == 1:
        return "one run a cell"
    return f"mean ± std over {high} seeds" if low == high else f"mean ± std over {low} to {high} seeds"
