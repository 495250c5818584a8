"""The columns that make a table's rows: what they are called, how a value is printed, and in which order."""

import math
from collections.abc import Sequence

import polars as pl

from s2bl_cli.errors import one_line
from s2bl_cli.objectives.hyperparameters import declared_hyperparameters
from s2bl_cli.registry import DATASETS

Key = str | float | int | None

NOTHING = "–"

_TITLES = {
    "tau": "τ",
    "rho": "ρ",
    "mask.rho": "ρ",
    "trained_tau": "trained at τ",
    "trained_on": "trained on",
    "known": "known rows",
    "missing": "missing rows",
    "ratio": "missing / known",
    "policy_sha256": "policy",
    "log_sha256": "log",
    "reg": "regulariser",
    "reg_rows": "regulariser's rows",
}
_PHRASES = {
    "dataset": "{}",
    "model": "{}",
    "log": "{}",
    "split": "{}",
    "policy": "{}",
    "epochs": "{} epochs",
    "known": "{} known rows",
}


def key_title(name: str) -> str:
    """What a column is called in tables: a hyperparameter by its symbol."""
    symbols = {declared.name: declared.symbol for declared in declared_hyperparameters().values()}
    return {**_TITLES, **symbols}.get(name, name.removeprefix("asked."))


def key_text(value: object) -> str:
    """As a person reads it: four digits of a fraction are enough."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:g}"
    return one_line(value, 80)


def key_phrase(name: str, value: object) -> str:
    """A column and its value in a title: `λ 0.1`, `10 epochs`."""
    phrase = _PHRASES.get(name, f"{key_title(name)} {{}}").format(key_text(value))
    return phrase.removesuffix("s") if phrase == "1 epochs" else phrase


def in_words(names: Sequence[str], values: Sequence[object]) -> str:
    """A row in a sentence: `dataset sample, τ 10, ρ 0.02`."""
    return ", ".join(f"{key_title(name)} {key_text(value)}" for name, value in zip(names, values, strict=True))


def row_order(keys: Sequence[str]) -> list[pl.Expr]:
    """To sort by: datasets as the registry has them, before others by name."""
    ranks = {name: rank for rank, name in enumerate(DATASETS.names)}
    rank = pl.col("dataset").replace_strict(ranks, default=len(ranks), return_dtype=pl.Int64)
    return [part for key in keys for part in ([rank, pl.col(key)] if key == "dataset" else [pl.col(key)])]
