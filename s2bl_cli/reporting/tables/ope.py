"""Values estimated from the log: one row an estimator, one column a policy, then the truth where it is known and the
health of the log for each policy.

A cell is the estimate with its interval where there is one run, and mean ± std where there are several seeds.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.grid import Wanted, cell_of, finite, marked, ordered, title_of
from s2bl_cli.reporting.quantities import (
    ESTIMATORS,
    HEALTH,
    HEALTH_ROWS,
    TRUE_RISK,
    VERDICTS,
    Quantity,
    quantity,
    short_title,
)
from s2bl_cli.reporting.report import Health
from s2bl_cli.reporting.selection import (
    KEY_TITLES,
    REFERENCES,
    check_runs,
    is_reference,
    key_text,
    metrics_of,
    of_metric,
    places,
)
from s2bl_cli.reporting.table import Cell, Row, Table

TRUTH = "truth"


def build(frame: pl.DataFrame, wanted: Wanted) -> Table:
    there = metrics_of(frame)
    chosen = [name for name in ESTIMATORS if name in there and wanted.metric in (name, "")]
    if not chosen:
        asked = f" {one_line(wanted.metric, 40)}" if wanted.metric else ""
        raise SettingError(
            f"no estimate{asked} of a policy's value in these files; they have {one_line(', '.join(there))}: "
            f"s2bl evaluate makes some, or try --table main"
        )
    shown = [*chosen, *(name for name in (TRUE_RISK, *HEALTH_ROWS) if name in there)]
    estimated = frame.filter(pl.col("metric").is_in(chosen))
    # Accuracies of other policies, or on other logs, are in other tables.
    frame = frame.join(estimated.select("method", "log_sha256").unique(), on=["method", "log_sha256"], how="semi")
    frame = frame.filter(pl.col("metric").is_in(shown))
    keys = wanted.group_by or ("dataset", "tau", "rho", *(("log",) if frame["log"].n_unique() > 1 else ()))
    learned = frame.filter(~is_reference())
    policies = frame if learned.is_empty() else learned
    references = [name for name in REFERENCES if (frame["method"] == name).any()]
    columns = [*ordered(learned["method"].unique().to_list()), *references]
    rows: list[Row] = []
    notes: list[str] = []
    for values in places(policies, keys):
        place = dict(zip(keys, values, strict=True))
        for metric in shown:
            cells = [_cell(frame, metric, method, place, notes) for method in columns]
            if all(cell.mean is None and cell.text is None for cell in cells):
                continue
            how = quantity(metric) if metric != TRUE_RISK else Quantity(TRUTH, quantity("ips").unit, "high")
            rows.append(
                (
                    (*map(key_text, values), TRUTH if metric == TRUE_RISK else short_title(metric)),
                    marked(cells, how, significance=wanted.significance),
                )
            )
    notes += verdict_lines(frame)
    titles = tuple(map(title_of, columns))
    caption = f"Expected reward estimated from the log: {_numbers_told(frame, rows)}"
    names = (*(KEY_TITLES.get(key, key) for key in keys), "estimator")
    return Table(names, titles, tuple(rows), caption, tuple(columns), tuple(dict.fromkeys(notes)))


def _cell(frame: pl.DataFrame, metric: str, method: str, place: dict[str, Any], notes: list[str]) -> Cell:
    own = method in REFERENCES
    names = [name for name in place if not own or name in ("dataset", "tau", "log", "split")]
    scores = of_metric(frame.filter((pl.col("method") == method) & (pl.col("metric") == metric)), metric).filter(
        pl.all_horizontal(pl.lit(True), *(pl.col(name).eq_missing(pl.lit(place[name])) for name in names))
    )
    if scores.is_empty():
        return Cell()
    if own:
        scores = scores.unique(["value", "rows"], maintain_order=True)
    else:
        notes += check_runs(scores, list(place))
    if metric == HEALTH:
        worst = min(scores["value"].to_list())
        return Cell(text=VERDICTS.get(round(worst), EMPTY_VERDICT))
    if metric == TRUE_RISK:
        scores = scores.with_columns(value=-pl.col("value"), low=-pl.col("high"), high=-pl.col("low"))
        return cell_of(scores, quantity(metric).unit)
    cell = cell_of(scores, quantity(metric).unit)
    if cell.runs == 1 and metric in ESTIMATORS:
        return replace(cell, low=finite(scores["low"][0]), high=finite(scores["high"][0]))
    return cell


EMPTY_VERDICT = "unknown"


def verdict_lines(frame: pl.DataFrame) -> list[str]:
    """One line a policy and log: the verdict and its reason. The logging policy on its own log needs none."""
    return [health.line for health in verdicts(frame)]


def verdicts(frame: pl.DataFrame) -> Iterator[Health]:
    judged = frame.filter((pl.col("metric") == HEALTH) & (pl.col("method") != LOGGING_POLICY))
    for row in judged.iter_rows(named=True):
        level = round(row["value"]) if row["value"] in (0, 1, 2) else 0
        verdict = VERDICTS[level]
        words = one_line(row["note"] or verdict, 300)
        yield Health(
            one_line(row["policy"], 60),
            one_line(row["log"], 60),
            level,
            words if words.startswith(verdict) else f"{verdict}: {words}",
        )


def _numbers_told(frame: pl.DataFrame, rows: list[Row]) -> str:
    estimates = frame.filter(pl.col("metric").is_in(list(ESTIMATORS)))
    cells = [cell for _, row in rows for cell in row if cell.mean is not None]
    low, high = min(cell.runs for cell in cells), max(cell.runs for cell in cells)
    if high > 1:
        return f"mean ± std over {high if low == high else f'{low} to {high}'} seeds"
    levels = estimates["level"].drop_nulls().unique().sort().to_list()
    kinds = estimates["interval"].drop_nulls().unique().sort().to_list()
    if not levels:
        return "one run a cell"
    percent = " and ".join(f"{100 * level:g} %" for level in levels)
    return f"one run a cell, with {percent} intervals ({one_line(', '.join(kinds), 80)})"
