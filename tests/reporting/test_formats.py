"""A report in each of its forms, for people, papers and programs. What comes from a file breaks none of them."""

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from score_fixtures import logging, ope_scores, score, table_2_scores

from s2bl_cli.registry import FORMATS
from s2bl_cli.reporting.formats.latex import cell_text, escaped
from s2bl_cli.reporting.formats.latex import render as latex
from s2bl_cli.reporting.table import Cell, Table
from s2bl_cli.reporting.table import Report as Made

Report = Callable[..., Any]
HOSTILE = "<script>alert(1)</script>&\\input{x}%$#_{}~^|=1+1\"'\n\x1b[31m é 漢 –"


@pytest.mark.parametrize("form", FORMATS.names)
def test_every_form_of_a_table_of_estimates_and_of_a_hostile_one(report: Report, form: str) -> None:
    for scores in (table_2_scores(), ope_scores(), [score(0.5, HOSTILE, dataset=HOSTILE, log=HOSTILE)]):
        ran = report(scores, "--format", form)
        assert (ran.code, ran.stderr) == (0, "")
        assert ran.stdout.endswith("\n")
        assert "\x1b" not in ran.stdout
        assert "<script" not in ran.stdout.replace('"<script', "") or form in ("csv", "json", "latex")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.md", "Argmax accuracy"),
        ("a.tex", "% \\usepackage{booktabs}\n"),
        ("a.csv", "dataset,τ,ρ,column,"),
        ("a.JSON", '{\n "tables"'),
        ("a.html", "<!DOCTYPE html>"),
        ("a.txt", "Argmax accuracy"),
        ("a", "Argmax accuracy"),
    ],
)
def test_suffix_of_the_output_says_the_form(report: Report, tmp_path: Path, name: str, start: str) -> None:
    assert report([score(0.5)], "-o", name).code == 0
    assert (tmp_path / name).read_text().startswith(start)


def test_form_that_is_asked_for_comes_before_the_suffix(report: Report, tmp_path: Path) -> None:
    assert report([score(0.5)], "-o", "a.csv", "--format", "json").code == 0
    assert json.loads((tmp_path / "a.csv").read_text())


# --- CSV and JSON ---


def test_csv_has_a_line_a_cell(report: Report) -> None:
    """In percent and unrounded; a missing cell is empty, with no runs."""
    scores = [score(0.70, seed=0), score(0.72, seed=1), score(1 / 3, "tips", rho=0.2)]
    rows = list(csv.DictReader(io.StringIO(report(scores, "--format", "csv").stdout)))
    cells = {(row["ρ"], row["column"]): row for row in rows}
    assert len(cells) == len(rows) == 6
    seeds = cells["0.02", "wce-s2bl"]
    assert (seeds["mean"], seeds["std"], seeds["runs"], seeds["best"]) == ("71", "1.414213562", "2", "false")
    assert (cells["0.2", "tips"]["mean"], cells["0.2", "tips"]["stderr"]) == ("33.33333333", "1")
    assert (cells["0.2", "wce-s2bl"]["mean"], cells["0.2", "wce-s2bl"]["runs"]) == ("", "0")


def test_csv_gives_a_spreadsheet_no_formula(report: Report) -> None:
    ran = report([score(0.5, dataset="=HYPERLINK(1)")], "--format", "csv")
    assert next(csv.DictReader(io.StringIO(ran.stdout)))["dataset"] == "'=HYPERLINK(1)"


def test_json_has_tables_claims_health_and_commands(report: Report) -> None:
    scores = [score(0.7), score(0.5, "tips", rho=0.2), logging(0.2)]
    told = json.loads(report(scores, "--format", "json", "--check", "wce-s2bl > 60").stdout)
    (table,) = told["tables"]
    assert table["caption"] == "Argmax accuracy in %, single run"
    assert [column["name"] for column in table["columns"]] == ["wce-s2bl", "tips", "logging-policy"]
    first = table["rows"][0]
    assert first["keys"] == {"dataset": "sample", "τ": 10.0, "ρ": 0.02}
    assert (first["cells"]["wce-s2bl"]["mean"], first["cells"]["wce-s2bl"]["best"]) == (70.0, True)
    assert first["cells"]["tips"] is None
    assert [claim["holds"] for claim in told["claims"]] == [True]
    assert told["commands"][0][-1].startswith("s2bl evaluate ")
    health = json.loads(report(ope_scores(), "--format", "json").stdout)["health"]
    assert [one["level"] for one in health] == [2, 1]


# --- LaTeX ---


