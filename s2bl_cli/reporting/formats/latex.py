"""LaTeX: a table for \\input. It needs the packages booktabs and graphicx."""

import re
import unicodedata

from s2bl_cli.errors import one_line
from s2bl_cli.reporting.table import Cell, Report, Table, key_text

_HEAD = "% \\usepackage{booktabs}\n% \\usepackage{graphicx}"
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "varepsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "pi", "rho", "sigma", "tau", "upsilon", "varphi", "chi", "psi", "omega"),
)  # possible symbols of hyperparameters
_SIGNS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    **{sign: rf"$\{name}$" for sign, name in zip("αβγδεζηθικλμνξπρστυφχψω", _GREEK, strict=True)},
    "₀": "$_0$",
    "‖": r"$\|$",
    "±": r"$\pm$",
    "−": "$-$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "†": r"$^\dagger$",
    "–": "--",
    "…": r"\dots{}",
    "×": r"$\times$",
    "’": "'",
}
_LETTERS = "äöüÄÖÜéèêáàâíìîóòôúùûñçß"  # letters of the usual fonts

_SHRUNK = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"  # scaled down to the page, never up


def render(report: Report) -> str:
    return "\n".join([_HEAD, *map(latex, report.tables)])


def label(table: Table) -> str:
    """The label for \\ref, made from the caption, so that it does not change with the numbers."""
    return "tab:" + "-".join(re.findall(r"[a-z0-9]+", re.split(r" in %|[,:]", table.caption.lower())[0]))


def latex(table: Table) -> str:
    keys, columns = len(table.keys), len(table.columns)
    titles = [rf"\textbf{{{escaped(title)}}}" for title in table.columns.values()]
    lines = [
        r"\begin{table}[htb]",
        r"\centering",
        rf"\caption{{{escaped(table.caption)}}}",
        rf"\label{{{label(table)}}}",
        _SHRUNK,
        rf"\begin{{tabular}}{{{'l' * keys}{'r' * columns}}}",
        r"\toprule",
        _line([*map(escaped, table.key_titles), *titles]),
    ]
    above: tuple[str, ...] = ()
    for values, cells in table.rows:
        row = tuple(map(key_text, values))
        # A key is printed once, in the first of the rows that share it and all keys before it.
        same = next((i for i, key in enumerate(row) if i >= len(above) or key != above[i]), keys)
        if same == 0 or not above:
            lines.append(r"\midrule")
        elif same < keys - 1:
            lines.append(rf"\cmidrule(lr){{{same + 1}-{keys + columns}}}")
        said = ["" if i < min(same, keys - 1) else escaped(key) for i, key in enumerate(row)]
        lines.append(_line([*said, *map(cell_text, cells)]))
        above = row
    notes = [rf"\par\smallskip{{\footnotesize {escaped(note, 1000)}\par}}" for note in table.notes]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", *notes, r"\end{table}"]) + "\n"


def cell_text(cell: Cell) -> str:
    if cell.text is not None or cell.mean is None:
        return escaped(cell.words())
    text = cell.words(r"\pm").replace("≥", r"\geq")
    styled = cell.styled(text, r"\mathbf{{{}}}", r"\underline{{{}}}")
    return rf"${styled}^{{\dagger}}$" if cell.differs else f"${styled}$"


def _line(texts: list[str]) -> str:
    return " & ".join(texts) + r" \\"


def escaped(text: str, limit: int = 200) -> str:
    """Escape text from files: special characters of LaTeX, and letters that the usual fonts lack."""
    return "".join(_SIGNS.get(letter) or _plain(letter) for letter in one_line(text, limit))


def _plain(letter: str) -> str:
    """The letter; if the fonts lack it, without its accent, or `?`."""
    if letter.isascii() or letter in _LETTERS:
        return letter
    return unicodedata.normalize("NFKD", letter)[0].encode("ascii", "replace").decode()
