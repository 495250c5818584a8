"""Markdown, with columns that are aligned as plain text too."""

from s2bl_cli.errors import one_line
from s2bl_cli.reporting.table import Cell, Report, Table, key_text


def render(report: Report) -> str:
    return "\n".join(markdown(table) for table in report.tables)


def markdown(table: Table) -> str:
    """The caption, the table and its notes, ending in a newline."""
    titles = [_safe(text) for text in (*table.key_titles, *table.columns.values())]
    body = [[*(_safe(key_text(key)) for key in keys), *map(cell_text, cells)] for keys, cells in table.rows]
    widths = [max(map(len, column)) for column in zip(titles, *body, strict=True)]
    keys = len(table.keys)
    rule = [*("-" * width for width in widths[:keys]), *("-" * (width - 1) + ":" for width in widths[keys:])]
    pads = [str.ljust] * keys + [str.rjust] * len(table.columns)
    lines = [
        f"| {' | '.join(pad(text, width) for pad, text, width in zip(pads, row, widths, strict=True))} |"
        for row in (titles, rule, *body)
    ]
    notes = [line for note in table.notes for line in ("", _safe(note, 1000))]
    return "\n".join([_safe(table.caption, 1000), "", *lines, *notes]) + "\n"


def cell_text(cell: Cell) -> str:
    """The best value in bold, the second underlined, and a dagger for significant differences."""
    text = cell.styled(_safe(cell.words()), "**{}**", "<u>{}</u>")
    return f"{text} †" if cell.differs else text


def _safe(text: str, limit: int = 80) -> str:
    """Escape a name from a file: a pipe would break the table, and a tag the page that it is pasted into."""
    return one_line(text, limit).replace("|", "\\|").replace("<", "&lt;")
