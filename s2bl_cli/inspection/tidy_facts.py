"""Values for the facts of tidy tables: scores and histories."""

import math

import pyarrow as pa

from s2bl_cli.errors import one_line


def distinct(table: pa.Table, column: str) -> list[str]:
    """The distinct values of a text column."""
    return [text(value) for value in table.column(column).unique().to_pylist()]


def text(value: str | None) -> str:
    return "" if value is None else one_line(value, 60)


def finite(value: float | None) -> float | None:
    """None for values that are not finite: JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None
