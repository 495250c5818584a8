"""The page: it holds all of it, loads nothing, runs nothing, and shows in a real browser."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from score_fixtures import LINEAGE, history_row, logging, ope_scores, score

from s2bl_cli.contract.history import write_history
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.scores import Score, write_scores

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta", "link", "br", "hr", "img", "input", "col"}
EVIL = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">&lt;--></style></pre>"

Page = Callable[..., str]


class Outline(HTMLParser):
    """Elements, attributes and text; an end that does not fit its start is a fault."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture
def page(run: Callable[..., Any], tmp_path: Path) -> Page:
    """The page of scores, and of a history."""

    def paged(scores: list[Score], *flags: object, history: bool = False, code: int = 0) -> str:
        write_scores(scores, LINEAGE, str(tmp_path / "scores.parquet"), force=True)
        rows = [history_row("p", "wce-s2bl", 0, epoch, "loss", 1 / epoch, lam=1.0) for epoch in range(1, 9)]
        write_history(rows, Step("train", {}, "0.1.0"), str(tmp_path / "history.parquet"), force=True)
        more = ("history.parquet",) if history else ()
        ran = run("report", "scores.parquet", *more, "-o", "page.html", "--force", *flags)
        assert ran.code == code, ran.stderr
        return (tmp_path / "page.html").read_text()

    return paged


def both() -> list[Score]:
    """Accuracies and estimates of the same two policies."""
    accuracies = [score(0.7), score(0.6, "tips"), logging(0.25)]
    drawn = [score(0.5, metric="sampled-accuracy"), score(0.4, "tips", metric="sampled-accuracy")]
    return [*accuracies, *drawn, *ope_scores()]


def test_page_has_tables_figures_verdicts_claims_and_commands(page: Page) -> None:
    outline = Outline(page(both(), "--check", "wce-s2bl > 90", history=True, code=1))
    assert outline.elements.count("table") == 3  # argmax and sampled accuracy, estimates
    assert outline.elements.count("figure") == outline.elements.count("svg") == 3  # no curve of one point
    for words in (
        "Argmax accuracy in %, one run a cell",
        "Sampled accuracy in %, one run a cell",
        "Expected reward estimated from the log",
        "caution sample",
        "only 80 effective rows of 1,000",
        "fails wce-s2bl > 90: dataset sample",
        "s2bl train --method wce-s2bl --seed 0 logs.parquet -o 1-train.safetensors\n"
        "s2bl evaluate --split test 1-train.safetensors --logs logs.parquet -o out.parquet",
        "Learning curves",
    ):
        assert words in outline.words, words
    assert [tag for tag in outline.elements if tag in ("strong", "u")]


def test_page_of_one_table_has_that_table(page: Page) -> None:
    text = page(both(), "--table", "main", "--metric", "sampled-accuracy", "--figure", "known-rows")
    outline = Outline(text)
    assert (outline.elements.count("table"), outline.elements.count("svg")) == (1, 1)


def test_a_table_that_cannot_be_made_is_told_on_the_page(page: Page) -> None:
    """Sampled accuracies of 19 requests in one row; the argmax accuracies, of one, are there."""
    mixed = [score(0.5, metric="sampled-accuracy", lam=lam) for lam in range(1, 20)]
    outline = Outline(page([score(0.7), *mixed]))
    assert outline.elements.count("table") == 1
    assert (
        "No table main of sampled-accuracy: wce-s2bl at dataset sample, τ 10, ρ 0.02 has 19 runs that" in outline.words
    )


def test_figures_take_the_colours_of_the_page(page: Page) -> None:
    """A dark page has light text: no white box, no black ink."""
    text = page(both(), history=True)
    assert "color-scheme: light dark" in text
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert not re.search("#fff|#000000", drawn)
    assert "currentColor" in drawn
    assert "background: #fff" not in text
    assert "fill: currentColor" in text


