"""From scores files to the scores of a report: filtered, without double counting, and refused where runs are mixed."""

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import polars as pl
import pyarrow as pa

from s2bl_cli.contract.scores import BIN, LOGGING_POLICY, SCHEMA
from s2bl_cli.contract.settings_text import expanded_settings
from s2bl_cli.errors import ContractError, SettingError, one_line
from s2bl_cli.objectives.hyperparameters import declared_hyperparameters
from s2bl_cli.registry import DATASETS
from s2bl_cli.reporting.quantities import ACCURACIES, ESTIMATORS

UNIFORM = "uniform"
REFERENCES = {
    LOGGING_POLICY: "Logging policy",
    UNIFORM: "Uniform policy",
}  # trained on nothing: beside every ρ of a log

_CELLS_NAMED = 5  # whose runs differ; of more, the number is told

_OF_THE_KIND = ("model", "risk", "reg", "reg_rows", "split")  # runs that differ in these are no repetitions
_ROWS = ("known", "missing")
_TYPES = {
    **dict.fromkeys(("dataset", "model", "risk", "reg", "reg_rows"), pa.string()),
    **dict.fromkeys(("tau", "rho"), pa.float64()),
    **dict.fromkeys(_ROWS, pa.int64()),
}  # settings that tables compare and compute with

_LARGEST = 1e100  # in size, of a value: beyond are NaN, infinity, and what overflows when squared
_SAME = 1e-6  # two scorings of one policy on one log may differ by so much: another machine, another thread count
_SAME_SHARE = 0.01  # and bins' shares by so much: then a weight at an edge may fall to either side


def is_reference() -> pl.Expr:
    return pl.col("method").is_in(list(REFERENCES))


def with_settings(table: pa.Table) -> pl.DataFrame:
    """One column per setting; what tables and figures ask for is there, whatever the files have."""
    return pl.DataFrame(expanded_settings(table, {**_TYPES, **dict.fromkeys(declared_hyperparameters())}))


def differing_hyperparameters(frame: pl.DataFrame) -> list[str]:
    """Those of which some method has several values."""
    counts = frame.group_by("method").agg(pl.col(*declared_hyperparameters()).n_unique())
    return [name for name in declared_hyperparameters() if counts[name].max() != 1]


def listed(columns: Sequence[str], missed: str) -> str:
    """Columns in a message, those nearest to what was typed first."""
    near = get_close_matches(missed, columns)
    return one_line(", ".join(dict.fromkeys((*near, *columns))), 2000)


def selected_scores(table: pa.Table, where: Sequence[str]) -> pl.DataFrame:
    """The distinct scores that every `column=value` filter admits."""
    frame = with_settings(table)
    for text in where:
        column, condition = _condition(text, frame.schema)
        if frame.filter(~is_reference() & condition).is_empty():
            raise SettingError(
                f"no policy's score is left by --where {' --where '.join(map(repr, where))}; "
                f"s2bl inspect shows what is there"
            )
        # The logging policy has no λ, no seed, and a risk alone no λ: a choice of them leaves these in the table.
        has_none = pl.col(column).is_null() & (is_reference() | (pl.col("reg") == "none"))
        frame = frame.filter(condition | has_none)
    return _distinct(frame)


def _distinct(frame: pl.DataFrame) -> pl.DataFrame:
    """The same policy scored twice on the same rows is one score, not two runs; with two numbers it is a fault."""
    # By digest, whatever the file is called; what has no digest, by its name.
    told = frame.with_columns(_identity=pl.coalesce("policy_sha256", "policy"))
    scored = ["_identity", "method", "log_sha256", "split", "metric", "label"]
    spread = (pl.col("value").max() - pl.col("value").min()).over(scored)
    allowed = (
        pl.when(pl.col("interval") == BIN).then(_SAME_SHARE).otherwise(_SAME * pl.col("value").abs().max().over(scored))
    )
    is_wide = ~spread.is_nan() & (spread > allowed)
    for odd in told.filter(is_wide).head(1).iter_rows(named=True):
        values = told.filter(is_at(scored, [odd[key] for key in scored]))["value"].unique(maintain_order=True).head(4)
        raise ContractError(
            f"{one_line(odd['policy'], 60)} has several values of {one_line(odd['metric'], 40)} on "
            f"{one_line(odd['log'], 60)}: {' and '.join(f'{value:g}' for value in values)}; "
            f"give the scores of one evaluation"
        )
    return told.unique(scored, keep="first", maintain_order=True).drop("_identity")


