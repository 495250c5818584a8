"""Claims that scores must bear out: what they mean, what they print, and the exit code that a pipeline sees."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from score_fixtures import LINEAGE, logging, ope_scores, score

from s2bl_cli.contract.scores import write_scores

Report = Callable[..., Any]

# ρ = 0.02: 70 and 60; ρ = 0.2: 80 and 79; ρ = 1: only tips, 90
SCORES = [
    score(0.70), score(0.60, "tips"), score(0.80, rho=0.2), score(0.79, "tips", rho=0.2), score(0.90, "tips", rho=1.0),
    logging(0.25),
]  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        ("wce-s2bl >= tips", 0),
        ("wce-s2bl >= tips + 1", 0),  # 80 against 79 + 1: equal is enough
        ("wce-s2bl > tips + 1", 1),
        ("wce-s2bl >= tips + 2", 1),
        ("wce-s2bl >= tips + 2 at rho=0.02", 0),
        ("wce-s2bl >= tips + 2 at rho=0.2 tau=10", 1),
        ("wce-s2bl >= tips + 5.5 on average", 0),  # 75 against 69.5 + 5.5
        ("wce-s2bl > tips + 5.5 on average", 1),
        ("wce-s2bl - tips > 0.5", 0),
        ("wce-s2bl > 70", 1),
        ("70 <= wce-s2bl", 0),
        ("tips < wce-s2bl", 0),
        ("logging-policy < 30", 0),
        ("wce-s2bl + tips >= 130 - 1 + 1", 0),
        ("tips >= 60 at dataset=sample", 0),
    ],
)
def test_claims_and_their_exit_codes(report: Report, claim: str, code: int) -> None:
    ran = report(SCORES, "--check", claim)
    assert ran.code == code, ran.stderr
    assert ran.stdout.startswith("Argmax accuracy"), "the table is made all the same"


@pytest.mark.parametrize("at", ["known=1200", "known=1,200", "known=1200.0"])
def test_claims_at_a_number_of_rows(report: Report, at: str) -> None:
    """Keys are numbers until they are printed."""
    sizes = {1200: (0, 800), 600: (0, 400)}
    scores = [
        score(0.7 if known == 1200 else 0.2, known=known, missing=missing, rho=known / (known + missing))
        for known, numbers in sizes.items()
        for missing in numbers
    ]
    assert report(scores, "--check", f"wce-s2bl > 60 at {at}").code == 0
    assert report(scores, "--check", f"wce-s2bl > 60 at {at} ratio=0").code == 0
    assert report(scores, "--check", "wce-s2bl > 60 at known=600").code == 1
    assert report(scores, "--check", "wce-s2bl > 60 at ratio=0.6667 known=1200").code == 0  # as it is printed


def test_each_claim_is_told_with_its_numbers(report: Report) -> None:
    """In the rows that have all its methods: the one of ρ = 1 does not."""
    ran = report(SCORES, "--check", "wce-s2bl >= tips + 2", "--check", "tips > 0 on average")
    assert (ran.code, ran.stderr.splitlines()) == (
        1,
        [
            "holds: wce-s2bl >= tips + 2: dataset sample, τ 10, ρ 0.02: wce-s2bl (70.00) >= tips (60.00) + 2, "
            "a difference of +8.00",
            "warning: fails: wce-s2bl >= tips + 2: dataset sample, τ 10, ρ 0.2: wce-s2bl (80.00) >= tips (79.00) + 2, "
            "a difference of -1.00",
            "holds: tips > 0 on average: on average over 3 rows: tips (76.33) > 0, a difference of +76.33",
        ],
    )


def test_quiet_tells_failures_only(report: Report) -> None:
    ran = report(SCORES, "--check", "wce-s2bl >= tips", "--check", "wce-s2bl > 75", "--quiet")
    assert ran.code == 1
    assert [line.split(":")[1].strip() for line in ran.stderr.splitlines()] == ["fails"]


def test_units_are_the_tables(report: Report) -> None:
    """Values are plain numbers, not percent."""
    claim = "wce-s2bl >= tips + 0.1"
    assert report(ope_scores(), "--metric", "dr", "--check", claim).code == 0
    assert report(ope_scores(), "--metric", "dr", "--check", "wce-s2bl >= tips + 0.2").code == 1
    ran = report(ope_scores(), "--check", claim)
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: --check and --baseline compare one number: pass --metric, such as --metric dr\n",
    )


FORM = (
    "sums of methods and numbers with one of >=, <=, >, < between them and spaces around every word, then rows "
    "(at rho=0.02 tau=10) or on average"
)


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        *((claim, f"--check must be like 'wce-s2bl >= tips + 2', found {claim!r}: {FORM}")
          for claim in ("wce-s2bl", "a > b > c", "wce-s2bl >= tips 2", "> tips", "tips > + 2", "tips > 1 at rho",
                        "tips > 1 at", "tips >> 1")),
        ("tips > kl-s2bl", "--check 'tips > kl-s2bl': 'kl-s2bl' is not in these scores; they have wce-s2bl, "
                           "tips, logging-policy; did you mean wce-s2bl?"),
        ("2 > 1", "--check '2 > 1': it names no method; they have wce-s2bl, tips, logging-policy"),
        ("tips > 1 at lam=3", "--check 'tips > 1 at lam=3': the table's rows are by dataset, tau, rho, not by 'lam'"),
        ("tip > 1", "--check 'tip > 1': 'tip' is not in these scores; they have wce-s2bl, tips, logging-policy; "
                    "did you mean tips?"),
        ("wce-s2bl > tips at rho=1", "--check 'wce-s2bl > tips at rho=1': no row of the scores has argmax-accuracy of "
                                     "all of wce-s2bl, tips"),
    ],
)  # fmt: skip
def test_a_claim_that_means_nothing_is_a_usage_error(report: Report, claim: str, told: str) -> None:
    ran = report(SCORES, "--check", claim, "-o", "table.md")
    assert (ran.code, ran.stdout, ran.stderr) == (2, "", f"s2bl: {told}\n")


def test_no_file_is_written_where_a_claim_means_nothing(report: Report, tmp_path: Path) -> None:
    report(SCORES, "--check", "nonsense", "-o", "table.md")
    assert not (tmp_path / "table.md").exists()
    assert report(SCORES, "--check", "tips > 99", "-o", "table.md").code == 1
    assert (tmp_path / "table.md").exists()


# --- confident claims ---


def _repeated(shift: float) -> list[Any]:
    """Two methods on three masks. Their differences are 5 + shift·(1, 0, −1) points."""
    return [
        some
        for i in range(3)
        for own in [{"seed": i, "mask.seed": i, "logs.seed": 0, "stderr": 0.0}]
        for some in (score(0.75 + 0.01 * i, **own), score(0.70 + 0.01 * i + shift * (i - 1) / 100, "tips", **own))
    ]


def test_confident_claims_on_repetitions_are_students_test(report: Report) -> None:
    """Differences 4 5 6: 5 ± t₂·1/√3 = 5 ± 2.48. Differences 1 5 9 have four times the width."""
    ran = report(_repeated(1.0), "--check", "wce-s2bl > tips", "--confident")
    assert (ran.code, ran.stderr) == (
        0,
        "holds: wce-s2bl > tips: dataset sample, τ 10, ρ 0.02: wce-s2bl (76.00) > tips (71.00), a difference of +5.00 "
        "[+2.52, +7.48] (argmax-accuracy)\n",
    )
    assert report(_repeated(1.0), "--check", "wce-s2bl > tips + 2.5", "--confident").code == 0
    assert report(_repeated(1.0), "--check", "wce-s2bl > tips + 2.6", "--confident").code == 1
    ran = report(_repeated(4.0), "--check", "wce-s2bl > tips", "--confident")
    assert ran.code == 1
    assert "a difference of +5.00 [-4.94, +14.94]" in ran.stderr
    assert report(_repeated(4.0), "--check", "wce-s2bl > tips").code == 0


def test_a_confident_claim_on_one_method_needs_no_pair(report: Report) -> None:
    """A single run of 70 ± 1: above 68, and not above 68.1."""
    assert report([score(0.70)], "--check", "wce-s2bl > 68", "--confident").code == 0
    assert report([score(0.70)], "--check", "wce-s2bl > 68.1", "--confident").code == 1


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--confident",), "--confident needs --check: --check 'new > logging' --confident"),
        (("--check", "wce-s2bl > tips on average", "--confident"),
         "--check 'wce-s2bl > tips on average': --confident checks every row by itself: drop 'on average'"),
        (("--check", "wce-s2bl > nothing", "--confident"),
         "--check 'wce-s2bl > nothing': 'nothing' is not in these scores; they have wce-s2bl, tips, logging-policy"),
    ],
)  # fmt: skip
def test_wrong_confident_claims(report: Report, flags: tuple[str, ...], told: str) -> None:
    ran = report(SCORES, *flags)
    assert (ran.code, ran.stderr) == (2, f"s2bl: {told}\n")


def test_a_confident_claim_without_standard_errors_is_refused(report: Report) -> None:
    ran = report(
        [score(0.7, stderr=None), score(0.6, "tips", stderr=None)], "--check", "wce-s2bl > tips", "--confident"
    )
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: --check 'wce-s2bl > tips' --confident: argmax-accuracy has no standard error in these scores: score "
        "with s2bl evaluate\n",
    )


# --- against a baseline ---


@pytest.fixture
def baseline(tmp_path: Path) -> str:
    write_scores([score(0.75), score(0.50, "tips")], LINEAGE, str(tmp_path / "old.parquet"), force=True)
    return "old.parquet"


@pytest.mark.parametrize(("new", "tolerance", "code"), [(0.75, 0, 0), (0.745, 0.5, 0), (0.744, 0.5, 1), (0.9, 0, 0)])
def test_scores_may_fall_behind_by_the_tolerance(
    report: Report, baseline: str, new: float, tolerance: float, code: int
) -> None:
    ran = report([score(new), score(0.5, "tips")], "--baseline", baseline, "--tolerance", tolerance)
    assert ran.code == code, ran.stderr


def test_baseline_is_told_cell_by_cell(report: Report, baseline: str) -> None:
    """A number that is no longer there fails too; a new one is nobody's loss."""
    ran = report([score(0.72), score(0.6, "kl-s2bl")], "--baseline", baseline, "--tolerance", 1)
    assert (ran.code, ran.stderr.splitlines()) == (
        1,
        [
            "warning: fails: no worse than the baseline by more than 1: dataset sample, τ 10, ρ 0.02: wce-s2bl was "
            "75.00 and is 72.00 (-3.00)",
            "warning: fails: no worse than the baseline by more than 1: dataset sample, τ 10, ρ 0.02: tips was 50.00 "
            "and is not there",
        ],
    )


def test_a_lower_risk_is_no_loss(report: Report, tmp_path: Path) -> None:
    write_scores([score(-0.5, metric="true-risk")], LINEAGE, str(tmp_path / "old.parquet"), force=True)
    assert report([score(-0.6, metric="true-risk")], "--baseline", "old.parquet").code == 0
    assert report([score(-0.4, metric="true-risk")], "--baseline", "old.parquet").code == 1


def test_baseline_without_the_metric_is_a_usage_error(report: Report, tmp_path: Path) -> None:
    write_scores([score(0.5, metric="dr")], LINEAGE, str(tmp_path / "old.parquet"), force=True)
    ran = report([score(0.5)], "--baseline", "old.parquet")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: no score of argmax-accuracy in these files; they have dr: pass --metric\n",
    )


def test_claims_need_scores(run: Callable[..., Any], tmp_path: Path, write_log: Any) -> None:
    """A figure of a log can be had without; a claim that nothing was held against must not pass."""
    write_log(tmp_path / "log.parquet")
    ran = run("report", "log.parquet", "--plot", "a.svg", "--check", "wce-s2bl > 1")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: a table needs scores, but none were given: make them with s2bl evaluate\n",
    )
    assert not (tmp_path / "a.svg").exists()
