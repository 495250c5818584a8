"""Values estimated from the log: one row per estimator and one column per policy. Below are the true value, if it is
known, and the health figures of each policy.

A cell is the estimate with its interval for a single run, and mean ± std for several seeds.
"""

from collections.abc import Iterator

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.quantities import (
    ESTIMATORS,
    HEALTH,
    HEALTH_ROWS,
    TRUE_RISK,
    VERDICTS,
    quantity,
    short_title,
)
from s2bl_cli.reporting.repetitions import with_paired
from s2bl_cli.reporting.runs import arranged, cells_by, row_keys, runs_in_words
from s2bl_cli.reporting.selection import metrics_of, of_metrics, with_truth
from s2bl_cli.reporting.settings import ReportSettings
from s2bl_cli.reporting.significance import marked, significance_notes
from s2bl_cli.reporting.table import Cell, Health, Row, Table


def build(frame: pl.DataFrame, settings: ReportSettings) -> Table:
    metrics = metrics_of(frame)
    chosen = [name for name in ESTIMATORS if name in metrics and settings.metric in (name, None)]
    if not chosen:
        asked = f" {one_line(settings.metric, 40)}" if settings.metric else ""
        raise SettingError(
            f"no estimate{asked} of a policy's value in these files; they have {', '.join(metrics)}: "
            f"s2bl evaluate makes some, or try --table main"
        )
    shown = [*chosen, *(name for name in (TRUE_RISK, *HEALTH_ROWS) if name in metrics)]
    # Policies and logs without estimates are in other tables.
    estimated = frame.filter(pl.col("metric").is_in(chosen)).select("method", "log_sha256").unique()
    scores = of_metrics(frame, shown).join(estimated, on=["method", "log_sha256"], how="semi")
    own_keys = ("dataset", "tau", "rho", *(("log",) if scores["log"].n_unique() > 1 else ()))
    table = arranged(with_paired(with_truth(scores), frame), row_keys(scores, settings.row_columns, own_keys))
    by = [*table.keys, "column"]
    cells = {
        name: cells_by(table.runs.filter(pl.col("metric") == name), by, name, intervals=name in ESTIMATORS)
        for name in shown
    }
    rows: list[Row] = []
    for values in table.runs.select(table.keys).unique(maintain_order=True).rows():
        for metric in shown:
            row = [cells[metric].get((*values, column), Cell()) for column in table.titles]
            if any(cell.mean is not None for cell in row):
                is_truth = metric == TRUE_RISK
                how = quantity("ips" if is_truth else metric)
                title = "truth" if is_truth else short_title(metric)
                rows.append(((*values, title), marked(row, how, settings.significance)))
    notes = dict.fromkeys((*significance_notes(rows), *table.notes, *(health.line for health in verdicts(scores))))
    caption = f"Expected reward estimated from the log: {_numbers_in_words(scores, rows)}"
    return Table((*table.keys, "estimator"), table.titles, tuple(rows), caption, tuple(notes))


def verdicts(frame: pl.DataFrame) -> Iterator[Health]:
    """The verdict and its reason per policy and log, except for the logging policy on its own log."""
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


def _numbers_in_words(scores: pl.DataFrame, rows: list[Row]) -> str:
    cells = [cell for _, row in rows for cell in row if cell.mean is not None]
    estimates = scores.filter(pl.col("metric").is_in(list(ESTIMATORS)))
    levels = estimates["level"].drop_nulls().unique().sort().to_list()
    kinds = estimates["interval"].drop_nulls().unique().sort().to_list()
    if not levels or max(cell.runs for cell in cells) > 1:
        return runs_in_words(cells)
    percent = " and ".join(f"{100 * level:g} %" for level in levels)
    return f"single run, with {percent} intervals ({one_line(', '.join(kinds), 80)})"