def _condition(text: str, schema: pl.Schema) -> tuple[str, pl.Expr]:
    """The column and the filter."""
    column, equals, value = text.partition("=")
    is_not = column.endswith("!")
    column = column.removesuffix("!")
    if not equals or column not in schema:
        raise SettingError(
            f"--where must be COLUMN=VALUE with a column of {listed(list(schema), column)}, "
            f"found {one_line(text, 60)!r}"
        )
    if not schema[column].is_numeric():
        condition = (pl.col(column) == value) | pl.col(column).is_in(value.split(","))
    else:
        try:
            condition = pl.col(column).cast(pl.Float64).is_in([float(part) for part in value.split(",")])
        except ValueError as error:
            raise SettingError(f"--where {column}=… needs a number, found {one_line(value, 40)!r}") from error
    condition = condition.fill_null(False)
    return column, ~condition if is_not else condition


def of_metric(frame: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The scores of one metric, which are numbers."""
    found = frame.filter(pl.col("metric") == metric)
    for odd in found.filter(~(pl.col("value").abs() < _LARGEST)).iter_rows(named=True):
        raise ContractError(
            f"{one_line(odd['policy'], 60)} has {odd['metric']} {odd['value']} on {one_line(odd['log'], 60)}, which no "
            f"table can average: evaluate it again, or leave it out with --where"
        )
    return found


def default_metric(frame: pl.DataFrame) -> str:
    """The number in the cells where none is asked for, of those all methods have: an accuracy, else an estimate."""
    trained = frame.filter(~is_reference())
    methods = (frame if trained.is_empty() else trained).partition_by("method", maintain_order=True, as_dict=True)
    metrics = {str(name): metrics_of(scores) for (name,), scores in methods.items()}
    common = [name for name in metrics_of(frame) if all(name in there for there in metrics.values())]
    if not common:
        told = "; ".join(f"{name} has {', '.join(there[:3])}" for name, there in list(metrics.items())[:3])
        raise SettingError(f"these policies have no metric in common: {one_line(told)}; pass --metric, or other scores")
    preferred = [name for name in (*ACCURACIES, "ppi-dr", "dr", "snips", *ESTIMATORS) if name in common]
    return (preferred or common)[0]


def metrics_of(frame: pl.DataFrame) -> list[str]:
    return frame["metric"].unique(maintain_order=True).to_list()


def check_metric(frame: pl.DataFrame, metric: str) -> None:
    """Refuse a metric that is not there; name those that are."""
    there = metrics_of(frame)
    if metric not in there:
        raise SettingError(
            f"no score of {one_line(metric, 40)} in these files; they have {one_line(', '.join(there))}: pass --metric"
        )
    if metric not in metrics_of(frame.filter(~is_reference())):
        raise SettingError(f"no trained policy has a score of {one_line(metric, 40)} in these files: evaluate some")


def check_runs(learned: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    """Refuse to average runs that are not repetitions of one another; say what tells them apart.

    `learned` has one metric. What seeds may differ in, such as a λ that was chosen for each, is returned as notes.
    """
    cell = [*keys, "method"]
    repeated = learned.filter(pl.len().over([*cell, "seed"]) > 1)
    if not repeated.is_empty():
        _refuse(repeated, [*cell, "seed"], keys, [name for name in _telling(learned) if name not in keys])
    notes = []
    for name in (*_OF_THE_KIND, *declared_hyperparameters(), *_ROWS):
        mixed = learned.filter(pl.col(name).n_unique().over(cell) > 1)
        if name in keys or mixed.is_empty():
            continue
        if name in _OF_THE_KIND:
            _refuse(mixed, cell, keys, [name])
        cells = mixed.unique(cell, keep="first", maintain_order=True)
        for one in cells.head(_CELLS_NAMED).iter_rows(named=True):
            values = mixed.filter(is_at(cell, [one[key] for key in cell]))[name].unique().sort().to_list()
            notes.append(f"The runs of {_place(one, keys)} differ in {name}: {_told(values)}.")
        if cells.height > _CELLS_NAMED:
            notes.append(f"So do those of {cells.height - _CELLS_NAMED} more cells.")
    return notes


def _telling(frame: pl.DataFrame) -> list[str]:
    """What may differ between runs that would share a cell, the telling ones first."""
    hyperparameters, settings = declared_hyperparameters(), [n for n in frame.columns if n not in SCHEMA.names]
    first = ("dataset", "tau", "rho", *hyperparameters, *_OF_THE_KIND, *_ROWS, *settings)
    return list(dict.fromkeys((*first, "log", "policy", "log_sha256", "policy_sha256")))


def places(frame: pl.DataFrame, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """The different values of the keys, in the order of a table's rows: datasets as the registry has them, numbers by
    size, what is unknown last."""
    found = frame.select(keys).unique().rows()
    return sorted(found, key=lambda row: [_rank(key, value) for key, value in zip(keys, row, strict=True)])


def _rank(key: str, value: Any) -> tuple[int, Any]:
    if value is None:
        return len(DATASETS.names) + 1, 0
    if key == "dataset":
        return DATASETS.names.index(value) if value in DATASETS.names else len(DATASETS.names), value
    return 0, value


def _refuse(mixed: pl.DataFrame, cell: Sequence[str], keys: Sequence[str], names: Sequence[str]) -> None:
    first = mixed.row(0, named=True)
    same = mixed.filter(is_at(cell, [first[key] for key in cell]))
    place = _place(first, keys) + (f", seed {first['seed']}" if "seed" in cell else "")
    for name in names:
        values = same[name].unique(maintain_order=True).to_list()
        if len(values) > 1:
            raise ContractError(
                f"{place} has {same.height} runs that differ in {name}: {_told(values)}; "
                f"choose with --where {name}={one_line(values[0], 60)}"
            )
    raise ContractError(f"{place} is there {same.height} times with different numbers; give one run")


def is_at(names: Sequence[str], values: Sequence[object]) -> pl.Expr:
    """Whether a score has these values of these columns, null being a value like others."""
    return pl.all_horizontal(pl.col(k).eq_missing(pl.lit(v)) for k, v in zip(names, values, strict=True))


def _place(row: dict[str, object], keys: Sequence[str]) -> str:
    parts = ", ".join(f"{key_title(name)} {key_text(row[name])}" for name in keys)
    return one_line(f"{row['method']} at {parts}" if parts else str(row["method"]))


def _told(values: Sequence[object]) -> str:
    told = " and ".join(one_line(value, 60) for value in values[:4])
    return told if len(values) <= 4 else f"{told} and {len(values) - 4} more"


_TITLES = {
    "tau": "τ",
    "rho": "ρ",
    "known": "known rows",
    "missing": "missing rows",
    "ratio": "missing / known",
    "label": "class",
    "policy_sha256": "policy",
    "log_sha256": "log",
    "reg": "regulariser",
    "reg_rows": "regulariser's rows",
}


def key_title(name: str) -> str:
    """What a column is called in tables: a hyperparameter by its symbol."""
    symbols = {declared.name: declared.symbol for declared in declared_hyperparameters().values()}
    return {**_TITLES, **symbols}.get(name, name)


def key_text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return one_line(value, 80)
    return f"{value:g}" if math.isfinite(value) else "–"
