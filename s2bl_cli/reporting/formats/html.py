"""HTML: one page with tables, figures, verdicts, claims, and the commands that reproduce the numbers.

It has no scripts and no external resources, so it opens without a network. Text from files is escaped.
"""

from html import escape

from s2bl_cli import __version__
from s2bl_cli.errors import one_line
from s2bl_cli.reporting.quantities import VERDICTS
from s2bl_cli.reporting.table import Cell, Health, Report, Table, key_text

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .5rem 0; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
thead th { border-bottom: 2px solid currentColor; }
th.number, td.number { text-align: right; }
tbody tr:hover { background: var(--soft); }
p.note { margin: .4rem 0; font-size: .9rem; }
figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; fill: currentColor; }
figcaption { font-size: .9rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: .8rem; font-size: .85rem; }
li { margin: .3rem 0; }
.sign { display: inline-block; min-width: 7.5em; font-weight: 600; }
.level-2 .sign::before, .holds .sign::before { content: "✓ "; }
.level-1 .sign::before { content: "! "; }
.level-0 .sign::before, .fails .sign::before { content: "✗ "; }
.level-0, .level-1, .level-2, .holds, .fails { list-style: none; border-left: .4rem solid; padding-left: .6rem; }
.level-2, .holds { border-color: #009e73; }
.level-1 { border-color: #e69f00; } .level-0, .fails { border-color: #d55e00; }
footer { margin-top: 3rem; font-size: .85rem; border-top: 1px solid var(--line); padding-top: .5rem; }
"""


def render(report: Report) -> str:
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>s2bl report</title>",
        '<link rel="icon" href="data:,">',  # otherwise browsers request one from the server
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        "<h1>s2bl report</h1>",
        *_section(
            "Checks", _list([(claim.word, claim.word, f"{claim.claim}: {claim.details}") for claim in report.claims])
        ),
        *_section("Tables", [_table(table, [health.line for health in report.health]) for table in report.tables]),
        *_section("Are the estimates reliable?", _list([_verdict(health) for health in report.health])),
        *_section(
            "Figures",
            [f"<figure>{svg}<figcaption>{_text(title)}</figcaption></figure>" for title, svg in report.figures],
        ),
        *(f'<p class="note">{_text(note)}</p>' for note in report.notes),
        *_section(
            "How these numbers were made",
            ["<pre><code>" + escape("\n".join(lines)) + "</code></pre>" for lines in report.commands],
        ),
        f"<footer>Made by s2bl {escape(__version__)}.</footer>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _section(title: str, parts: list[str]) -> list[str]:
    return ["<section>", f"<h2>{escape(title)}</h2>", *parts, "</section>"] if parts else []


def _table(table: Table, said: list[str]) -> str:
    """`said` are notes that another section already has."""
    head = [
        *(f'<th scope="col">{_text(name)}</th>' for name in table.key_titles),
        *(f'<th scope="col" class="number">{_text(name)}</th>' for name in table.columns.values()),
    ]
    rows = [
        "<tr>" + "".join(f"<td>{_text(key_text(key))}</td>" for key in keys) + "".join(map(_cell, cells)) + "</tr>"
        for keys, cells in table.rows
    ]
    return "\n".join(
        [
            '<div class="scroll"><table>',
            f"<caption>{_text(table.caption)}</caption>",
            f"<thead><tr>{''.join(head)}</tr></thead>",
            "<tbody>",
            *rows,
            "</tbody>",
            "</table></div>",
            *(f'<p class="note">{_text(note)}</p>' for note in table.notes if note not in said),
        ]
    )


def _cell(cell: Cell) -> str:
    text = cell.styled(_text(cell.words()), "<strong>{}</strong>", "<u>{}</u>")
    return f'<td class="number">{text}{" †" if cell.differs else ""}</td>'


def _list(items: list[tuple[str, str, str]]) -> list[str]:
    """A list of items: CSS class, sign and text."""
    lines = [f'<li class="{name}"><span class="sign">{sign}</span> {_text(text)}</li>' for name, sign, text in items]
    return ["<ul>", *lines, "</ul>"] if lines else []


def _verdict(health: Health) -> tuple[str, str, str]:
    """The verdict is the sign, so it is not repeated in the text."""
    verdict = VERDICTS[health.level]
    reason = health.words.removeprefix(verdict).lstrip(": ") or verdict
    return f"level-{health.level}", verdict, f"{health.policy} on {health.log}: {reason}"


def _text(text: str) -> str:
    return escape(one_line(text, 1000))
