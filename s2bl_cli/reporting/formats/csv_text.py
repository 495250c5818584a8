"""CSV: one line per cell, with numbers as they are, unrounded and in the table's unit."""

import csv
import io

from s2bl_cli.errors import one_line
from s2bl_cli.reporting.keys import Key, key_text
from s2bl_cli.reporting.report import Report
from s2bl_cli.reporting.table import Cell, Table

_CELL = ("mean", "std", "runs", "stderr", "low", "high", "text", "best", "second", "differs")


def render(report: Report) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number, table in enumerate(report.tables):
        if number:
            out.write("\n")
        writer.writerow([*map(_text, table.key_titles), "column", *_CELL])
        writer.writerows(_lines(table))
    return out.getvalue()


def _lines(table: Table) -> list[list[str]]:
    return [
        [*map(_key, keys), _text(name), *_values(cell)]
        for keys, cells in table.rows
        for name, cell in zip(table.columns, cells, strict=True)
    ]


def _key(key: Key) -> str:
    """A number as programs read it, without a sign between thousands."""
    return f"{key:.10g}" if isinstance(key, int | float) else _text(key_text(key))


def _values(cell: Cell) -> list[str]:
    if cell.mean is None:
        return ["", "", "0", "", "", "", _text(cell.text or ""), "", "", ""]
    numbers = [cell.mean, cell.std, cell.stderr, cell.low, cell.high]
    mean, std, stderr, low, high = ("" if n is None else f"{cell.unit.factor * n:.10g}" for n in numbers)
    marks = [str(mark).lower() for mark in (cell.is_best, cell.is_second, cell.differs)]
    return [mean, std, str(cell.runs), stderr, low, high, _text(cell.text or ""), *marks]


def _text(value: str) -> str:
    """Names come from files: what a spreadsheet would take for a formula stays text."""
    text = one_line(value, 1000)
    return f"'{text}" if text[:1] in ("=", "+", "@") else text
