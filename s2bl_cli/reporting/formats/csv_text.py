"""CSV: one line per cell, with unrounded numbers in the unit of the table."""

import csv
import io

from s2bl_cli.errors import one_line
from s2bl_cli.reporting.table import NOTHING, Report, Table

_CELL = ("mean", "std", "runs", "stderr", "low", "high", "text", "best", "second", "differs")


def render(report: Report) -> str:
    return "\n".join(map(_table, report.tables))


def _table(table: Table) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*map(_field, table.key_titles), "column", *_CELL])
    for keys, cells in table.rows:
        shown = [NOTHING if key is None else key for key in keys]
        for name, cell in zip(table.columns, cells, strict=True):
            record = {"runs": 0} if cell.is_empty else cell.record()
            writer.writerow(map(_field, [*shown, name, *map(record.get, _CELL)]))
    return out.getvalue()


def _field(value: str | float | bool | None) -> str:
    """A number as programs read it. Text is escaped if a spreadsheet would read it as a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.10g}"
    text = one_line(value or "", 1000)
    return f"'{text}" if text[:1] in ("=", "+", "@") else text
