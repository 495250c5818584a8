"""Figures: each is drawn from what it needs, in each form; equal input gives equal bytes; what is drawn is what was
given. That they can be read, people have looked at."""

import builtins
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from score_fixtures import LINEAGE, history_row, logging, ope_scores, score, settings_of, table_2_scores, weight_shares

from s2bl_cli.contract.history import HistoryRow, write_history
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.scores import LOGGING_POLICY, SCHEMA, Score, write_scores
from s2bl_cli.errors import SettingError
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.registry import FIGURES
from s2bl_cli.reporting.figures.curves import tick_labels
from s2bl_cli.reporting.figures.figure import (
    MAX_PANELS,
    FigureData,
    LogPropensities,
    drawing,
    inline_svg,
    looks,
    panels,
    saved,
)
from s2bl_cli.reporting.selection import selected_scores, with_settings

MAGIC = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


def _frame(scores: list[Score]) -> pl.DataFrame:
    return selected_scores(pa.Table.from_pylist([vars(one) for one in scores], SCHEMA), ())


def ratio_scores() -> list[Score]:
    return [
        score(
            0.6 + 0.02 * step + 0.01 * seed, method, seed, known=100, missing=100 * step, rho=round(1 / (1 + step), 6)
        )
        for method in ("wce-s2bl", "kl-s2bl")
        for step in (1, 4, 9)
        for seed in range(3)
    ]


def history_rows(policy: str = "p.safetensors") -> list[HistoryRow]:
    return [
        history_row(policy, method, seed, epoch, quantity, -epoch / (seed + 5), lam=1.0, nu=0.001)
        for method in ("wce-s2bl", "tips")
        for seed in range(2)
        for epoch in range(1, 6)
        for quantity in ("loss", "risk", "snips")
    ]


def needed(name: str) -> FigureData:
    """What the figure needs; for all but one, the same."""
    if name == "known-rows":
        return FigureData(_frame([one for one in table_2_scores() if settings_of(one)["tau"] == 10]), "argmax-accuracy")
    rng = np.random.default_rng(0)
    log = LogPropensities("log.parquet", rng.uniform(0.01, 1, 500).astype(np.float32), rng.random(500) < 0.3)
    history = with_settings(pa.Table.from_pylist([vars(row) for row in history_rows()]))
    scores = _frame([*ratio_scores(), *ope_scores(), logging(0.25)])
    return FigureData(scores, "argmax-accuracy", history, (log,))


@pytest.mark.parametrize("name", FIGURES.names)
def test_every_figure_twice_the_same(name: str) -> None:
    figure, data = FIGURES.load(name), needed(name)
    assert figure.can_be_drawn(data)
    with drawing():
        once, again = saved(figure.draw(data), "svg"), saved(figure.draw(data), "svg")
    assert once.startswith(MAGIC["svg"])
    assert once == again
    assert once.count(b"<path") > 10


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_other_forms_of_a_figure_twice_the_same(suffix: str) -> None:
    figure, data = FIGURES.load("propensities"), needed("propensities")
    with drawing():
        once, again = saved(figure.draw(data), suffix), saved(figure.draw(data), suffix)
    assert once.startswith(MAGIC[suffix])
    assert once == again


@pytest.mark.parametrize("name", FIGURES.names)
def test_every_figure_says_what_it_lacks(name: str) -> None:
    assert not FIGURES.load(name).can_be_drawn(FigureData())
    assert FIGURES.load(name).needs


# --- what is drawn ---


def test_accuracy_against_known_rows_is_what_was_scored() -> None:
    """In FMNIST's panel at τ = 10, WCE-S2BL is at 89.35 ± 0.15 with 1,200 rows and at 89.47 ± 0.30 with 12,000."""
    with drawing():
        figure = FIGURES.load("known-rows").draw(needed("known-rows"))
    panel = figure.axes[0]
    assert panel.get_title() == "fmnist, τ 10, resnet-v2"
    first = panel.containers[0]
    assert first.get_label() == "WCE-S2BL"
    assert first.lines[0].get_ydata() == pytest.approx([89.35, 89.47])
    moved = [float(x) for x in first.lines[0].get_xdata()]  # aside, for its neighbours
    assert moved == pytest.approx([1200, 12_000], rel=0.2)
    low, high = ([round(float(y), 2) for y in cap.get_ydata()] for cap in first.lines[1])
    assert (low, high) == ([89.2, 89.17], [89.5, 89.77])
    assert [text.get_text() for text in panel.get_xticklabels()] == ["1,200", "12,000"]
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "Logging policy"


