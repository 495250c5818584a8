"""Values estimated from the log: one row per estimator and one column per policy. Below are the true value, if it is
known, gains over baselines, and the health figures of each policy.

A cell is the estimate with its interval for a single run, and mean ± std for several seeds.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.metrics.gains import BETTER, HEADLINES, SINGLE, baseline_words
from s2bl_cli.reporting.quantities import (
    ESTIMATORS,
    HEALTH,
    HEALTH_ROWS,
    TRUE_RISK,
    VERDICTS,
    Metric,
    quantity,
    short_title,
)
from s2bl_cli.reporting.repetitions import with_paired
from s2bl_cli.reporting.runs import arranged, cells_by, numbers_in_words, row_keys
from s2bl_cli.reporting.selection import metrics_of, of_metrics, with_truth
from s2bl_cli.reporting.settings import ReportSettings
from s2bl_cli.reporting.significance import marked, significance_notes
from s2bl_cli.reporting.table import Cell, Health, Row, Table

_OVER = " over "  # between a gain and its baseline


def build(frame: pl.DataFrame, settings: ReportSettings) -> Table:
    metrics = metrics_of(frame)
    chosen = [name for name in ESTIMATORS if name in metrics and settings.metric in (name, None)]
    if not chosen:
        asked = f" {one_line(settings.metric, 40)}" if settings.metric else ""
        raise SettingError(
            f"no estimate{asked} of a policy's value in these files; they have {', '.join(metrics)}: "
            f"s2bl evaluate makes some, or try --table main"
        )
    gained = [name + SINGLE for name in chosen if name in HEADLINES or name == settings.metric]
    # Policies and logs without estimates are in other tables.
    estimated = frame.filter(pl.col("metric").is_in(chosen)).select("method", "log_sha256").unique()
    scores = of_metrics(frame, [*chosen, TRUE_RISK, *gained, *HEALTH_ROWS])
    scores = _by_baseline(scores, gained).join(estimated, on=["method", "log_sha256"], how="semi")
    names = (*chosen, TRUE_RISK, *_gain_rows(scores, gained), *HEALTH_ROWS)
    shown = [name for name in names if name in metrics_of(scores)]
    own_keys = ("dataset", "tau", "rho", *(("log",) if scores["log"].n_unique() > 1 else ()))
    table = arranged(with_paired(with_truth(scores), frame), row_keys(scores, settings.row_columns, own_keys))
    by = [*table.keys, "column"]
    cells = {
        name: cells_by(
            table.runs.filter(pl.col("metric") == name),
            by,
            name,
            intervals=name not in (TRUE_RISK, *HEALTH_ROWS),
        )
        for name in shown
    }
    rows: list[Row] = []
    for values in table.runs.select(table.keys).unique(maintain_order=True).rows():
        for metric in shown:
            row = [cells[metric].get((*values, column), Cell()) for column in table.titles]
            if any(cell.mean is not None for cell in row):
                title, how = _row_title(metric)
                rows.append(((*values, title), marked(row, how, settings.significance)))
    lines = (*_gain_lines(frame), *(health.line for health in verdicts(scores)))
    notes = dict.fromkeys((*significance_notes(rows), *table.notes, *lines))
    estimates = scores.filter(pl.col("metric").is_in(chosen))
    numbers = numbers_in_words([cell for _, row in rows for cell in row if cell.mean is not None], estimates)
    caption = f"Expected reward estimated from the log: {numbers}"
    return Table((*table.keys, "estimator"), table.titles, tuple(rows), caption, tuple(notes))


def _by_baseline(scores: pl.DataFrame, gained: Sequence[str]) -> pl.DataFrame:
    """Gains over different baselines as different metrics: `dr-gain over uniform`."""
    is_gain = pl.col("metric").is_in(list(gained))
    return scores.with_columns(
        metric=pl.when(is_gain).then(pl.concat_str("metric", pl.lit(_OVER), "baseline")).otherwise("metric"),
        baseline=pl.when(~is_gain).then("baseline"),
    )


def _gain_rows(scores: pl.DataFrame, gained: Sequence[str]) -> list[str]:
    """In the order of the estimators."""
    return [name for gain in gained for name in metrics_of(scores) if name.startswith(gain + _OVER)]


def _row_title(metric: str) -> tuple[str, Metric]:
    """The title of a row, and how its numbers are compared."""
    gain, _, baseline = metric.partition(_OVER)
    if baseline:
        return f"{short_title(gain)} over {baseline_words(baseline)}", quantity(gain)
    return ("truth", quantity("ips")) if metric == TRUE_RISK else (short_title(metric), quantity(metric))


def _gain_lines(frame: pl.DataFrame) -> Iterator[str]:
    """Whether each policy is better than the baseline, in the words of `evaluate`."""
    for row in frame.filter((pl.col("metric") == BETTER) & pl.col("note").is_not_null()).iter_rows(named=True):
        yield f"{one_line(row['policy'], 60)} on {one_line(row['log'], 60)}: {one_line(row['note'], 300)}"


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