def test_page_loads_and_runs_nothing(page: Page) -> None:
    outline = Outline(page(both(), history=True))
    assert not {"script", "iframe", "object", "embed", "img", "form", "base", "foreignobject"} & set(outline.elements)
    assert not [name for name, _ in outline.attributes if name.startswith("on")]
    links = [value for name, value in outline.attributes if name in ("href", "src", "xlink:href", "action", "style")]
    assert all(value is not None and (value.startswith(("#", "data:")) or ":" in value) for value in links)
    assert not [
        value for value in links if value is not None and re.match(r"(?i)\s*(https?|file|javascript|//)", value)
    ]
    assert "@import" not in page(both())


def test_what_files_say_is_text_on_the_page(page: Page) -> None:
    scores = [
        score(0.5, EVIL, dataset=EVIL, log=EVIL, policy=EVIL, policy_sha256=EVIL),
        score(0.5, EVIL, dataset=EVIL, log=EVIL, policy=EVIL, policy_sha256=EVIL, metric="dr"),
        score(0.0, EVIL, dataset=EVIL, log=EVIL, policy=EVIL, policy_sha256=EVIL, metric="health", note=EVIL),
    ]
    outline = Outline(page(scores))
    assert not {"script", "img"} & set(outline.elements)
    assert "<script>document.title" in outline.words


# --- in a browser ---

# It shows the page in a frame, measures what is in it, and writes that down where --dump-dom finds it.
HARNESS = """<!DOCTYPE html>
<iframe id="page" src="page.html" width="1200" height="800"></iframe><pre id="out"></pre>
<script>
document.getElementById("page").onload = (event) => {
  const inside = event.target.contentDocument;
  const sizes = (what) => [...inside.querySelectorAll(what)].map((one) => {
    const box = one.getBoundingClientRect();
    const seen = one.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});
    return seen ? [box.width, box.height] : [0, 0];
  });
  document.getElementById("out").textContent = JSON.stringify({
    tables: sizes("table"), cells: sizes("tbody td"), figures: sizes("figure svg"), strokes: sizes("figure svg path"),
    fetched: inside.defaultView.performance.getEntriesByType("resource").map((one) => one.name),
    title: inside.title, text: inside.body.innerText, wide: inside.documentElement.scrollWidth,
  });
};
</script>
"""


def browse(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What the browser measured of page.html, and what it wrote to its console. Nothing is added to the page."""
    (folder / "harness.html").write_text(HARNESS)
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'browser'}", "--enable-logging=stderr", "--allow-file-access-from-files",
            "--virtual-time-budget=10000", "--dump-dom", (folder / "harness.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    written = re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    assert written is not None
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return json.loads(unescape(written[1])), console


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed to open the page with")
class TestInABrowser:
    def test_tables_and_figures_show_and_nothing_is_fetched(self, page: Page, tmp_path: Path) -> None:
        page(both(), history=True)
        seen, console = browse(tmp_path)
        assert console == []
        assert seen["title"] == "s2bl report"
        assert len(seen["tables"]) == 3
        assert len(seen["figures"]) == 3
        for what in ("tables", "figures"):
            assert all(width > 200 and height > 50 for width, height in seen[what]), what
        assert all(width > 10 and height > 10 for width, height in seen["cells"])
        assert sum(width + height > 0 for width, height in seen["strokes"]) > 50
        assert seen["wide"] <= 1200
        assert seen["fetched"] == []
        assert "70.00" in seen["text"]

    def test_what_files_say_does_not_run(self, page: Page, tmp_path: Path) -> None:
        page([score(0.5, EVIL, dataset=EVIL, policy=EVIL), score(0.4, "tips", dataset=EVIL)])
        seen, console = browse(tmp_path)
        assert console == []
        assert seen["title"] == "s2bl report"
        assert "<script>document.title" in seen["text"]

    def test_the_test_would_see_a_fault(self, page: Page, tmp_path: Path) -> None:
        """A page with an error of script, a hidden table and a picture from the network."""
        broken = page([score(0.5)]).replace("<table>", "<table hidden>").replace(
            "</body>", '<img src="http://s2bl.invalid/a.png"><script>missing()</script></body>'
        )  # fmt: skip
        (tmp_path / "page.html").write_text(broken)
        seen, console = browse(tmp_path)
        assert any("missing is not defined" in line for line in console)
        assert seen["tables"] == [[0, 0]]
        assert seen["fetched"] == ["http://s2bl.invalid/a.png"]
