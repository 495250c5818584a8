"""A table as markdown, made for pasting: aligned in plain text too."""

from s2bl_cli.errors import one_line
from s2bl_cli.reporting.table import Cell, Table

EMPTY = "–"


def markdown(table: Table) -> str:
    """The caption and the table, ending in a newline."""
    header = [*table.key_names, *table.columns]
    body = [[*map(_safe, keys), *map(cell_text, cells)] for keys, cells in table.rows]
    texts = [[_safe(text) for text in header], *body]
    widths = [max(len(row[i]) for row in texts) for i in range(len(header))]
    keys = len(table.key_names)
    rule = [("-" * width if i < keys else "-" * (width - 1) + ":") for i, width in enumerate(widths)]
    lines = [_line(texts[0], widths, keys), "| " + " | ".join(rule) + " |", *(_line(row, widths, keys) for row in body)]
    return "\n".join([table.caption, "", *lines]) + "\n"


def cell_text(cell: Cell) -> str:
    """Percent with two digits, as the paper prints them; the best in bold."""
    if cell.mean is None:
        return EMPTY
    text = f"{100 * cell.mean:.2f}" if cell.std is None else f"{100 * cell.mean:.2f} ± {100 * cell.std:.2f}"
    return f"**{text}**" if cell.is_best else text


def _line(texts: list[str], widths: list[int], keys: int) -> str:
    padded = [
        text.ljust(width) if i < keys else text.rjust(width)
        for i, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"


def _safe(text: str) -> str:
    """Names come from files: a pipe would break the table."""
    return one_line(text, 80).replace("|", "\\|")
