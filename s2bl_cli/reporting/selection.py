"""From scores files to the rows of one metric: filtered, and without double counting."""

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from s2bl_cli.contract.scores import LOGGING_POLICY, SCHEMA
from s2bl_cli.errors import ContractError, SettingError, one_line

CELL = ("dataset", "tau", "rho", "method", "metric")  # what makes a cell of a table
_TELLING = (
    "lam",
    "nu",
    "model",
    "risk",
    "reg",
    "reg_rows",
    "log",
    "split",
    "policy",
    "log_sha256",
    "policy_sha256",
)  # what may differ inside one
_LARGEST = 1e100  # in size, of a value: beyond are NaN, infinity, and what overflows when squared


def selected_scores(table: pa.Table, metrics: Sequence[str], where: Sequence[str]) -> pl.DataFrame:
    """The distinct scores of these metrics that every `column=value` filter admits."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    is_learned = pl.col("method") != LOGGING_POLICY
    for text in where:
        column, condition = _condition(text)
        if frame.filter(is_learned & condition).is_empty():
            raise SettingError(
                f"no policy's score is left by --where {' --where '.join(map(repr, where))}; "
                f"s2bl inspect shows what is there"
            )
        # The logging policy has no λ, no seed, and a risk alone no λ: a choice of them leaves these in the table.
        has_none = pl.col(column).is_null() & (~is_learned | (pl.col("reg") == "none"))
        frame = frame.filter(condition | has_none)
    there = frame["metric"].unique(maintain_order=True).to_list()
    frame = frame.filter(pl.col("metric").is_in(list(metrics)))
    if frame.is_empty():
        raise SettingError(
            f"no score of {' or '.join(dict.fromkeys(metrics))} in these files; "
            f"they have {one_line(', '.join(there))}: pass --metric"
        )
    for odd in frame.filter(~(pl.col("value").abs() < _LARGEST)).iter_rows(named=True):
        raise ContractError(
            f"{one_line(odd['policy'], 60)} has {odd['metric']} {odd['value']} on {one_line(odd['log'], 60)}, which no "
            f"table can average: evaluate it again, or leave it out with --where"
        )
    # The same policy scored twice on the same rows is one score, not two runs.
    return frame.unique(["policy", "policy_sha256", "log_sha256", "split", "metric"], keep="first", maintain_order=True)


def _condition(text: str) -> tuple[str, pl.Expr]:
    """The column and the filter."""
    column, equals, value = text.partition("=")
    if not equals or column not in SCHEMA.names:
        raise SettingError(
            f"--where must be COLUMN=VALUE with a column of {', '.join(SCHEMA.names)}, found {one_line(text, 60)!r}"
        )
    if not pa.types.is_floating(SCHEMA.field(column).type) and not pa.types.is_integer(SCHEMA.field(column).type):
        return column, pl.col(column) == value
    try:
        return column, pl.col(column) == float(value)
    except ValueError as error:
        raise SettingError(f"--where {column}=… needs a number, found {one_line(value, 40)!r}") from error


def check_one_run_a_seed(frame: pl.DataFrame) -> None:
    """Refuse to average runs that are not repetitions of one another; say what tells them apart."""
    learned = frame.filter(pl.col("method") != LOGGING_POLICY)
    repeated = learned.filter(pl.len().over([*CELL, "seed"]) > 1)
    if repeated.is_empty():
        return
    first = repeated.row(0, named=True)
    same = repeated.filter(pl.all_horizontal(pl.col(name).eq_missing(pl.lit(first[name])) for name in (*CELL, "seed")))
    for name in _TELLING:
        values = same[name].unique(maintain_order=True).to_list()
        if len(values) > 1:
            told = " and ".join(one_line(value, 60) for value in values[:4])
            raise ContractError(
                f"{first['method']} at dataset {first['dataset']}, τ {first['tau']}, ρ {first['rho']}, seed "
                f"{first['seed']} has {same.height} runs that differ in {name}: {told}; "
                f"choose with --where {name}={one_line(values[0], 60)}"
            )
    raise ContractError(
        f"{first['method']} with seed {first['seed']} is there {same.height} times with different numbers; give one run"
    )