def test_accuracy_goes_against_rho_where_rows_were_not_counted() -> None:
    with drawing():
        figure = FIGURES.load("known-rows").draw(
            FigureData(_frame([score(0.5), score(0.6, rho=0.2)]), "argmax-accuracy")
        )
    assert figure.axes[0].get_xlabel() == "share of rows with known feedback, ρ"


def test_accuracy_against_the_ratio_is_what_was_scored() -> None:
    with drawing():
        figure = FIGURES.load("missing-ratio").draw(FigureData(_frame(ratio_scores()), "argmax-accuracy"))
    (panel,) = figure.axes
    assert panel.get_title() == "sample, τ 10, linear, 100 known rows"
    assert panel.containers[0].lines[0].get_ydata() == pytest.approx([63, 69, 79])
    assert [text.get_text() for text in panel.get_xticklabels()] == ["1", "4", "9"]


def test_estimates_have_a_panel_per_estimator() -> None:
    """Each with an axis of its own: one wide estimate must not squeeze the others."""
    with drawing():
        figure = FIGURES.load("estimates").draw(FigureData(_frame(ope_scores()), "dr"))
    assert [panel.get_title() for panel in figure.axes if panel.has_data()] == ["IPS", "SNIPS", "DM", "DR", "PPI-DR"]
    panel = figure.axes[3]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["Logging policy", "Truncated IPS", "WCE-S2BL"]
    assert not panel.get_shared_x_axes().joined(panel, figure.axes[0])
    interval, point, truth = panel.lines[-3:]
    assert interval.get_xdata() == pytest.approx([0.681, 0.721])
    assert point.get_xdata() == pytest.approx([0.701])
    assert (list(truth.get_xdata()), list(truth.get_ydata())) == ([pytest.approx(0.7)], [2])


def test_estimates_of_seeds_are_means_of_intervals_and_truths() -> None:
    """0.6 in [0.5, 0.7] and 0.8 in [0.6, 1.2]: 0.7 in [0.55, 0.95]; the truths 0.5 and 0.7 have the mean 0.6."""
    scores = [score(0.6, metric="dr", low=0.5, high=0.7), score(0.8, seed=1, metric="dr", low=0.6, high=1.2),
              score(-0.5, metric="true-risk"), score(-0.7, seed=1, metric="true-risk")]  # fmt: skip
    with drawing():
        figure = FIGURES.load("estimates").draw(FigureData(_frame(scores), "dr"))
    interval, point, truth = figure.axes[0].lines
    assert [list(line.get_xdata()) for line in (truth, interval, point)] == [
        pytest.approx([0.6]),
        pytest.approx([0.55, 0.95]),
        pytest.approx([0.7]),
    ]


def test_learning_curves_average_seeds_and_band_them() -> None:
    """−epoch/5 and −epoch/6: in the middle −11/60 of the epoch."""
    with drawing():
        figure = FIGURES.load("learning-curves").draw(needed("learning-curves"))
    panel = figure.axes[0]
    assert [axis.get_title() for axis in figure.axes] == ["loss", "risk", "snips"]
    assert panel.lines[0].get_ydata() == pytest.approx([-11 / 60 * epoch for epoch in range(1, 6)])
    assert len(panel.collections) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["WCE-S2BL", "Truncated IPS"]


def test_learning_curves_of_runs_that_are_no_repetitions_are_lines_of_their_own() -> None:
    """Of policies that nothing but their files tells apart, such as those of other logs. A file given twice is one."""
    runs = [[history_row(name, "wce-s2bl", 0, epoch, "loss", value, lam=1.0) for epoch in (1, 2)]
            for name, value in (("a", 0.5), ("b", 0.7), ("a", 0.5))]  # fmt: skip
    for shown, labels in ((runs, ["WCE-S2BL (a)", "WCE-S2BL (b)"]), (runs[::2], ["WCE-S2BL"])):
        history = with_settings(pa.Table.from_pylist([vars(row) for run in shown for row in run]))
        with drawing():
            figure = FIGURES.load("learning-curves").draw(FigureData(history=history))
        assert [text.get_text() for text in figure.legends[0].get_texts()] == labels
        assert [list(line.get_ydata()) for line in figure.axes[0].lines] == [[0.5, 0.5], [0.7, 0.7]][: len(labels)]


