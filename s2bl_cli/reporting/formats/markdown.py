"""Markdown, made for pasting: aligned in plain text too."""

from s2bl_cli.errors import one_line
from s2bl_cli.reporting.table import Cell, Report, Table, key_text


def render(report: Report) -> str:
    return "\n".join(markdown(table) for table in report.tables)


def markdown(table: Table) -> str:
    """The caption, the table and its notes, ending in a newline."""
    header = [*table.key_titles, *table.columns.values()]
    body = [[*(_safe(key_text(key)) for key in keys), *map(cell_text, cells)] for keys, cells in table.rows]
    texts = [[_safe(text) for text in header], *body]
    widths = [max(len(row[i]) for row in texts) for i in range(len(header))]
    keys = len(table.keys)
    rule = [("-" * width if i < keys else "-" * (width - 1) + ":") for i, width in enumerate(widths)]
    lines = [_line(texts[0], widths, keys), "| " + " | ".join(rule) + " |", *(_line(row, widths, keys) for row in body)]
    notes = [line for note in table.notes for line in ("", _safe(note, 1000))]
    return "\n".join([_safe(table.caption, 1000), "", *lines, *notes]) + "\n"


def cell_text(cell: Cell) -> str:
    """The best in bold, the second underlined, what differs beyond noise with a dagger."""
    text = _safe(cell.words())
    if cell.is_best:
        text = f"**{text}**"
    elif cell.is_second:
        text = f"<u>{text}</u>"
    return f"{text} †" if cell.differs else text


def _line(texts: list[str], widths: list[int], keys: int) -> str:
    padded = [
        text.ljust(width) if i < keys else text.rjust(width)
        for i, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"


def _safe(text: str, limit: int = 80) -> str:
    """Names come from files: a pipe would break the table, and a tag the page it is pasted into."""
    return one_line(text, limit).replace("|", "\\|").replace("<", "&lt;")
