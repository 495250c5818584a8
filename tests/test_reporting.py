"""Tables of scores: the whole text, by hand, and what is refused rather than averaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.scores import LOGGING_POLICY, Score, write_scores
from s2bl_cli.reporting.formats.markdown import cell_text, markdown
from s2bl_cli.reporting.grid import marked
from s2bl_cli.reporting.quantities import quantity
from s2bl_cli.reporting.table import Cell, Table

Report = Callable[..., Any]


def _score(value: float, method: str = "wce-s2bl", seed: int | None = 0, **changes: Any) -> Score:
    """A policy's argmax accuracy on the log a.parquet. The policy's name and digest follow from how it was trained."""
    trained = {"dataset": "sample", "tau": 10.0, "rho": 0.02, "method": method, "risk": "tips", "reg": "wce",
               "reg_rows": "all", "lam": 1.0, "sharpen": None, "translation": None, "nu": 0.001,
               "model": "linear", "seed": seed}  # fmt: skip
    trained |= {name: change for name, change in changes.items() if name in trained}
    scored = {"log": "a.parquet", "log_sha256": "a", "split": "test", "metric": "argmax-accuracy", "label": None,
              "value": value, "stderr": 0.01, "low": None, "high": None, "level": None, "interval": None, "rows": 1000,
              "note": None}  # fmt: skip
    name = "-".join(str(part) for part in trained.values())
    return Score(**{"policy": name, "policy_sha256": name, **trained, **scored, **changes})


def _logging(value: float, **changes: Any) -> Score:
    """The logging policy's share of right draws."""
    nothing = dict.fromkeys(("policy_sha256", "rho", "risk", "reg", "reg_rows", "lam", "nu", "seed"))
    own = {"policy": LOGGING_POLICY, "metric": "sampled-accuracy", **nothing, **changes}
    return _score(value, LOGGING_POLICY, **own)


@pytest.fixture
def report(run: Callable[..., Any], tmp_path: Path) -> Report:
    """`report(scores, "--where", "lam=1")`: what the command did with a file of these scores."""

    def reported(scores: list[Score], *flags: object) -> Any:
        write_scores(scores, Step("evaluate", {}, "0.1.0"), str(tmp_path / "scores.parquet"), force=True)
        return run("report", "scores.parquet", *flags)

    return reported


def _table(ran: Any) -> list[list[str]]:
    """The cells of the markdown table, header first, without the rule."""
    assert ran.code == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in [lines[0], *lines[2:]]]


# --- the text ---


def test_table_by_hand(report: Report) -> None:
    """WCE-S2BL at seeds 0, 1, 2: 0.70, 0.72, 0.77: mean 0.73; deviations −3, −1, +4 hundredths, squares 26, over
    3 − 1 is 13, root 3.6056. Truncated IPS at seeds 0 and 1: 0.60 and 0.64: mean 0.62, std √8 = 2.8284 hundredths.
    At ρ = 0.2 there is only one run, and no Truncated IPS."""
    scores = [
        *(_score(value, seed=seed) for seed, value in enumerate((0.70, 0.72, 0.77))),
        *(_score(value, "tips", seed) for seed, value in enumerate((0.60, 0.64))),
        _score(0.8, seed=5, rho=0.2),
        _logging(0.25),
    ]
    ran = report(scores)
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout == (
        "Argmax accuracy in %, mean ± std over 1 to 3 seeds\n"
        "\n"
        "| dataset | τ  | ρ    |         WCE-S2BL |       Truncated IPS | Logging policy (drawn) |\n"
        "| ------- | -- | ---- | ---------------: | ------------------: | ---------------------: |\n"
        "| sample  | 10 | 0.02 | **73.00 ± 3.61** | <u>62.00 ± 2.83</u> |                  25.00 |\n"
        "| sample  | 10 | 0.2  |        **80.00** |                   – |                  25.00 |\n"
        "\n"
        "Best of its row, out of 2: WCE-S2BL 2.\n"
    )


def test_one_run_has_no_deviation(report: Report) -> None:
    ran = report([_score(0.5)])
    assert ran.stdout.startswith("Argmax accuracy in %, one run a cell\n")
    assert _table(ran)[1] == ["sample", "10", "0.02", "**50.00**", "–"]


def test_equal_counts_of_seeds_are_told_as_one(report: Report) -> None:
    ran = report([_score(0.5, method, seed) for method in ("tips", "wce-s2bl") for seed in range(2)])
    assert ran.stdout.startswith("Argmax accuracy in %, mean ± std over 2 seeds\n")


def test_every_cell_that_prints_as_the_best_is_bold(report: Report) -> None:
    """70.004 and 69.996 both print 70.00; 69.99 does not."""
    ran = report([_score(0.70004), _score(0.69996, "tips"), _score(0.6999, "kl-s2bl")])
    cells = dict(zip(*_table(ran), strict=True))
    assert (cells["WCE-S2BL"], cells["Truncated IPS"], cells["KL-S2BL"]) == ("**70.00**", "**70.00**", "<u>69.99</u>")