def test_propensity_histogram_counts_every_row_once() -> None:
    propensity = np.array([0.01, 0.1, 0.5, 1.0], np.float32)
    log = LogPropensities("l", propensity, np.array([True, False, False, True]))
    with drawing():
        figure = FIGURES.load("propensities").draw(FigureData(logs=(log,)))
    bars = [patch.get_height() for patch in figure.axes[0].patches if hasattr(patch, "get_height")]
    assert sum(bars) == pytest.approx(50)  # the known half, in percent of all rows


def test_weights_are_histograms_of_the_shares_that_scores_hold() -> None:
    """The tallest bar of the log, 70 % here, is 0.6 high, and the others are on its scale. A bin that begins at 0 has a
    start on the log axis; one without an end reaches to the largest weight."""
    with drawing():
        figure = FIGURES.load("weights").draw(FigureData(_frame(ope_scores()), "dr"))
    panel = figure.axes[0]
    assert [text.get_text().split("\n")[0] for text in panel.get_yticklabels()] == ["Truncated IPS", "WCE-S2BL"]
    tips, wce = (list(group) for group in panel.containers)
    for bars, bottom, shares, largest in ((tips, 0, (50, 20, 20, 10), 412), (wce, 1, (20, 70, 10, 0), 330)):
        assert [bar.get_y() for bar in bars] == [bottom] * 4
        assert [bar.get_height() / 0.6 * 70 for bar in bars] == pytest.approx(shares)
        assert [bar.get_x() for bar in bars] == pytest.approx([0.3 / 2.2, 0.3, 1.5, 150])
        assert [bar.get_x() + bar.get_width() for bar in bars] == pytest.approx([0.3, 1.5, 150, largest])
    assert [text.get_text() for text in panel.texts] == ["50 %", "70 %"]


def test_weights_have_a_histogram_per_column_of_a_table() -> None:
    """Seeds are averaged. The logging policy, whose weights are 1, is shown only when alone."""
    logged = weight_shares((0.0, 1.0, 0, 0), LOGGING_POLICY, rho=None, lam=None, seed=None)
    scores = [
        *weight_shares((0.2, 0.8, 0, 0), policy="a", epochs=1),
        *weight_shares((0.4, 0.6, 0, 0), policy="b", epochs=1, seed=1),
        *weight_shares((0.9, 0.1, 0, 0), policy="c", epochs=2),
    ]
    with drawing():
        both, alone = (
            FIGURES.load("weights").draw(FigureData(_frame(shown), "dr")).axes[0]
            for shown in ([*scores, *logged], logged)
        )
    names = [text.get_text() for text in both.get_yticklabels()]
    assert names == ["WCE-S2BL (2 epochs)", "WCE-S2BL (1 epoch)"]
    assert [text.get_text() for text in both.texts] == ["90 %", "70 %"]
    assert [text.get_text() for text in alone.get_yticklabels()] == ["Logging policy"]


def test_too_many_panels_are_told() -> None:
    told = (
        f"^the figure would have {MAX_PANELS + 1} panels, but at most {MAX_PANELS} are readable: choose with --where$"
    )
    with drawing(), pytest.raises(SettingError, match=told):
        panels(MAX_PANELS + 1)


def test_lines_can_be_told_apart_without_colour() -> None:
    """Twenty methods have twenty colours, and twenty pairs of marker and dashes; and a method keeps its look."""
    names = [*METHODS, *(f"other-{i}" for i in range(20))]
    seven, twenty = (looks({name: name for name in names[:count]}) for count in (7, 20))
    assert len({look["marker"] for look in seven.values()}) == 7
    assert len({look["color"] for look in twenty.values()}) == 20
    assert len({(look["marker"], look["linestyle"]) for look in twenty.values()}) == 20
    first = next(iter(METHODS))
    assert looks({first: first})[first] == seven[first] == twenty[first]


