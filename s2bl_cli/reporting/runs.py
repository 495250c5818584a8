"""Find out which runs are repetitions, arrange runs in the rows and columns of a table, and average repetitions.

Runs are repetitions if their requested settings differ only in seeds (of training, of the mask and of the log). Values
that result from the request may differ too, such as a selected λ or the number of known rows. Runs with different
requests are never averaged: policies get one column per request, and logs that are not repetitions get separate rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import polars as pl

from s2bl_cli.contract.scores import SCHEMA
from s2bl_cli.errors import ContractError, one_line
from s2bl_cli.objectives.hyperparameters import declared_hyperparameters
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.reporting.quantities import HEALTH, VERDICTS, quantity
from s2bl_cli.reporting.repetitions import PAIRED, repetitions_of
from s2bl_cli.reporting.searches import search_notes
from s2bl_cli.reporting.selection import REFERENCES, is_reference
from s2bl_cli.reporting.table import Cell, in_words, key_phrase, key_text, row_order

_OUTCOMES = ("known", "missing")
_OF_THE_LOG = ("dataset", "tau", "logging_model", "logs.dataset", "logs.tau")  # in the row's keys, or in `trained_on`
_NO_REQUEST = {*SCHEMA.names, *_OUTCOMES, *_OF_THE_LOG, *PAIRED, "ratio", "epoch", "quantity", "column"}
_ASKED = "asked."
_MOST_COLUMNS = 8  # of one method; more are not readable
_NAMED = 4  # values or cells in a message; the others are counted


@dataclass(frozen=True)
class Arranged:
    """Runs in the order of a table. The columns `keys` define the rows, and `column` is a key of `titles`."""

    runs: pl.DataFrame
    keys: tuple[str, ...]
    titles: dict[str, str]
    methods: dict[str, str]  # by column
    notes: tuple[str, ...]  # on different requests, and on results that differ between repetitions


def requests(runs: pl.DataFrame) -> dict[str, pl.Expr]:
    """The requested value of each setting: the grid, if one of its values was selected."""
    names = [name for name in runs.columns if name not in _NO_REQUEST and not name.endswith("seed")]
    chosen = {name: pl.col(name) for name in names}
    for name in names:
        setting = name.removeprefix(_ASKED)
        if setting != name and setting in names:
            chosen[setting] = pl.coalesce(chosen.pop(name), pl.col(setting).cast(pl.String).str.strip_suffix(".0"))
    masks = [pl.col(name).is_not_null() for name in names if name.startswith("mask.")]
    if masks and "rho" in chosen:
        # After a mask, ρ is the result of the requested fraction or number.
        chosen["rho"] = pl.when(~pl.any_horizontal(masks)).then("rho").alias("rho")
    return chosen


def what_differs(runs: pl.DataFrame, within: Sequence[str]) -> list[str]:
    """The requested settings that differ between runs with equal values in the columns `within`."""
    chosen = {name: request for name, request in requests(runs).items() if name not in within}
    counts = runs.select(request.n_unique().over(within).max().alias(name) for name, request in chosen.items())
    return [name for name, count in counts.to_dicts()[0].items() if count is not None and count > 1]


def share_makes_rows(runs: pl.DataFrame) -> bool:
    """Whether each ρ gets its own row. If policies were trained on other data than they are scored on, this is the case
    only if some of them differ in nothing but the mask. Otherwise all policies of a log are in one row.
    """
    is_elsewhere = (pl.col("trained_on") != pl.col("dataset")) | pl.col("trained_tau").ne_missing(pl.col("tau"))
    elsewhere = runs.filter(pl.col("trained_on").is_not_null() & is_elsewhere)
    asked = elsewhere.select("method", **requests(elsewhere))
    masks = [name for name in asked.columns if name.startswith("mask.")]
    others = [name for name in asked.columns if name not in masks]
    return elsewhere.is_empty() or asked.unique().select(others).is_duplicated().any()


def row_keys(scores: pl.DataFrame, asked: Sequence[str], keys: Sequence[str]) -> tuple[str, ...]:
    """The requested columns, else those of the table. Scores by class have one row per class."""
    if asked:
        keys = asked
    elif not share_makes_rows(scores):
        keys = [key for key in keys if key != "rho"]
    is_by_class = scores["label"].null_count() < scores.height
    return (*keys, "label") if is_by_class and "label" not in keys else tuple(keys)


def arranged(frame: pl.DataFrame, keys: Sequence[str], methods: Sequence[str] = ()) -> Arranged:
    """Arrange every run in its row and column, references in every row of their log. `methods` orders the columns."""
    keys = tuple(keys)
    notes: list[str] = []
    differing = [] if "log" in keys else _what_logs_differ_in(frame, keys)
    if differing:
        keys = (*keys, "log")
        notes = [f"Each log has its own rows, because the logs differ in {', '.join(differing)}: choose with --where."]
    table = with_columns(_in_rows(frame, keys), list(dict.fromkeys((*keys, "metric", "label"))), methods)
    column = pl.col("column").cast(pl.Enum(list(table.titles)))
    runs = table.runs.sort([*row_order(keys), column], nulls_last=True, maintain_order=True)
    notes += [
        *table.notes,
        *_outcome_notes(runs, keys),
        *search_notes(runs),
        *_mask_notes(runs, keys),
        *_limit_notes(runs),
    ]
    return replace(table, runs=runs, keys=keys, notes=tuple(notes))


def _in_rows(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Copy references, which have no ρ and no λ, to every ρ and λ of the policies that are scored on their log. Equal
    scores on the same rows in another file, such as a masked copy, count as one run."""
    references, learned = frame.filter(is_reference()), frame.filter(~is_reference())
    if not references.is_empty() and not learned.is_empty():
        log = ["log_sha256", "split"]
        copied = [key for key in keys if key not in (*log, "label")]
        places = learned.select(*log, *copied).unique(maintain_order=True)
        frame = pl.concat([learned, references.drop(copied).join(places, on=log).select(frame.columns)])
    return frame.unique([*_policy_in_row(keys), "value", "rows"], keep="first", maintain_order=True)


