"""What the facts of tidy tables, scores and histories, have in common."""

import math

import pyarrow as pa

from s2bl_cli.errors import one_line


def different(table: pa.Table, column: str) -> list[str]:
    """The values of a column of texts, each once."""
    return [text(value) for value in table.column(column).unique().to_pylist()]


def text(value: str | None) -> str:
    return "" if value is None else one_line(value, 60)


def finite(value: float | None) -> float | None:
    """JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None