def test_bold_follows_the_printed_digits_at_every_half() -> None:
    """0.99985 prints as 99.98 and rounds to 0.9999: bold goes by what is printed."""
    for i in range(5, 100_000, 10):
        cells = [Cell(i / 100_000), Cell((i - 5) / 100_000), Cell((i + 5) / 100_000), Cell()]
        ranked = marked(cells, quantity("argmax-accuracy"))
        printed = [cell_text(cell) for cell in cells]
        best = max(printed[:3], key=float)
        assert [cell.is_best for cell in ranked] == [text == best for text in printed]


def test_logging_policy_can_be_the_best(report: Report) -> None:
    assert _table(report([_score(0.2), _logging(0.25)]))[1][3:] == ["20.00", "**25.00**"]


def test_methods_come_in_their_order_and_strangers_last(report: Report) -> None:
    header = _table(report([_score(0.1, name) for name in ("zeta", "tips", "alpha", "wce-s2bl")]))[0]
    assert header[3:] == ["WCE-S2BL", "Truncated IPS", "alpha", "zeta", "Logging policy (drawn)"]


def test_rows_are_sorted_by_number_and_unknown_keys_come_last(report: Report) -> None:
    keys = [(10.0, 0.2), (5.0, 0.2), (10.0, 0.02), (None, None)]
    rows = _table(report([_score(0.1, tau=tau, rho=rho) for tau, rho in keys]))[1:]
    assert [row[1:3] for row in rows] == [["5", "0.2"], ["10", "0.02"], ["10", "0.2"], ["–", "–"]]


def test_logging_policy_stands_beside_its_own_data(report: Report) -> None:
    """By dataset and τ: at every ρ of it, and nowhere else. A foreign log has no τ, and its own policy still."""
    scores = [_score(0.5, dataset=dataset, tau=tau, rho=rho) for dataset, tau in (("a", 1.0), ("a", 5.0), ("b", None))
              for rho in (0.1, 0.2)]  # fmt: skip
    scores += [_logging(0.3, dataset="a", tau=5.0), _logging(0.4, dataset="b", tau=None, log_sha256="b")]
    rows = _table(report(scores))[1:]
    assert [row[4] for row in rows] == ["–", "–", "30.00", "30.00", "40.00", "40.00"]


def test_logging_column_is_of_drawn_actions_whatever_the_metric(report: Report) -> None:
    scores = [
        _score(0.5),
        _score(0.4, metric="sampled-accuracy"),
        _logging(0.25),
        _logging(0.9, metric="argmax-accuracy"),
    ]
    assert _table(report(scores))[1][3:] == ["**50.00**", "25.00"]
    ran = report(scores, "--metric", "sampled-accuracy")
    assert ran.stdout.startswith("Sampled accuracy in %, one run a cell\n")
    assert _table(ran)[1][3:] == ["**40.00**", "25.00"]


def test_names_from_files_cannot_break_the_table(report: Report) -> None:
    ran = report([_score(0.5, dataset="a|b\n\x1b[31m|c")])
    assert "| a\\|b [31m\\|c | 10 | 0.02 |" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_markdown_of_a_table() -> None:
    table = Table(("k",), ("one", "two"), ((("x",), (Cell(0.5, 0.015, True), Cell())),), "Caption")
    assert markdown(table) == "Caption\n\n| k |              one | two |\n| - | ---------------: | --: |\n" + (
        "| x | **50.00 ± 1.50** |   – |\n"
    )


# --- what is counted, and what is not ---


def test_same_score_given_twice_is_counted_once(run: Callable[..., Any], report: Report) -> None:
    scores = [_score(0.5), _score(0.6, seed=1), _logging(0.25)]
    once = report(scores)
    assert run("report", "scores.parquet", "scores.parquet").stdout == once.stdout
    assert report([*scores, *scores]).stdout == once.stdout
    assert _table(once)[1][3:] == ["**55.00 ± 7.07**", "25.00"]


def test_logging_policy_of_a_masked_copy_is_counted_once(report: Report) -> None:
    """The same rows in another file: another digest, the same number."""
    scores = [_score(0.5), _logging(0.25), _logging(0.25, log="masked.parquet", log_sha256="b")]
    assert _table(report(scores))[1][4] == "25.00"
    scores = [_score(0.5), _logging(0.2), _logging(0.3, log="other-seed.parquet", log_sha256="b")]
    assert _table(report(scores))[1][4] == "25.00 ± 7.07"


