"""Tables of scores: the whole text, by hand, and what is refused rather than averaged."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats
from score_fixtures import TABLE_2, logging, ope_scores, score, table_2_scores, weight_shares

from s2bl_cli.objectives.hyperparameters import declared_hyperparameters
from s2bl_cli.registry import TABLES
from s2bl_cli.reporting.formats.markdown import cell_text, markdown
from s2bl_cli.reporting.quantities import quantity
from s2bl_cli.reporting.runs import title_of
from s2bl_cli.reporting.significance import marked
from s2bl_cli.reporting.table import Cell, Table

Report = Callable[..., Any]
OTHER_HYPERPARAMETERS = ", ".join(name for name in declared_hyperparameters() if name != "lam")


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
        *(score(value, seed=seed) for seed, value in enumerate((0.70, 0.72, 0.77))),
        *(score(value, "tips", seed) for seed, value in enumerate((0.60, 0.64))),
        score(0.8, seed=5, rho=0.2),
        logging(0.25),
    ]
    ran = report(scores)
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout == (
        "Argmax accuracy in %, mean ± std over 1 to 3 seeds\n"
        "\n"
        "| dataset | τ  | ρ    |         WCE-S2BL |       Truncated IPS | Logging policy |\n"
        "| ------- | -- | ---- | ---------------: | ------------------: | -------------: |\n"
        "| sample  | 10 | 0.02 | **73.00 ± 3.61** | <u>62.00 ± 2.83</u> |          25.00 |\n"
        "| sample  | 10 | 0.2  |        **80.00** |                   – |          25.00 |\n"
        "\n"
        "Rows won: WCE-S2BL 2 of 2.\n"
    )


def test_one_run_has_no_deviation(report: Report) -> None:
    ran = report([score(0.5)])
    assert ran.stdout.startswith("Argmax accuracy in %, single run\n")
    assert _table(ran)[1] == ["sample", "10", "0.02", "50.00", "–"]


def test_equal_counts_of_seeds_are_told_as_one(report: Report) -> None:
    ran = report([score(0.5, method, seed) for method in ("tips", "wce-s2bl") for seed in range(2)])
    assert ran.stdout.startswith("Argmax accuracy in %, mean ± std over 2 seeds\n")


def test_every_cell_that_prints_as_the_best_is_bold(report: Report) -> None:
    """70.004 and 69.996 both print 70.00; 69.99 does not. Nothing is known of their noise."""
    scores = [score(0.70004), score(0.69996, "tips"), score(0.6999, "kl-s2bl")]
    cells = dict(zip(*_table(report([replace(one, stderr=None) for one in scores])), strict=True))
    assert (cells["WCE-S2BL"], cells["Truncated IPS"], cells["KL-S2BL"]) == ("**70.00**", "**70.00**", "<u>69.99</u>")


def test_best_within_noise_is_not_bold(report: Report) -> None:
    """Standard errors of 1 point each: 72 and 70 are √2 apart, z = 1.41; 75 and 70 are 5/√2 = 3.5 apart."""
    assert _table(report([score(0.72), score(0.70, "tips")]))[1][3:5] == ["72.00", "70.00"]
    assert _table(report([score(0.75), score(0.70, "tips")]))[1][3:5] == ["**75.00**", "70.00"]
    seeds = [score(value, seed=seed) for seed, value in enumerate((0.7, 0.8))]
    seeds += [score(value, "tips", seed) for seed, value in enumerate((0.6, 0.75))]
    ran = report([*seeds, score(0.9, seed=5, rho=0.2), score(0.5, "tips", seed=5, rho=0.2)])
    assert [cell.startswith("**") for row in _table(ran)[1:] for cell in row[3:5]] == [False, False, True, False]
    assert ran.stdout.endswith("Rows won: WCE-S2BL 1 of 2, no clear winner in 1.\n")


def test_lone_value_is_not_bold(report: Report) -> None:
    """There is nothing that it is better than; nor where all print alike."""
    assert _table(report([score(0.5)]))[1][3:] == ["50.00", "–"]
    assert _table(report([score(0.5), score(0.5, "tips")]))[1][3:] == ["50.00", "50.00", "–"]


def test_a_negative_divergence_is_not_the_best(report: Report) -> None:
    """It is noise: a divergence is at least 0."""
    values = {"wce-s2bl": -0.3, "tips": 0.4, "kl-s2bl": 0.9}
    scores = [score(value, method, metric="kl-sampled") for method, value in values.items()]
    assert "**" not in report(scores).stdout
    assert _table(report(scores[1:]))[1][3:5] == ["0.9000", "**0.4000**"]


def test_bold_follows_the_printed_digits_at_every_half() -> None:
    """0.99985 prints as 99.98 and rounds to 0.9999: bold goes by what is printed."""
    for i in range(5, 100_000, 10):
        cells = [Cell(i / 100_000), Cell((i - 5) / 100_000), Cell((i + 5) / 100_000), Cell(), Cell(-1.0)]
        ranked = marked(cells, quantity("argmax-accuracy"))
        printed = [cell_text(cell) for cell in cells]
        best = max(printed[:3], key=float)
        assert [cell.is_best for cell in ranked] == [text == best for text in printed]


def test_logging_policy_can_be_the_best(report: Report) -> None:
    assert _table(report([score(0.2), logging(0.25)]))[1][3:] == ["20.00", "**25.00**"]


def test_methods_come_in_their_order_and_strangers_last(report: Report) -> None:
    header = _table(report([score(0.1, name) for name in ("zeta", "tips", "alpha", "wce-s2bl")]))[0]
    assert header[3:] == ["WCE-S2BL", "Truncated IPS", "alpha", "zeta", "Logging policy"]


def test_rows_are_sorted_by_number_and_unknown_keys_come_last(report: Report) -> None:
    keys = [(10.0, 0.2), (5.0, 0.2), (10.0, 0.02), (None, None)]
    rows = _table(report([score(0.1, tau=tau, rho=rho) for tau, rho in keys]))[1:]
    assert [row[1:3] for row in rows] == [["5", "0.2"], ["10", "0.02"], ["10", "0.2"], ["–", "–"]]


def test_logging_policy_stands_beside_its_own_data(report: Report) -> None:
    """By dataset and τ: at every ρ of it, and nowhere else. A foreign log has no τ, and its own policy still."""
    scores = [score(0.5, dataset=dataset, tau=tau, rho=rho) for dataset, tau in (("a", 1.0), ("a", 5.0), ("b", None))
              for rho in (0.1, 0.2)]  # fmt: skip
    scores += [logging(0.3, dataset="a", tau=5.0), logging(0.4, dataset="b", tau=None)]
    rows = _table(report(scores))[1:]
    assert [row[4] for row in rows] == ["–", "–", "30.00", "30.00", "40.00", "40.00"]


def test_like_is_compared_with_like(report: Report) -> None:
    """Argmax with argmax, sampled with sampled."""
    scores = [
        score(0.5),
        score(0.4, metric="sampled-accuracy"),
        logging(0.25, metric="sampled-accuracy"),
        logging(0.9, metric="argmax-accuracy"),
    ]
    assert _table(report(scores))[1][3:] == ["50.00", "**90.00**"]
    ran = report(scores, "--metric", "sampled-accuracy")
    assert ran.stdout.startswith("Sampled accuracy in %, single run\n")
    assert _table(ran)[1][3:] == ["**40.00**", "25.00"]


def test_draws_of_the_logging_policy_never_stand_beside_argmax(report: Report) -> None:
    """A log without π₀ has no argmax of its logging policy: the cell is empty, and a note says why."""
    scores = [score(0.5), logging(0.25, metric="sampled-accuracy")]
    ran = report(scores)
    assert _table(ran)[1][3:] == ["50.00", "–"]
    assert "The logging policy's argmax accuracy is unknown" in ran.stdout
    assert "unknown" not in report([*scores, logging(0.9, metric="argmax-accuracy")]).stdout


def test_names_from_files_cannot_break_the_table(report: Report) -> None:
    ran = report([score(0.5, dataset="a|b\n\x1b[31m|c")])
    assert "| a\\|b [31m\\|c | 10 | 0.02 |" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_markdown_of_a_table() -> None:
    table = Table(("k",), {"1": "one", "2": "two"}, ((("x",), (Cell(0.5, 0.015, True), Cell())),), "Caption")
    assert markdown(table) == "Caption\n\n| k |              one | two |\n| - | ---------------: | --: |\n" + (
        "| x | **50.00 ± 1.50** |   – |\n"
    )


# --- what is counted, and what is not ---


def test_same_score_given_twice_is_counted_once(run: Callable[..., Any], report: Report) -> None:
    scores = [score(0.5), score(0.6, seed=1), logging(0.25)]
    once = report(scores)
    assert run("report", "scores.parquet", "scores.parquet").stdout == once.stdout
    assert report([*scores, *scores]).stdout == once.stdout
    assert _table(once)[1][3:] == ["55.00 ± 7.07", "25.00"]


def test_logging_policy_of_a_masked_copy_is_counted_once(report: Report) -> None:
    """The same rows in another file: another digest, the same number. Logs of two seeds are two."""
    copy = {"log": "masked.parquet", "log_sha256": "b"}
    scores = [score(0.5), score(0.6, seed=1, **copy), logging(0.25), logging(0.25, **copy)]
    assert _table(report(scores))[1][3:] == ["55.00 ± 7.07", "25.00"]
    other = {"log": "other.parquet", "log_sha256": "b", "logs.seed": 1}
    scores = [score(0.5), score(0.6, seed=1, **other), logging(0.2, **{"logs.seed": 0}), logging(0.3, **other)]
    assert _table(report(scores))[1][3:] == ["55.00 ± 7.07", "25.00 ± 7.07"]


def test_policies_that_were_asked_for_differently_have_columns_of_their_own(report: Report) -> None:
    scores = [score(0.5, lam=0.1), score(0.7, lam=1.0), score(0.6, "tips", lam=0.1), logging(0.25)]
    ran = report(scores)
    assert _table(ran) == [
        ["dataset", "τ", "ρ", "WCE-S2BL (λ 0.1)", "WCE-S2BL (λ 1)", "Truncated IPS", "Logging policy"],
        ["sample", "10", "0.02", "50.00", "**70.00**", "<u>60.00</u>", "25.00"],
    ]
    assert ran.stdout.endswith(
        "Policies with different settings have separate columns: WCE-S2BL (lam). "
        "Choose with --where, or make rows with --group-by.\n"
    )
    # The logging policy, which has no λ, stays.
    assert _table(report(scores, "--where", "lam=0.1"))[1][3:] == ["<u>50.00</u>", "**60.00**", "25.00"]
    claim = report(scores, "--check", "wce-s2bl:lam=1 >= wce-s2bl:lam=0.1 + 20")
    assert claim.code == 0, claim.stderr


def test_only_what_differs_in_a_row_makes_columns(report: Report) -> None:
    """λ and epochs of another dataset are in another row."""
    scores = [score(0.5, lam=0.1, epochs=2), score(0.7, lam=1.0, epochs=2), score(0.6, dataset="b", lam=5.0, epochs=9)]
    assert _table(report(scores))[0][3:-1] == ["WCE-S2BL (λ 0.1)", "WCE-S2BL (λ 1)", "WCE-S2BL (λ 5)"]
    assert _table(report(scores[1:]))[0][3:-1] == ["WCE-S2BL"]


def test_runs_of_other_requests_are_not_averaged(report: Report) -> None:
    """Seeds differ, and so does what was asked for: ten epochs and one, a mask by hand and another."""
    ran = report([score(0.79, seed=0, epochs=10), score(0.62, seed=1, epochs=1)])
    assert _table(ran)[0][3:5] == ["WCE-S2BL (1 epoch)", "WCE-S2BL (10 epochs)"]
    assert _table(ran)[1][3:5] == ["62.00", "**79.00**"]
    ran = report([score(0.5, tau=None), score(0.7, tau=None, seed=1, model="mlp")], "--table", "main")
    assert _table(ran)[0][3:5] == ["WCE-S2BL (linear)", "WCE-S2BL (mlp)"]
    assert "WCE-S2BL (model). Choose with --where" in ran.stdout


def test_runs_of_seeds_alone_are_averaged(report: Report) -> None:
    """Of training, of the mask and of the log, whose name and counts follow."""
    logs = [{"log": f"{seed}.parquet", "log_sha256": str(seed), "logs.seed": seed, "mask.seed": seed, "mask.rho": 0.02,
             "known": 20, "missing": 980 + 19 * seed, "rho": 20 / (1000 + 19 * seed)} for seed in (0, 1)]  # fmt: skip
    scores = [score(0.5 + 0.1 * seed, seed=seed, **log) for seed, log in enumerate(logs)]
    ran = report(scores)
    assert _table(ran)[1][2:4] == ["0.02", "55.00 ± 7.07"]
    assert "Averaged runs differ in missing: wce-s2bl at dataset sample, τ 10, ρ 0.02 (980, 999).\n" in ran.stdout


def test_logs_that_are_no_repetitions_have_rows_of_their_own(report: Report) -> None:
    """A normal and an adverse log, whatever the seeds."""
    logs = {False: {"log": "normal.parquet", "log_sha256": "n"}, True: {"log": "adverse.parquet", "log_sha256": "a"}}
    scores = [
        row
        for is_adverse, log in logs.items()
        for row in (score(0.01 if is_adverse else 0.76, seed=int(is_adverse), **log, **{"logs.adverse": is_adverse}),
                    logging(0.02 if is_adverse else 0.25, **log, **{"logs.adverse": is_adverse}))
    ]  # fmt: skip
    ran = report(scores)
    assert _table(ran) == [
        ["dataset", "τ", "ρ", "log", "WCE-S2BL", "Logging policy"],
        ["sample", "10", "0.02", "adverse.parquet", "1.00", "2.00"],
        ["sample", "10", "0.02", "normal.parquet", "**76.00**", "25.00"],
    ]
    assert "Each log has its own rows, because the logs differ in logs.adverse: choose with --where.\n" in ran.stdout
    assert _table(report(scores, "--where", "logs.adverse=false"))[1][3:] == ["**76.00**", "25.00"]


def test_one_policy_on_two_logs_is_not_two_runs(report: Report) -> None:
    ran = report([score(0.5), score(0.7, log="b.parquet", log_sha256="b")])
    assert [row[3:5] for row in _table(ran)] == [["log", "WCE-S2BL"], ["a.parquet", "50.00"], ["b.parquet", "70.00"]]


def test_champion_and_challenger_on_a_new_log(report: Report) -> None:
    """Trained on other logs than they are scored on: one row for the log, one column per policy, the baseline beside
    them. By file where more than one setting differs, or none."""
    week = {"log": "week.parquet", "log_sha256": "w", "tau": None}
    own = {**week, "model": "linear", "stderr": None}
    for march, april in (({"lam": 1.0, "epochs": 5}, {"lam": 0.1, "epochs": 9}), ({"lam": 1.0}, {"lam": 1.0})):
        scores = [
            score(0.7, dataset="log", rho=0.2, policy="champion.safetensors", policy_sha256="1", **march, **own),
            score(0.8, dataset="log", rho=0.2, policy="challenger.safetensors", policy_sha256="2", **april, **own),
            logging(0.6, dataset="week", **week, stderr=None),
        ]
        ran = report(scores, "--check", "challenger > champion + 5")
        assert ran.code == 0, ran.stderr
        assert _table(ran) == [
            ["dataset", "τ", "WCE-S2BL (champion)", "WCE-S2BL (challenger)", "Logging policy"],
            ["week", "–", "<u>70.00</u>", "**80.00**", "60.00"],
        ]


def test_data_that_a_policy_learned_from_tells_it(report: Report) -> None:
    scores = [score(0.7, dataset="march", log_sha256="w"), score(0.8, dataset="april", log_sha256="w"),
              logging(0.6, dataset="week", log_sha256="w")]  # fmt: skip
    assert _table(report(scores))[0] == [
        "dataset", "τ", "WCE-S2BL (trained on april)", "WCE-S2BL (trained on march)", "Logging policy"
    ]  # fmt: skip


def test_shares_make_rows_of_policies_that_differ_in_the_mask_alone(report: Report) -> None:
    """On another log too: a grid stays a grid."""
    shares = [{"rho": rho, "mask.rho": rho} for rho in (0.02, 0.2)]
    scores = [score(0.7, method, dataset="a", log_sha256="b", **share) for share in shares for method in ("tips", "os")]
    rows = _table(report([*scores, logging(0.6, dataset="b", log_sha256="b")]))
    assert [row[:3] for row in rows[1:]] == [["b", "10", "0.02"], ["b", "10", "0.2"]]
    assert [row[-1] for row in rows[1:]] == ["<u>60.00</u>", "<u>60.00</u>"]


def test_columns_that_are_called_alike_are_not_one(report: Report) -> None:
    """Files of one name that were asked for differently in two settings; λs that print alike."""
    ran = report([score(0.5, policy="p", lam=0.1, epochs=1), score(0.6, policy="p", lam=1.0, epochs=2)])
    assert _table(ran)[0][3:5] == ["WCE-S2BL (λ 0.1, 1 epoch)", "WCE-S2BL (λ 1, 2 epochs)"]
    ran = report([score(0.5, lam=0.12345), score(0.6, lam=0.12346)])
    assert _table(ran)[1][3:5] == ["50.00", "**60.00**"]


def test_many_columns_of_one_method_are_refused(report: Report) -> None:
    ran = report([score(0.5, lam=lam) for lam in range(1, 20)])
    assert (ran.code, ran.stdout, ran.stderr) == (
        2,
        "",
        "s2bl: wce-s2bl at dataset sample, τ 10, ρ 0.02 has 19 runs that differ in lam: 1.0, 2.0, 3.0, 4.0 "
        "and 15 more; choose with --where lam=1.0, or make rows with --group-by dataset,tau,rho,lam\n",
    )


def test_runs_of_files_of_one_name_are_told_apart_by_their_digests(report: Report) -> None:
    scores = [score(0.5, policy_sha256="one"), score(0.7, policy_sha256="other")]
    ran = report(scores)
    assert ran.code == 2
    assert "2 runs that differ in policy_sha256: one, other; choose with --where policy_sha256=one," in ran.stderr
    assert "70.00" in report(scores, "--where", "policy_sha256=other").stdout


# --- filters ---


def test_where_filters_by_text_and_by_number(report: Report) -> None:
    scores = [score(0.5, tau=5.0), score(0.6, "tips", tau=5.0), score(0.7, tau=10.0), logging(0.25, tau=5.0)]
    assert _table(report(scores, "--where", "tau=5"))[1:] == [
        ["sample", "5", "0.02", "<u>50.00</u>", "**60.00**", "25.00"]
    ]
    ran = report(scores, "--where", "tau=5.0", "--where", "method=tips")
    assert _table(ran) == [["dataset", "τ", "ρ", "Truncated IPS", "Logging policy"],
                           ["sample", "5", "0.02", "**60.00**", "25.00"]]  # fmt: skip
    ran = report(scores, "--where", "method=tips", "--where", "rho=0.02")
    assert _table(ran)[1][3:] == ["**60.00**", "25.00"]
    assert _table(report(scores, "--where", "tau=5", "--where", "method!=logging-policy"))[1][-1] == "–"
    scores = [score(0.5, seed=0), score(0.9, seed=1), logging(0.25)]
    assert _table(report(scores, "--where", "seed=1"))[1][3:] == ["**90.00**", "25.00"]


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--where", "lam=7"], "no score of a policy matches --where 'lam=7'; list the scores with s2bl inspect"),
        (
            ["--where", "tau=10", "--where", "method=x"],
            "no score of a policy matches --where 'tau=10' --where 'method=x'; list the scores with s2bl inspect",
        ),
        (["--where", "lam=big"], "--where lam=… needs a number, found 'big'"),
        (
            ["--where", "lambda=1"],
            "--where must be COLUMN=VALUE with a column of lam, policy, policy_sha256, log, log_sha256, method, seed, "
            "split, metric, label, value, stderr, low, high, level, interval, rows, note, dataset, model, risk, reg, "
            f"reg_rows, baseline, tau, rho, mask.rho, known, missing, mask.seed, logs.seed, {OTHER_HYPERPARAMETERS}, "
            "logging_model, trained_on, trained_tau, found 'lambda=1'",
        ),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_filter_that_leaves_nothing_or_means_nothing_is_told(report: Report, flags: list[str], line: str) -> None:
    ran = report([score(0.5), logging(0.25)], *flags)
    assert (ran.code, ran.stdout, ran.stderr) == (2, "", f"s2bl: {line}\n")


def test_metric_that_is_not_in_the_files_is_told(report: Report) -> None:
    ran = report([score(0.5), logging(0.25, metric="sampled-accuracy")], "--metric", "sampled-accuracy")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: no trained policy has a score of sampled-accuracy in these files: evaluate some\n",
    )
    ran = report([score(0.5, metric="other")], "--metric", "sampled-accuracy")
    assert ran.stderr == "s2bl: no score of sampled-accuracy in these files; they have other: pass --metric\n"


def test_metric_that_is_unknown_is_refused_with_the_known_ones(report: Report) -> None:
    ran = report([score(0.5)], "--metric", "beauty")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == "s2bl: no score of beauty in these files; they have argmax-accuracy: pass --metric\n"


def test_choices_of_a_metric_are_all_listed_and_the_nearest_is_first(report: Report) -> None:
    names = [f"metric-{letter * 20}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    ran = report([score(0.5, metric=name) for name in (*names, "argmax-accuracy")], "--metric", "argmax-acuracy")
    start = "s2bl: no score of argmax-acuracy in these files; they have "
    assert ran.stderr == f"{start}{', '.join(['argmax-accuracy', *names])}: pass --metric\n"


def test_table_goes_to_a_file(report: Report, tmp_path: Path) -> None:
    to_stdout = report([score(0.5)]).stdout
    ran = report([score(0.5)], "-o", "table.md")
    assert (ran.code, ran.stdout) == (0, "")
    assert (tmp_path / "table.md").read_text() == to_stdout
    assert report([score(0.6)], "-o", "table.md").code == 2
    assert (tmp_path / "table.md").read_text() == to_stdout


# --- the shapes of the paper ---


def test_table_2_of_the_paper(report: Report) -> None:
    """Eight rows, five methods and the logging policy, to the digit; bold where the paper's numbers are highest."""
    ran = report([replace(one, stderr=None) for one in table_2_scores()])
    assert ran.stdout.startswith("Argmax accuracy in %, mean ± std over 3 seeds\n")
    header, *rows = _table(ran)
    assert header == [
        "dataset", "τ", "ρ", "WCE-S2BL", "KL-S2BL", "WCE-S2BLK", "KL-S2BLK", title_of("banditnet"),
        "Logging policy",
    ]  # fmt: skip
    assert [row[:3] for row in rows[:4]] == [["fmnist", "1", "0.02"], ["fmnist", "1", "0.2"], ["fmnist", "10", "0.02"],
                                             ["fmnist", "10", "0.2"]]  # fmt: skip
    for row in rows:
        cells, own = TABLE_2[row[0], float(row[1]), float(row[2])]
        plain = [cell.replace("**", "").replace("<u>", "").replace("</u>", "") for cell in row[3:]]
        assert plain == [*(f"{mean:.2f} ± {std:.2f}" for mean, std in cells), f"{own:.2f}"]
        means = [*(mean for mean, _ in cells), own]
        first, second = sorted(range(6), key=lambda at: -means[at])[:2]
        p = _paired(cells[first], cells[second]) if second < 5 else 0.0
        assert [cell.startswith("**") for cell in row[3:]] == [at == first and p <= 0.05 for at in range(6)]
        assert [cell.startswith("<u>") for cell in row[3:]] == [at == second and p <= 0.05 for at in range(6)]
    # On CIFAR-10 at τ = 1, WCE-S2BL and KL-S2BL are within noise: 85.01 ± 0.37 and 84.60 ± 0.65, and the reverse.
    assert ran.stdout.endswith("\n\nRows won: WCE-S2BL 6 of 8, no clear winner in 2.\n")