def _policy_in_row(keys: Sequence[str]) -> list[str]:
    return list(dict.fromkeys((*keys, "metric", "label", "method", "policy", "policy_sha256")))


def _what_logs_differ_in(frame: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    """In which settings the logs of one policy and row differ; empty if they are repetitions."""
    within = _policy_in_row(keys)
    several = _in_rows(frame, keys).filter(pl.len().over(within) > 1)
    return what_differs(several, within) or (["log"] if _is_repeated(several, within) else [])


def _is_repeated(runs: pl.DataFrame, within: Sequence[str], by: Sequence[pl.Expr] = ()) -> bool:
    """Whether runs with equal values in the columns `within` and in `by` also have equal seeds."""
    seeds = [name for name in runs.columns if name.endswith("seed") and name not in within]
    return bool(runs.select(*within, *seeds, *by).is_duplicated().any())


def with_columns(
    runs: pl.DataFrame, keys: Sequence[str], methods: Sequence[str] = (), *, most: int = _MOST_COLUMNS
) -> Arranged:
    """Assign runs to columns: one per method and request. `keys` distinguish the scores of one policy."""
    parts: list[pl.DataFrame] = []
    titles: dict[str, str] = {}
    methods_by_column: dict[str, str] = {}
    separated: list[str] = []
    for method in methods or ordered(runs["method"].unique().to_list()):
        method_runs = runs.filter(pl.col("method") == method)
        differing = what_differs(method_runs, keys)
        separated += [f"{title_of(method)} ({', '.join(differing)})"] if differing else []
        for request, part in _variants(method_runs, keys, differing, most):
            name = _column_name(method, request)
            column = f"{method}:{name}" if name in titles else name
            words = ", ".join(key_phrase(name, value) for name, value in request.items())
            titles[column] = f"{title_of(method)} ({words})" if words else title_of(method)
            methods_by_column[column] = method
            parts.append(part.with_columns(column=pl.lit(column)))
    note = (
        f"Policies with different settings have separate columns: {', '.join(separated)}. "
        "Choose with --where, or make rows with --group-by."
    )
    return Arranged(pl.concat(parts), tuple(keys), titles, methods_by_column, (note,) if separated else ())


def _variants(
    runs: pl.DataFrame, within: Sequence[str], differing: Sequence[str], most: int
) -> list[tuple[dict[str, Any], pl.DataFrame]]:
    """The runs of one method by request: the settings that distinguish them, and the runs.

    If several settings differ, or none, runs are distinguished by the names of their policy files, if these differ.
    """
    chosen = requests(runs)
    file = pl.col("policy").str.strip_suffix(".safetensors")
    by = {name: chosen[name].alias(f"request {name}") for name in differing}
    if _is_repeated(runs, within, list(by.values())):
        by["policy"] = file.alias("request policy")
        if _is_repeated(runs, within, list(by.values())):
            _refuse(runs, within, [name for name in ("log", "policy_sha256") if name in runs.columns])
    if not by:
        return [({}, runs)]
    columns = list(by.values())
    parts = list(runs.group_by(columns, maintain_order=True))
    if len(parts) > most:
        _refuse(runs, within, [*differing, "policy"])
    if len(by) > 1 and runs["policy"].n_unique() == len(parts):
        return [({"policy": part.select(file).item(0, 0)}, part) for _, part in parts]
    if differing:
        parts.sort(key=lambda part: [(value is not None, value) for value in part[0]])
    return [
        ({name: value for name, value in zip(by, values, strict=True) if value is not None}, part)
        for values, part in parts
    ]


def _column_name(method: str, request: Mapping[str, Any]) -> str:
    """The name of a column in claims: the method, `wce-s2bl:lam=0.1`, or the name of the policy file."""
    if list(request) == ["policy"]:
        return key_text(request["policy"]).replace(" ", "_")
    values = [f"{value:.15g}" if isinstance(value, float) else key_text(value) for value in request.values()]
    return ":".join([method, *(f"{name}={value}" for name, value in zip(request, values, strict=True))])


def _refuse(runs: pl.DataFrame, within: Sequence[str], names: Sequence[str]) -> NoReturn:
    """Reject runs of one cell that are too many, or that no setting distinguishes, and report how they differ."""
    keys = [name for name in within if name not in ("metric", "label")]
    same = runs.filter(pl.len().over(within) > 1).partition_by(within, maintain_order=True)[0]
    for name in names:
        values = same[name].unique(maintain_order=True).to_list()
        if len(values) > 1:
            raise ContractError(
                f"{_place(same, keys)} has {same.height} runs that differ in {name}: {_some(values)}; "
                f"choose with --where {name}={one_line(values[0], 70)}, or make rows with "
                f"--group-by {','.join([*keys, name])}"
            )
    raise ContractError(
        f"{_place(same, keys)} has {same.height} runs with equal settings and different values: give one of them"
    )


def _outcome_notes(runs: pl.DataFrame, keys: Sequence[str]) -> Iterator[str]:
    """Notes on hyperparameters and numbers of rows that differ between repetitions, such as a λ selected per seed."""
    cell = [*keys, "column"]
    for name in (*declared_hyperparameters(), *_OUTCOMES):
        mixed = runs.filter(pl.col(name).n_unique().over(cell) > 1).partition_by(cell, maintain_order=True)
        cells = [f"{_place(part, keys)} ({_some(part[name].unique().sort().to_list())})" for part in mixed]
        if cells:
            yield f"Averaged runs differ in {name}: {_some(cells, '; ')}."


def _mask_notes(runs: pl.DataFrame, keys: Sequence[str]) -> Iterator[str]:
    """Seeds that share a mask, or an unmasked log, show the noise of training alone. Scores of version 1 do not say
    whether they do; those of version 2 always have the learning rate."""
    told = [pl.col(name).is_not_null() for name in ("logs.seed", "mask.seed", "lr") if name in runs.columns]
    cell = list(dict.fromkeys((*keys, "column", "metric", "label")))
    counts = (
        runs.filter(~is_reference() & pl.any_horizontal(told))
        .group_by(cell)
        .agg(
            seeds=pl.len(),
            masks=pl.struct("logs.seed", "mask.seed").n_unique(),
            is_masked=pl.col("mask.seed").count() > 0,
        )
    )
    shared = counts.filter(pl.col("masks") < pl.col("seeds")).select("seeds", "masks", "is_masked")
    for seeds, masks, is_masked in shared.unique().sort("seeds", "masks").iter_rows():
        word = "mask" if is_masked else "log"
        if masks == 1:
            yield f"{seeds} seeds on 1 {word}: ± does not include the noise of the {word}."
        else:
            yield f"{seeds} seeds on {masks} {word}s: tests count the {word}s, not the seeds."


def _limit_notes(runs: pl.DataFrame) -> Iterator[str]:
    """Datasets of which only a part was used."""
    if "logs.limit" in runs.columns:
        limits = (
            runs.filter(pl.col("logs.limit").is_not_null()).select("dataset", "logs.limit").unique().sort("dataset")
        )
        parts = [f"{key_text(dataset)} {limit:,.0f}" for dataset, limit in limits.rows()]
        if parts:
            yield f"Logs of a part of their dataset (make-logs --limit): {_some(parts)}."


def _place(runs: pl.DataFrame, keys: Sequence[str]) -> str:
    """The cell of the runs, for messages."""
    method, words = runs["method"][0], in_words(keys, runs.select(keys).row(0)) if keys else ""
    return one_line(" at ".join(filter(None, (method, words))))


def _some(values: Sequence[object], separator: str = ", ") -> str:
    some = separator.join(one_line(value, 160) for value in values[:_NAMED])
    return some if len(values) <= _NAMED else f"{some} and {len(values) - _NAMED} more"


def ordered(methods: Sequence[str]) -> list[str]:
    """Methods in the order of their declaration, then others by name, then the references."""
    others = sorted(set(methods) - {*METHODS, *REFERENCES})
    return [name for name in (*METHODS, *others, *REFERENCES) if name in methods]


def title_of(method: str) -> str:
    return METHODS[method].title if method in METHODS else REFERENCES.get(method) or one_line(method, 40)


def aggregated(runs: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Mean, standard deviation (with n − 1), number, minimum and maximum of the runs.

    A single run keeps its standard error. The ends of intervals are averaged, and null if a run has none.
    """
    value, is_single = pl.col("value"), pl.len() == 1
    is_finite = {name: pl.col(name).is_finite().fill_null(False).all() for name in ("stderr", "low", "high")}
    ends = {name: pl.when(is_finite[name]).then(pl.col(name).mean()) for name in ("low", "high")}
    return runs.group_by(by, maintain_order=True).agg(
        mean=value.mean(),
        std=value.std(),
        runs=pl.len(),
        stderr=pl.when(is_single & is_finite["stderr"]).then(pl.col("stderr").first()),
        least=value.min(),
        largest=value.max(),
        **ends,
    )


def cells_by(
    runs: pl.DataFrame, by: Sequence[str], metric: str, *, intervals: bool = False
) -> dict[tuple[Any, ...], Cell]:
    """One cell per combination of the values of `by`. With `intervals`, a single run has its interval.

    If a cell has several verdicts, the worst counts.
    """
    cells = {}
    groups = runs.partition_by(by, maintain_order=True)
    for row, group in zip(aggregated(runs, by).iter_rows(named=True), groups, strict=True):
        shown = ("mean", "std", "runs", "stderr", *(("low", "high") if intervals and row["runs"] == 1 else ()))
        text = VERDICTS.get(round(row["least"]), "unknown") if metric == HEALTH else None
        numbers = {name: row[name] for name in shown}
        cell = Cell(unit=quantity(metric).unit, text=text, repetitions=repetitions_of(group), **numbers)
        cells[tuple(row[name] for name in by)] = cell
    return cells


def runs_in_words(cells: Sequence[Cell]) -> str:
    low, high = min(cell.runs for cell in cells), max(cell.runs for cell in cells)
    if high == 1:
        return "single run"
    return f"mean ± std over {high} seeds" if low == high else f"mean ± std over {low} to {high} seeds"


def numbers_in_words(cells: Sequence[Cell], scores: pl.DataFrame) -> str:
    """What the cells show: the runs of a mean, or the intervals of single runs."""
    levels = scores["level"].drop_nulls().unique().sort().to_list()
    kinds = scores["interval"].drop_nulls().unique().sort().to_list()
    if not levels or max(cell.runs for cell in cells) > 1:
        return runs_in_words(cells)
    percent = " and ".join(f"{100 * level:g} %" for level in levels)
    return f"single run, with {percent} intervals ({one_line(', '.join(kinds), 80)})"