def test_runs_of_different_lam_are_not_averaged(report: Report) -> None:
    scores = [_score(0.5, lam=0.1), _score(0.7, lam=1.0), _score(0.6, "tips", lam=0.1), _logging(0.25)]
    ran = report(scores)
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == (
        "s2bl: wce-s2bl at dataset sample, τ 10, ρ 0.02, seed 0 has 2 runs that differ in lam: 0.1 and 1.0; "
        "choose with --where lam=0.1\n"
    )
    # The remedy is one, and the logging policy, which has no λ, stays.
    assert _table(report(scores, "--where", "lam=0.1"))[1][3:] == ["<u>50.00</u>", "**60.00**", "25.00"]


def test_foreign_runs_of_different_models_are_not_averaged(report: Report) -> None:
    """Where τ is unknown too."""
    ran = report([_score(0.5, tau=None), _score(0.7, tau=None, model="mlp")], "--table", "main")
    assert ran.stderr == (
        "s2bl: wce-s2bl at dataset sample, τ –, ρ 0.02, seed 0 has 2 runs that differ in model: linear and mlp; "
        "choose with --where model=linear\n"
    )


def test_one_policy_on_two_logs_is_not_two_runs(report: Report) -> None:
    ran = report([_score(0.5), _score(0.7, log="b.parquet", log_sha256="b")])
    assert ran.code == 2
    assert "2 runs that differ in log: a.parquet and b.parquet; choose with --where log=a.parquet\n" in ran.stderr


def test_runs_of_files_of_one_name_are_told_apart_by_their_digests(report: Report) -> None:
    scores = [_score(0.5, policy_sha256="one"), _score(0.7, policy_sha256="other")]
    ran = report(scores)
    assert ran.code == 2
    assert "2 runs that differ in policy_sha256: one and other; choose with --where policy_sha256=one\n" in ran.stderr
    assert "70.00" in report(scores, "--where", "policy_sha256=other").stdout


# --- filters ---


def test_where_filters_by_text_and_by_number(report: Report) -> None:
    scores = [_score(0.5, tau=5.0), _score(0.6, "tips", tau=5.0), _score(0.7, tau=10.0), _logging(0.25, tau=5.0)]
    assert _table(report(scores, "--where", "tau=5"))[1:] == [
        ["sample", "5", "0.02", "<u>50.00</u>", "**60.00**", "25.00"]
    ]
    ran = report(scores, "--where", "tau=5.0", "--where", "method=tips")
    assert _table(ran) == [["dataset", "τ", "ρ", "Truncated IPS", "Logging policy (drawn)"],
                           ["sample", "5", "0.02", "**60.00**", "–"]]  # fmt: skip
    scores = [_score(0.5, seed=0), _score(0.9, seed=1), _logging(0.25)]
    assert _table(report(scores, "--where", "seed=1"))[1][3:] == ["**90.00**", "25.00"]


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--where", "lam=7"], "no policy's score is left by --where 'lam=7'; s2bl inspect shows what is there"),
        (
            ["--where", "tau=10", "--where", "method=x"],
            "no policy's score is left by --where 'tau=10' --where 'method=x'; s2bl inspect shows what is there",
        ),
        (["--where", "lam=big"], "--where lam=… needs a number, found 'big'"),
        (
            ["--where", "lambda=1"],
            "--where must be COLUMN=VALUE with a column of policy, policy_sha256, log, log_sha256, dataset, tau, rho, "
            "method, risk, reg, reg_rows, lam, sharpen, translation, nu, model, seed, split, metric, label, value, "
            "stderr, low, high, level, interval, rows, note, known, missing, found 'lambda=1'",
        ),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_filter_that_leaves_nothing_or_means_nothing_is_told(report: Report, flags: list[str], line: str) -> None:
    ran = report([_score(0.5), _logging(0.25)], *flags)
    assert (ran.code, ran.stdout, ran.stderr) == (2, "", f"s2bl: {line}\n")


def test_metric_that_is_not_in_the_files_is_told(report: Report) -> None:
    ran = report([_score(0.5), _logging(0.25)], "--metric", "sampled-accuracy")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: no trained policy has a score of sampled-accuracy in these files: evaluate some\n",
    )
    ran = report([_score(0.5, metric="other")], "--metric", "sampled-accuracy")
    assert ran.stderr == "s2bl: no score of sampled-accuracy in these files; they have other: pass --metric\n"


def test_metric_that_is_unknown_is_refused_with_the_known_ones(report: Report) -> None:
    ran = report([_score(0.5)], "--metric", "beauty")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == "s2bl: no score of beauty in these files; they have argmax-accuracy: pass --metric\n"


def test_table_goes_to_a_file(report: Report, tmp_path: Path) -> None:
    to_stdout = report([_score(0.5)]).stdout
    ran = report([_score(0.5)], "-o", "table.md")
    assert (ran.code, ran.stdout) == (0, "")
    assert (tmp_path / "table.md").read_text() == to_stdout
    assert report([_score(0.6)], "-o", "table.md").code == 2
    assert (tmp_path / "table.md").read_text() == to_stdout