def _paired(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Of the same three seeds, at mean − std, mean and mean + std."""
    if one[1] == other[1]:
        return 0.0
    seeds = [[mean + shift * std for shift in (-1, 0, 1)] for mean, std in (one, other)]
    return float(stats.ttest_rel(*seeds).pvalue)


def test_full_table_has_a_row_for_every_model(report: Report) -> None:
    scores = [score(0.5), score(0.7, model="mlp"), score(0.4, "tips"), logging(0.25)]
    by_asking, by_itself = report(scores, "--table", "full"), report(scores)
    assert by_asking.stdout == by_itself.stdout
    assert _table(by_asking) == [
        ["dataset", "model", "τ", "ρ", "WCE-S2BL", "Truncated IPS", "Logging policy"],
        ["sample", "linear", "10", "0.02", "**50.00**", "<u>40.00</u>", "25.00"],
        ["sample", "mlp", "10", "0.02", "**70.00**", "–", "25.00"],
    ]


def test_regularisers_alone_stand_beside_the_whole(report: Report) -> None:
    """As in the paper: no logging policy."""
    methods = {"kl-only": 0.3, "wce-only": 0.6, "kl-s2bl": 0.5, "wce-s2bl": 0.7}
    scores = [score(value, method, tau=tau) for method, value in methods.items() for tau in (1.0, 5.0)]
    ran = report([*scores, logging(0.2)])
    assert ran.stdout.startswith("Argmax accuracy in %, single run\n")
    assert _table(ran) == [
        ["dataset", "τ", "ρ", *map(title_of, ("wce-s2bl", "wce-only", "kl-s2bl", "kl-only"))],
        ["sample", "1", "0.02", "**70.00**", "<u>60.00</u>", "50.00", "30.00"],
        ["sample", "5", "0.02", "**70.00**", "<u>60.00</u>", "50.00", "30.00"],
    ]
    none = report([score(0.5)], "--table", "regulariser-only")
    assert (none.code, none.stderr) == (
        2,
        "s2bl: --table regulariser-only needs a method without a risk, such as wce-only, but these scores have none: "
        "try --table main\n",
    )


def test_ratio_of_missing_to_known_rows(report: Report) -> None:
    """With 100 known rows: 0, 100 and 900 missing ones. Chosen where known rows are fixed and missing ones vary."""
    scores = [score(0.5 + 0.1 * i, known=100, missing=missing, rho=100 / (100 + missing), log_sha256=str(i))
              for i, missing in enumerate((0, 100, 900))]  # fmt: skip
    ran = report(scores)
    assert _table(ran) == [
        ["dataset", "τ", "known rows", "missing / known", "WCE-S2BL", "Logging policy"],
        ["sample", "10", "100", "0", "50.00", "–"],
        ["sample", "10", "100", "1", "60.00", "–"],
        ["sample", "10", "100", "9", "70.00", "–"],
    ]
    assert report(scores, "--table", "main").stdout != ran.stdout
    unknown = report([score(0.5)], "--table", "missing-ratio")
    assert (unknown.code, unknown.stderr) == (
        2,
        "s2bl: --table missing-ratio needs the numbers of known and missing rows, which these scores lack: score "
        "policies from s2bl train\n",
    )


def test_estimates_with_intervals_truth_and_health(report: Report) -> None:
    ran = report(ope_scores())
    assert ran.stdout.startswith("Expected reward estimated from the log: single run, with 95 % intervals (normal)\n")
    header, *rows = _table(ran)
    assert header == ["dataset", "τ", "ρ", "estimator", "WCE-S2BL", "Truncated IPS", "Logging policy"]
    told = {row[3]: row[4:] for row in rows}
    assert list(told)[:6] == ["IPS", "SNIPS", "DM", "DR", "PPI-DR", "truth"]
    assert told["IPS"] == [
        "**0.7120 [0.6920, 0.7320]**",
        "<u>0.6120 [0.5620, 0.6620]</u>",
        "0.2500 [0.2400, 0.2600]",
    ]
    assert told["truth"] == ["**0.7000**", "<u>0.6000</u>", "0.2500"]
    assert told["Effective sample size"] == ["812.4", "80.2", "–"]
    assert told["Verdict"] == ["reliable", "caution", "–"]
    assert "on a.parquet: caution: only 80 effective rows of 1,000\n" in ran.stdout


def test_estimates_of_several_seeds_are_averaged_and_the_worst_verdict_counts(report: Report) -> None:
    scores = [score(value, seed=seed, metric="dr", low=0.1, high=0.9) for seed, value in enumerate((0.6, 0.8))]
    scores += [score(level, seed=seed, metric="health", note="") for seed, level in enumerate((2.0, 0.0))]
    ran = report(scores)
    assert ran.stdout.startswith("Expected reward estimated from the log: mean ± std over 2 seeds\n")
    assert [row[3:] for row in _table(ran)[1:]] == [["DR", "0.7000 ± 0.1414"], ["Verdict", "unreliable"]]


def test_lower_bound_alone_is_shown_as_one(report: Report) -> None:
    ran = report([score(0.5, metric="ix", low=0.4)], "--table", "ope")
    assert _table(ran)[1][-1] == "0.5000 (≥ 0.4000)"


def test_one_estimator_as_a_table_of_methods(report: Report) -> None:
    ran = report(ope_scores(), "--table", "main", "--metric", "ips")
    assert ran.stdout.startswith("Expected reward by IPS, single run, with 95 % intervals (normal)\n")
    cells = ["**0.7120 [0.6920, 0.7320]**", "<u>0.6120 [0.5620, 0.6620]</u>", "0.2500 [0.2400, 0.2600]"]
    assert _table(ran)[1][3:] == cells


def test_lowest_risk_is_the_best(report: Report) -> None:
    ran = report([score(-0.7, metric="true-risk"), score(-0.2, "tips", metric="true-risk")])
    assert _table(ran)[1][3:] == ["**-0.7000**", "-0.2000", "–"]


def test_a_strangers_metric_has_no_best(report: Report) -> None:
    ran = report([score(7.0, metric="regret"), score(8.0, "tips", metric="regret")])
    assert ran.stdout.startswith("Regret, single run\n")
    assert _table(ran)[1][3:] == ["7.0000", "8.0000", "–"]


def test_classes_have_a_row_each(report: Report) -> None:
    scores = [score(0.1 * label, metric="class-accuracy", label=label) for label in (1, 0, 2)]
    ran = report(scores)
    assert [row[3:5] for row in _table(ran)] == [
        ["class", "WCE-S2BL"],
        *([str(i), f"{10 * i:.2f}"] for i in range(3)),
    ]


def test_bins_of_weights_have_a_row_each(report: Report) -> None:
    """Edges are no interval of the share, and a claim can be about a bin."""
    words = ("--metric", "weight-share", "--check", "wce-s2bl <= 15 at bin=2")
    scores = [score(0.5), *weight_shares((0.2, 0.7, 0.1, 0.0))]
    ran = report(scores, *words)
    assert ran.code == 0
    assert ran.stdout.startswith("Share of the known rows by weight in %, single run\n")
    assert [row[3:5] for row in _table(ran)] == [
        ["bin", "WCE-S2BL"], ["0", "20.00"], ["1", "70.00"], ["2", "10.00"], ["3", "0.00"]
    ]  # fmt: skip
    assert _table(report(scores))[1][3:] == ["50.00", "–"]


def test_bins_may_differ_where_a_weight_is_at_an_edge(report: Report) -> None:
    """One row in a thousand fell to the other side in the second scoring: the first one's histogram counts."""
    twice = [*weight_shares((0.2, 0.7, 0.1, 0.0)), *weight_shares((0.201, 0.699, 0.1, 0.0))]
    ran = report(twice, "--metric", "weight-share")
    assert [row[4] for row in _table(ran)[1:]] == ["20.00", "70.00", "10.00", "0.00"]
    ran = report([*twice, *weight_shares((0.2, 0.6, 0.2, 0.0))], "--metric", "weight-share")
    assert ran.code == 2
    assert "has several values of weight-share on a.parquet: 0.7 and 0.699 and 0.6; give" in ran.stderr


# --- rows, choices and notes ---


def test_rows_can_be_by_other_columns(report: Report) -> None:
    scores = [score(0.5, lam=0.1), score(0.7, lam=1.0), score(0.6, "tips", lam=None, reg="none"), logging(0.25)]
    assert _table(report(scores, "--group-by", "dataset,tau,lam")) == [
        ["dataset", "τ", "λ", "WCE-S2BL", "Truncated IPS", "Logging policy"],
        ["sample", "10", "0.1", "**50.00**", "–", "25.00"],
        ["sample", "10", "1", "**70.00**", "–", "25.00"],
        ["sample", "10", "–", "–", "**60.00**", "25.00"],
    ]


def test_logging_policies_of_several_data_are_not_averaged(report: Report) -> None:
    scores = [score(0.5), logging(0.2, tau=1.0), logging(0.3, tau=10.0)]
    assert _table(report(scores, "--group-by", "rho"))[1] == ["0.02", "**50.00**", "30.00"]
    ran = report([*scores, score(0.4, tau=1.0, log="b.parquet")], "--group-by", "rho")
    assert [row[1:] for row in _table(ran)[1:]] == [
        ["a.parquet", "**50.00**", "30.00"],
        ["b.parquet", "**40.00**", "20.00"],
    ]


def test_group_by_takes_columns_that_make_rows(report: Report) -> None:
    ran = report([score(0.5)], "--group-by", "dataset,value")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("s2bl: --group-by must be columns of policy, policy_sha256, log,")
    assert ran.stderr.endswith("each once and with commas between them, found 'dataset,value'\n")


def test_where_takes_several_values_and_leaves_out(report: Report) -> None:
    scores = [score(0.5, rho=rho) for rho in (0.02, 0.1, 0.2)]
    assert [row[2] for row in _table(report(scores, "--where", "rho=0.02,0.2"))[1:]] == ["0.02", "0.2"]
    assert [row[2] for row in _table(report(scores, "--where", "rho!=0.02"))[1:]] == ["0.1", "0.2"]
    both = [score(0.5), score(0.4, "tips"), score(0.3, "kl-s2bl")]
    assert _table(report(both, "--where", "method=tips,kl-s2bl"))[0][3:5] == ["KL-S2BL", "Truncated IPS"]
    assert _table(report(both, "--where", "method!=tips"))[0][3:5] == ["WCE-S2BL", "KL-S2BL"]


def test_hyperparameters_selected_per_seed_are_averaged_and_named(report: Report) -> None:
    """They are results: what they were selected among is what was asked for."""
    asked = {"asked.lam": "0.1,1", "asked.select": "snips"}
    scores = [score(0.5, seed=0, lam=0.1, **asked), score(0.7, seed=1, lam=1.0, **asked)]
    ran = report(scores)
    assert _table(ran)[1][3] == "60.00 ± 14.14"
    note = "Averaged runs differ in lam: wce-s2bl at dataset sample, τ 10, ρ 0.02 (0.1, 1.0).\n"
    assert note in ran.stdout
    shares = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
    many = report(
        [score(0.5, seed=seed, lam=lam, rho=rho, **asked) for rho in shares for seed, lam in ((0, 0.1), (1, 1.0))]
    )
    named = "; ".join(f"wce-s2bl at dataset sample, τ 10, ρ {rho:g} (0.1, 1.0)" for rho in shares[:4])
    assert f"\nAveraged runs differ in lam: {named} and 3 more.\n" in many.stdout


def test_runs_that_were_selected_otherwise_are_not_averaged(report: Report) -> None:
    """Among other values, or by another estimate, or not at all."""
    first = score(0.5, seed=0, lam=0.1, **{"asked.lam": "0.1,1", "asked.select": "snips"})
    for other in ({"asked.lam": "0.1,2", "asked.select": "snips"}, {"asked.lam": "0.1,1", "asked.select": "dr"}, {}):
        ran = report([first, score(0.7, seed=1, lam=0.1, **other)])
        assert "±" not in ran.stdout.split("\n", 1)[1]
        assert len(_table(ran)[0]) == 3 + 2 + 1


def test_two_values_of_one_score_are_told(report: Report) -> None:
    """Unless they differ by rounding. A copy of a policy under another name is the same policy."""
    ran = report([score(0.5, policy="p"), score(0.6, policy="p")])
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: p has several values of argmax-accuracy on a.parquet: 0.5 and 0.6; give the scores of one evaluation\n",
    )
    ran = report([score(0.5, policy="p"), score(0.5 + 1e-9, policy="copy-of-p")])
    assert _table(ran)[1][3] == "50.00"