def test_pdf_holds_no_fonts_of_type_3() -> None:
    """Journals refuse them."""
    with drawing():
        pdf = saved(FIGURES.load("propensities").draw(needed("propensities")), "pdf")
    assert b"/Type3" not in pdf
    assert b"/TrueType" in pdf or b"/CIDFontType2" in pdf


def test_labels_of_ticks_do_not_overlap() -> None:
    """The ratios of the paper's figure: 0.8333 is 4 % of the axis after 0. On a logarithmic axis 1 and 2 are apart."""
    assert tick_labels([0, 0.8333, 3.333, 7.5, 20], is_log=False) == ["0", "", "3.333", "7.5", "20"]
    assert tick_labels([1, 2, 100, 101], is_log=True) == ["1", "2", "100", ""]
    assert tick_labels([5], is_log=False) == ["5"]


def test_ticks_are_short_numbers() -> None:
    scores = [score(0.5, rho=5 / 6), score(0.6, rho=0.02)]
    with drawing():
        figure = FIGURES.load("known-rows").draw(FigureData(_frame(scores), "argmax-accuracy"))
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["0.02", "0.8333"]


def test_names_from_files_are_words_in_a_figure() -> None:
    """A $ starts no formula, a tag no element, a comment's end no page."""
    name = "$x_{$ <b>--> & \x1b 漢"
    with drawing():
        figure = FIGURES.load("known-rows").draw(
            FigureData(_frame([score(0.5, name, dataset=name)]), "argmax-accuracy")
        )
        svg = inline_svg(figure, "known-rows", 'A "title" <i>')
    assert "<b>" not in svg
    assert "<!--" not in svg
    assert 'aria-label="A &quot;title&quot; &lt;i&gt;"' in svg


def test_figures_of_one_page_share_no_id() -> None:
    with drawing():
        drawn = [inline_svg(FIGURES.load(name).draw(needed(name)), name, name) for name in FIGURES.names]
    ids = [found for svg in drawn for found in set(re.findall(r'\bid="([^"]+)"', svg))]
    assert len(ids) == len(set(ids)) > 50
    for svg in drawn:
        used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
        assert used
        assert used <= set(re.findall(r'\bid="([^"]+)"', svg))


# --- the command ---


@pytest.fixture
def files(run: Callable[..., Any], tmp_path: Path, write_log: Any) -> Callable[..., Any]:
    """`run`, in a folder of scores, estimates, a history, a log of ours and one of another tool."""
    write_scores(ratio_scores(), LINEAGE, str(tmp_path / "scores.parquet"), force=True)
    write_scores(ope_scores(), LINEAGE, str(tmp_path / "estimates.parquet"), force=True)
    write_history(history_rows(), Step("train", {}, "0.1.0"), str(tmp_path / "history.parquet"), force=True)
    write_log(tmp_path / "log.parquet", 200)
    return run


@pytest.mark.parametrize(
    ("words", "figure"),
    [
        ("scores.parquet", "missing-ratio"),
        ("estimates.parquet", "estimates"),
        ("estimates.parquet --figure weights", "weights"),
        ("history.parquet", "learning-curves"),
        ("log.parquet", "propensities"),
        ("scores.parquet history.parquet log.parquet --figure propensities", "propensities"),
    ],
)
def test_plot_draws_by_what_is_there(files: Callable[..., Any], tmp_path: Path, words: str, figure: str) -> None:
    ran = files("report", *words.split(), "--plot", "out.svg")
    assert (ran.code, ran.stderr) == (0, f"out.svg: figure {figure}\n")
    assert (tmp_path / "out.svg").read_bytes().startswith(MAGIC["svg"])
    has_table = "scores" in words or "estimates" in words
    assert bool(ran.stdout) == has_table


