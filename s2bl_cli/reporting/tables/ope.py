"""Values estimated from the log: one row an estimator, one column a policy, then the truth where it is known and the
health of the log for each policy.

A cell is the estimate with its interval where there is one run, and mean ± std where there are several seeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.grid import Wanted, cell_of, finite, is_of_the_log, marked, ordered, title_of
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
    REFERENCES,
    check_runs,
    is_reference,
    key_text,
    key_title,
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
    notes = [note for name in shown for note in check_runs(learned.filter(pl.col("metric") == name), keys)]
    cells = {name: _cells(of_metric(frame, name), keys) for name in shown}
    rows: list[Row] = []
    for values in places(policies, keys):
        for metric in shown:
            row = [cells[metric].get(_address(method, values, keys), Cell()) for method in columns]
            if all(cell.mean is None and cell.text is None for cell in row):
                continue
            how = quantity(metric) if metric != TRUE_RISK else Quantity(TRUTH, quantity("ips").unit, "high")
            title = TRUTH if metric == TRUE_RISK else short_title(metric)
            rows.append(((*map(key_text, values), title), marked(row, how, significance=wanted.significance)))
    notes += [health.line for health in verdicts(frame)]
    titles = tuple(map(title_of, columns))
    caption = f"Expected reward estimated from the log: {_numbers_told(frame, rows)}"
    names = (*map(key_title, keys), "estimator")
    return Table(names, titles, tuple(rows), caption, tuple(columns), tuple(dict.fromkeys(notes)))


def _cells(scores: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[Any, ...], Cell]:
    """The cells of one metric, by method and place."""
    held: dict[tuple[Any, ...], Cell] = {}
    for method, runs in scores.partition_by("method", as_dict=True, maintain_order=True).items():
        names = _place_names(str(method[0]), keys)
        groups = runs.group_by(names, maintain_order=True) if names else [((), runs)]
        held |= {(*method, *values): _cell(group, str(method[0])) for values, group in groups}
    return held


def _address(method: str, values: Sequence[Any], keys: Sequence[str]) -> tuple[Any, ...]:
    place = dict(zip(keys, values, strict=True))
    return (method, *(place[name] for name in _place_names(method, keys)))


def _place_names(method: str, keys: Sequence[str]) -> list[str]:
    """What tells a policy's place; one that was not trained has only its log's."""
    return [name for name in keys if method not in REFERENCES or is_of_the_log(name)]


def _cell(scores: pl.DataFrame, method: str) -> Cell:
    if method in REFERENCES:
        if scores.select("dataset", "tau").n_unique() > 1:
            return Cell()  # a mean over other data than the row's would say nothing
        scores = scores.unique(["value", "rows"], maintain_order=True)
    metric = scores["metric"][0]
    unit = quantity(metric).unit
    if metric == HEALTH:
        return Cell(text=VERDICTS.get(round(min(scores["value"].to_list())), EMPTY_VERDICT))
    if metric == TRUE_RISK:
        return cell_of(scores.with_columns(value=-pl.col("value")), unit)
    cell = cell_of(scores, unit)
    if cell.runs == 1 and metric in ESTIMATORS:
        return replace(cell, low=finite(scores["low"][0]), high=finite(scores["high"][0]))
    return cell


EMPTY_VERDICT = "unknown"


def verdicts(frame: pl.DataFrame) -> Iterator[Health]:
    """One per policy and log: the verdict and its reason. The logging policy on its own log needs none."""
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