def test_policies_without_a_common_metric_are_told(report: Report) -> None:
    scores = [score(0.5), score(0.6, "tips", metric="dr")]
    ran = report(scores)
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: these policies have no metric in common: wce-s2bl has argmax-accuracy; tips has dr; pass --metric, "
        "or other scores\n",
    )
    chosen = report(scores, "--metric", "argmax-accuracy")
    assert chosen.stdout.endswith("Left out, because they have no argmax-accuracy: tips.\n")


def test_no_estimates_are_told(report: Report) -> None:
    ran = report([score(0.5)], "--table", "ope")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: no estimate of a policy's value in these files; they have argmax-accuracy: s2bl evaluate makes some, "
        "or try --table main\n",
    )


@pytest.mark.parametrize("table", TABLES.names)
def test_every_table_of_some_scores(report: Report, table: str) -> None:
    """A table that is added is made unasked: of scores that have something for each."""
    sizes = {"known": 100, "missing": 900}
    scores = [score(0.5, method, seed, **sizes) for method in ("wce-s2bl", "wce-only") for seed in range(2)]
    scores += [
        score(0.5, method, seed, metric="dr", **sizes) for method in ("wce-s2bl", "wce-only") for seed in range(2)
    ]
    header, *rows = _table(report([*scores, logging(0.2)], "--table", table))
    assert rows
    assert {"WCE-S2BL", title_of("wce-only")} <= set(header)


def test_files_that_are_no_scores_are_told(
    report: Report, run: Callable[..., Any], tmp_path: Path, write_log: Any
) -> None:
    write_log(tmp_path / "log.parquet")
    ran = run("report", "log.parquet")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: log.parquet: it is a logs file, but a scores file is needed here (made by s2bl evaluate)\n",
    )
