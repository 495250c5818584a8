"""CSV: one line per cell, with numbers as they are, unrounded and in the table's unit."""

import csv
import io

from s2bl_cli.errors import one_line
from s2bl_cli.reporting.table import Cell, Key, Report, key_text

_CELL = ("mean", "std", "runs", "stderr", "low", "high", "text", "best", "second", "differs")


def render(report: Report) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number, table in enumerate(report.tables):
        if number:
            out.write("\n")
        writer.writerow([*map(_text, table.key_titles), "column", *_CELL])
        writer.writerows(
            [*map(_key, keys), _text(name), *map(_values(cell).get, _CELL)]
            for keys, cells in table.rows
            for name, cell in zip(table.columns, cells, strict=True)
        )
    return out.getvalue()


def _key(key: Key) -> str:
    """A number as programs read it, without a sign between thousands."""
    return f"{key:.10g}" if isinstance(key, int | float) else _text(key_text(key))


def _values(cell: Cell) -> dict[str, str]:
    numbers = {name: "" if number is None else f"{number:.10g}" for name, number in cell.scaled().items()}
    is_empty = cell.mean is None
    marks = {name: "" if is_empty else str(mark).lower() for name, mark in cell.marks().items()}
    return {**numbers, **marks, "runs": "0" if is_empty else str(cell.runs), "text": _text(cell.text or "")}


def _text(value: str) -> str:
    """Names come from files: what a spreadsheet would take for a formula stays text."""
    text = one_line(value, 1000)
    return f"'{text}" if text[:1] in ("=", "+", "@") else text