def test_a_curve_of_one_point_is_drawn_only_when_asked_for(files: Callable[..., Any], tmp_path: Path) -> None:
    """Accuracies at one number of known rows, and estimates: the estimates are shown."""
    scores = [score(0.5, seed=seed) for seed in range(2)]
    write_scores([*scores, *ope_scores()], LINEAGE, str(tmp_path / "one.parquet"), force=True)
    assert files("report", "one.parquet", "--plot", "out.svg").stderr == "out.svg: figure estimates\n"
    ran = files("report", "one.parquet", "--plot", "known.svg", "--figure", "known-rows")
    assert ran.stderr == "known.svg: figure known-rows\n"
    write_scores(scores, LINEAGE, str(tmp_path / "one.parquet"), force=True)
    ran = files("report", "one.parquet", "--plot", "none.svg")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: no figure can be drawn from these files: choose one with --figure to see what it needs\n",
    )


def test_logs_of_other_tools_are_drawn_when_asked_for(
    files: Callable[..., Any], tmp_path: Path, write_plain: Any
) -> None:
    write_plain(tmp_path / "plain.parquet")
    ran = files("report", "plain.parquet", "--plot", "out.png", "--figure", "propensities")
    assert (ran.code, ran.stderr) == (0, "out.png: figure propensities\n")
    ran = files("report", "plain.parquet", "--plot", "other.png")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: plain.parquet: it is not a scores file (no s2bl document); s2bl evaluate makes them\n",
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("scores.parquet --plot out.gif", "--plot must end in .svg, .png, .pdf, found 'out.gif'"),
        ("scores.parquet --plot out.svg -o out.svg", "--plot and -o name the same file: give them different names"),
        ("scores.parquet --plot scores.png --figure estimates",
         "--figure estimates needs scores of estimators, such as ips or dr, but these files have none"),
        ("scores.parquet --plot x.png --figure weights",
         "--figure weights needs scores of weight-share (s2bl evaluate on a log), but these files have none"),
        ("scores.parquet --plot x.png --figure learning-curves",
         "--figure learning-curves needs a history file (s2bl train --history), but these files have none"),
        ("history.parquet",
         "history.parquet: it is a history file, but a scores file is needed here (made by s2bl evaluate)"),
        ("log.parquet --format html", "a table needs scores, but none were given: make them with s2bl evaluate"),
        ("scores.parquet --plot no/where.png",
         "no/where.png cannot be written: the folder no does not exist; create it first"),
        ("scores.parquet --plot x.png --figure known-rows",
         "--figure known-rows needs scores of policies that s2bl train made with all of a log's rows (for a "
         "fixed number of known rows, --figure missing-ratio), but these files have none"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_told(files: Callable[..., Any], tmp_path: Path, words: str, told: str) -> None:
    before = sorted(tmp_path.iterdir())
    ran = files("report", *words.split())
    assert (ran.code, ran.stdout, ran.stderr) == (2, "", f"s2bl: {told}\n")
    assert sorted(tmp_path.iterdir()) == before


def test_an_old_figure_is_not_replaced_unasked(files: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "out.svg").write_text("old")
    assert files("report", "scores.parquet", "--plot", "out.svg").code == 2
    assert (tmp_path / "out.svg").read_text() == "old"
    assert files("report", "scores.parquet", "--plot", "out.svg", "--force").code == 0


def test_without_matplotlib_a_line_says_how_to_get_it(
    files: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError("No module named 'matplotlib'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    ran = files("report", "scores.parquet", "--plot", "out.svg")
    why = "which cannot be imported (No module named 'matplotlib')"
    line = f"figures need matplotlib, {why}: pip install 's2bl[figures]'\n"
    assert (ran.code, ran.stdout, ran.stderr) == (2, "", f"s2bl: {line}")
    assert not (tmp_path / "out.svg").exists()
    page = files("report", "scores.parquet", "-o", "page.html")
    assert (page.code, page.stderr) == (0, f"warning: No figures: {line}")
    assert "<table>" in (tmp_path / "page.html").read_text()


def test_report_loads_matplotlib_only_to_draw(files: Callable[..., Any], tmp_path: Path) -> None:
    program = (
        "import sys; from s2bl_cli.app import app\n"
        "try: app(sys.argv[1:])\n"
        "finally: print(sorted({'matplotlib', 'torch'} & set(sys.modules)), file=sys.stderr)"
    )
    for words, loaded in (((), "[]"), (("--plot", "a.svg"), "['matplotlib']")):
        done = subprocess.run(
            [sys.executable, "-c", program, "report", "scores.parquet", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.stderr.splitlines()[-1] == loaded
