"""Hyperparameters that were selected from a grid: which values, and which of them lie at the edge of their grid.

A value at the edge may be far from the best: the grid should be extended there.
"""

from collections.abc import Iterator

import polars as pl

from s2bl_cli.objectives.hyperparameters import declared_hyperparameters
from s2bl_cli.reporting.selection import is_reference

_NAMED = 6  # methods in a note; the others are counted


def search_notes(runs: pl.DataFrame) -> Iterator[str]:
    """One note per hyperparameter with the selected values of each method, and one on those at an edge."""
    policies = runs.filter(~is_reference()).unique(["policy", "policy_sha256"], maintain_order=True)
    for name, declared in declared_hyperparameters().items():
        if f"asked.{name}" not in policies.columns or name not in policies.columns:
            continue
        searched = _searched(policies, name)
        if searched.is_empty():
            continue
        parts = [_selected(str(method), of_method) for (method,), of_method in
                 searched.group_by("method", maintain_order=True)]  # fmt: skip
        yield f"Selected {declared.symbol}: {_some(parts)}."
        edges = searched.filter(pl.col("is_edge"))
        if not edges.is_empty():
            counts = [f"{method} in {of_method.height} of {searched.filter(method=method).height} policies"
                      for (method,), of_method in edges.group_by("method", maintain_order=True)]  # fmt: skip
            yield (
                f"Warning: the selected {declared.symbol} lies at the edge of its grid: {_some(counts)}. "
                f"A grid that goes further may have better values."
            )


def _searched(policies: pl.DataFrame, name: str) -> pl.DataFrame:
    """The policies whose value was selected from several numbers, with `is_edge`."""
    grid = pl.col(f"asked.{name}").cast(pl.String).str.split(",").list.eval(pl.element().cast(pl.Float64, strict=False))
    value = pl.col(name).cast(pl.Float64, strict=False)
    is_searched = (grid.list.len() > 1) & (grid.list.drop_nulls().list.len() == grid.list.len()) & value.is_not_null()
    at_edge = (value == grid.list.min()) | (value == grid.list.max())
    return policies.select(
        "method", value=value, grid=f"asked.{name}", is_searched=is_searched, is_edge=at_edge
    ).filter(pl.col("is_searched").fill_null(False))


def _selected(method: str, policies: pl.DataFrame) -> str:
    """`wce-s2bl 1 (4×), 10 (2×) of 0.1,1,10`."""
    counts = policies["value"].value_counts().sort("value").rows()
    values = ", ".join(f"{value:g}" + (f" ({count}×)" if len(counts) > 1 else "") for value, count in counts)
    return f"{method} {values} of {' or '.join(policies['grid'].unique(maintain_order=True))}"


def _some(parts: list[str]) -> str:
    more = f"; and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return "; ".join(parts[:_NAMED]) + more