def test_latex_table_by_hand() -> None:
    """Keys are said once; a rule between datasets, a thinner one between τ."""
    rows = (
        (("a", 1.0, 0.02), (Cell(0.5, 0.01, is_best=True), Cell(0.4, is_second=True, differs=True))),
        (("a", 1.0, 0.2), (Cell(0.5), Cell())),
        (("a", 10.0, 0.2), (Cell(0.5), Cell())),
        (("b", 10.0, 0.2), (Cell(text="unreliable"), Cell(0.25))),
    )
    table = Table(("dataset", "tau", "rho"), {"1": "One", "2": "Two"}, rows, "Accuracy in %", notes=("A note.",))
    assert latex(Made((table,))).splitlines() == [
        r"% \usepackage{booktabs}",
        r"% \usepackage{graphicx}",
        r"\begin{table}[htb]",
        r"\centering",
        r"\caption{Accuracy in \%}",
        r"\label{tab:accuracy}",
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        r"\begin{tabular}{lllrr}",
        r"\toprule",
        r"dataset & $\tau$ & $\rho$ & \textbf{One} & \textbf{Two} \\",
        r"\midrule",
        r"a & 1 & 0.02 & $\mathbf{50.00 \pm 1.00}$ & $\underline{40.00}^{\dagger}$ \\",
        r" &  & 0.2 & $50.00$ & -- \\",
        r"\cmidrule(lr){2-5}",
        r" & 10 & 0.2 & $50.00$ & -- \\",
        r"\midrule",
        r"b & 10 & 0.2 & unreliable & $25.00$ \\",
        r"\bottomrule",
        r"\end{tabular}}",
        r"\par\smallskip{\footnotesize A note.\par}",
        r"\end{table}",
    ]


def test_latex_table_has_a_label_and_fits_the_page(report: Report) -> None:
    """It is shrunk to the width of the text where it is wider, whatever its columns."""
    methods = ("wce-s2bl", "kl-s2bl", "wce-s2blk", "kl-s2blk", "cce-s2bl", "banditnet", "tips")
    lines = report([score(0.5, method) for method in methods], "--format", "latex").stdout.splitlines()
    assert r"\label{tab:argmax-accuracy}" in lines
    shrunk = lines.index(r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%")
    assert lines[shrunk + 1].startswith(r"\begin{tabular}")
    assert r"\end{tabular}}" in lines


def test_keys_have_four_digits_for_people_and_all_for_programs(report: Report) -> None:
    scores = [score(0.5, rho=5 / 6), score(0.6, rho=0.02)]
    assert "| 0.8333 |" in report(scores).stdout
    assert "\nsample,10,0.8333333333," in report(scores, "--format", "csv").stdout
    keys = [row["keys"]["ρ"] for row in json.loads(report(scores, "--format", "json").stdout)["tables"][0]["rows"]]
    assert keys == [0.02, 5 / 6]


def test_latex_keeps_what_files_say_from_being_commands() -> None:
    assert escaped("a_b & 50% $x^2$ {\\input}") == (r"a\_b \& 50\% \$x\textasciicircum{}2\$ \{\textbackslash{}input\}")
    assert escaped("Gauß, Erdős, 漢, KL(π‖π₀)") == r"Gauß, Erdos, ?, KL($\pi$$\|$$\pi$$_0$)"
    assert cell_text(Cell(text="a_b")) == r"a\_b"


def test_latex_of_every_cell_has_balanced_braces_and_columns(report: Report) -> None:
    text = report(table_2_scores(), "--format", "latex", "--significance").stdout
    plain = re.sub(r"\\[{}%&]", "", text)
    assert plain.count("{") == plain.count("}")
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(lines) == 9
    assert {line.count("&") for line in lines} == {8}
    assert all(line.isascii() for line in text.splitlines())


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex is installed to compile the tables with")
def test_latex_compiles(report: Report, tmp_path: Path) -> None:
    """Titles of every kind, marks, notes, and names that would be commands."""
    hostile = [score(0.5, HOSTILE, dataset=HOSTILE), score(0.4, "tips", dataset=HOSTILE), logging(0.3, dataset=HOSTILE)]
    divergence = [score(0.5, metric="reverse-kl-paper"), score(0.4, "tips", metric="reverse-kl-paper")]
    tables = [
        report(scores, "--format", "latex", "--significance", *flags).stdout
        for scores, flags in ((table_2_scores(), ()), (ope_scores(), ()), (hostile, ()), (divergence, ()),
                              (table_2_scores(), ("--against", "paper")))
    ]  # fmt: skip
    start = "\\documentclass{article}\n\\usepackage{booktabs,graphicx}\n\\begin{document}\n"
    (tmp_path / "paper.tex").write_text("\n".join([start, *tables, "\\end{document}\n"]))
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        errors="replace",
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
