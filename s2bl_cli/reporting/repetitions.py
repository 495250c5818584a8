"""What the mean of a cell was made of: its runs as repetitions, and what the scores have to compare it row by row."""

import math
from typing import Any

import numpy as np
import polars as pl

from s2bl_cli.metrics.estimate import normal_quantile
from s2bl_cli.reporting.differences import Floats, Repetitions
from s2bl_cli.reporting.quantities import GAIN, PARTS

PAIRED = ("parts", "baselines", "gain_stderr")  # the columns of `with_paired`


def with_paired(scores: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """The scores, and what `frame` has of the same policy, log and metric: the metric in parts of the rows, and the
    standard errors of gains over baselines. These are by the widths of the intervals, which know of few clusters and of
    the bootstrap; a biased gain has none."""
    keys = ["run", "log_sha256", "split", "metric"]
    run = pl.coalesce("policy_sha256", "policy").alias("run")

    def related(suffix: str) -> pl.DataFrame:
        of_suffix = frame.filter(pl.col("metric").str.ends_with(suffix))
        return of_suffix.with_columns(run, metric=pl.col("metric").str.strip_suffix(suffix))

    parts = related(PARTS).sort("label").group_by(keys).agg(parts=pl.col("value"))
    quantile = pl.col("level").map_elements(normal_quantile, return_dtype=pl.Float64)
    stderr = (pl.col("high") - pl.col("low")) / (2 * quantile)
    gains = related(GAIN).group_by(keys).agg(baselines=pl.col("baseline"), gain_stderr=stderr)
    joined = scores.with_columns(run).join(parts, keys, "left", maintain_order="left")
    return joined.join(gains, keys, "left", maintain_order="left").drop("run")


def repetitions_of(runs: pl.DataFrame) -> Repetitions:
    """Of the runs of a cell. A repetition is a log with its mask: seeds of training that share one are averaged. On a
    single mask the seeds stand for repetitions: they show the noise of training, and none of the mask."""
    masks = list(zip(runs["logs.seed"], runs["mask.seed"], strict=True))
    names: list[Any] = masks if len(set(masks)) > 1 else runs["seed"].to_list()
    units = sorted(set(names), key=str)
    average = np.array([[name == unit for name in names] for unit in units], float)
    average /= average.sum(axis=1, keepdims=True)  # (units, runs)
    values = runs["value"].to_numpy()
    by_unit = average @ values
    rows = frozenset(runs.select("dataset", "split", "rows").iter_rows())
    return Repetitions(
        mean=float(values.mean()),
        variance=float(by_unit.var(ddof=1)) / len(units) if len(units) > 1 else None,
        degrees=len(units) - 1,
        stderr=_stderr(runs["stderr"].to_numpy(), len(rows)),
        units=tuple(units),
        values=by_unit,
        parts=average @ _parts(runs, rows),
        rows=rows,
        policies=frozenset(runs["policy"]),
        logs=frozenset(runs["log"]),
        gains=_gains(runs),
    )


def _stderr(errors: Floats, row_sets: int) -> float | None:
    """Of a mean over runs: rows that all runs share do not average out, but each set of rows has noise of its own."""
    return math.sqrt((errors**2).mean() / row_sets) if np.isfinite(errors).all() else None


def _parts(runs: pl.DataFrame, rows: frozenset[Any]) -> Floats:
    """(runs, parts); without parts unless all runs have them, of the same rows."""
    if "parts" not in runs.columns or runs["parts"].null_count() or len(rows) > 1:
        return np.empty((runs.height, 0))
    return np.array(runs["parts"].to_list())


def _gains(runs: pl.DataFrame) -> dict[str, float]:
    """Baseline → standard error of the gain over it, for the baselines that all runs were compared with."""
    if "baselines" not in runs.columns:
        return {}
    gains = [dict(zip(names or (), errors or (), strict=True)) for names, errors in runs.select(PAIRED[1:]).iter_rows()]
    common = set.intersection(*(set(errors) for errors in gains))
    return {
        name: math.sqrt(sum(errors[name] ** 2 for errors in gains) / len(gains))
        for name in common
        if all(errors[name] is not None for errors in gains)
    }
