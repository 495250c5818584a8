"""Our numbers beside the paper's."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from score_fixtures import TABLE_2, TABLE_2_METHODS, logging, score, table_2_scores

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.reporting.published import paper

Report = Callable[..., Any]


def _rows(ran: Any) -> list[list[str]]:
    assert ran.code == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in [lines[0], *lines[2:]]]


# --- the data ---


def test_published_numbers_are_the_papers() -> None:
    """The main table of deep policies, typed in by hand elsewhere; a cell of each other table; and their number."""
    deep = paper().filter((pl.col("model") == "deep") & (pl.col("table") == "main-banditnet-full"))
    for (dataset, tau, rho), (cells, own) in TABLE_2.items():
        here = deep.filter((pl.col("dataset") == dataset) & (pl.col("tau") == tau) & (pl.col("rho") == rho))
        for method, (mean, std) in zip(TABLE_2_METHODS, cells, strict=True):
            ((found, deviation),) = here.filter(pl.col("method") == method).select("mean", "std").rows()
            assert (found, deviation) == (pytest.approx(mean / 100), pytest.approx(std / 100))
        assert here.filter(pl.col("method") == "logging-policy")["mean"].to_list() == [pytest.approx(own / 100)]
    counts = dict(paper()["table"].value_counts().rows())
    assert counts == {
        "main-banditnet-full": 224,
        "main-linear-full": 224,
        "main-banditnet-full-emn-cifar-100": 140,
        "main-linear-EM-Cifar-100": 224,
        "Cifar-10-linear-full": 112,
        "only-regulariser": 32,
        "Q-learning": 80,
        "kuairec": 15,
    }


@pytest.mark.parametrize(
    ("table", "dataset", "tau", "rho", "method", "mean", "std"),
    [
        ("main-linear-full", "fmnist", 10, 0.02, "wce-s2bl", 0.8231, 0.0007),
        ("only-regulariser", "fmnist", 20, 0.1, "wce-only", 0.1415, 0.0050),
        ("Q-learning", "emnist", 10, 0.2, "q-learning", 0.2414, 0.1054),
        ("kuairec", "kuairec", None, 0.02, "kl-s2bl", 0.88, 0.28),
    ],
)
def test_published_cells(
    table: str, dataset: str, tau: float | None, rho: float, method: str, mean: float, std: float
) -> None:
    found = paper().filter(
        (pl.col("table") == table) & (pl.col("dataset") == dataset) & pl.col("tau").eq_missing(pl.lit(tau))
        & (pl.col("rho") == rho) & (pl.col("method") == method)
    )  # fmt: skip
    assert found.select("mean", "std").rows() == [(pytest.approx(mean), pytest.approx(std))]


# --- beside ours ---


def test_ours_theirs_and_the_difference(report: Report) -> None:
    """A linear policy on FMNIST at τ = 10, ρ = 0.02: the paper has 82.31 ± 0.07, and 20.72 for the logging policy."""
    scores = [
        score(0.80, seed=0, dataset="fmnist"),
        score(0.82, seed=1, dataset="fmnist"),
        score(0.5, "my-own", dataset="fmnist"),
        logging(0.28, dataset="fmnist", model="resnet-v1", metric="sampled-accuracy"),
    ]
    ran = report(scores, "--against", "paper")
    assert ran.stdout.startswith("Argmax accuracy in %, ours and the paper's\n")
    assert _rows(ran) == [
        ["dataset", "model", "τ", "ρ", "method", "Ours", "Paper", "Difference"],
        ["fmnist", "linear", "10", "0.02", "WCE-S2BL ‡", "81.00 ± 1.41", "82.31 ± 0.07", "-1.31"],
        ["fmnist", "linear", "10", "0.02", "Logging policy (sampled)", "28.00", "20.72", "+7.28"],
    ]
    assert (
        "‡ Unlike set-ups, fmnist linear: sampled accuracy of the logging policy at τ 10 28.0 % (paper: 20.7 %)."
        in ran.stdout
    )
    assert "Paper: Aminian, Behnamnia, Vega, Toni, Shi, Rabiee, Rivasplata and Rodrigues, Semi-supervised" in ran.stdout


def test_deep_policies_are_held_against_deep_ones(report: Report) -> None:
    scores = table_2_scores()
    scores += [replace(s, metric="sampled-accuracy") for s in scores if s.method == LOGGING_POLICY]
    rows = _rows(report(scores, "--against", "paper"))[1:]
    assert len(rows) == 8 * 6
    assert {row[-1] for row in rows} == {"0.00"}


@pytest.mark.parametrize(("logging_model", "paper_mean"), [("linear", "62.95 ± 0.08"), ("resnet-v2", "39.39 ± 0.15")])
def test_linear_cifar_10_goes_by_the_logging_policys_model(report: Report, logging_model: str, paper_mean: str) -> None:
    """The paper has linear policies for a linear and for a deep logging policy."""
    scores = [score(0.6, dataset="cifar10", tau=1.0), logging(0.5, dataset="cifar10", tau=1.0, model=logging_model)]
    assert _rows(report(scores, "--against", "paper"))[1][6] == paper_mean


def test_data_that_the_paper_has_not_are_told(report: Report) -> None:
    ran = report([score(0.5)], "--against", "paper")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: --against paper: the paper has no number for dataset, τ, ρ and method of these scores (sample); it has "
        "fmnist, cifar10, emnist, cifar100\n",
    )
    ran = report([score(0.5, dataset="fmnist", metric="dr")], "--against", "paper", "--metric", "dr")
    assert ran.stderr.endswith("(fmnist); it has no dr\n")


def test_difference_from_the_paper_beyond_noise_is_marked(report: Report) -> None:
    """Against 82.31 ± 0.07 of three runs: 81.00 ± 1.41 of two does not differ, 75.00 ± 0.14 of two does."""
    for values, mark in (((0.80, 0.82), "-1.31"), ((0.749, 0.751), "-7.31 †")):
        scores = [score(value, seed=seed, dataset="fmnist") for seed, value in enumerate(values)]
        assert _rows(report(scores, "--against", "paper", "--significance"))[1][-1] == mark


# --- unlike set-ups ---

PAPERS = {
    "dataset": "fmnist", "known": 1200, "missing": 58_800, "optimizer": "sgd", "lr": 0.0005, "epochs": 60,
    "batch_size": 128, "schedule": "step", "logs.width": 64, "logs.tau_mode": "train",
}  # fmt: skip
LOGGING = {"dataset": "fmnist", "model": "resnet-v1", "metric": "sampled-accuracy"}


def _unlike(
    report: Report, own_logging: float = 0.2072, logging_model: str = "resnet-v1", **changes: Any
) -> str | None:
    scores = [score(0.8, **{**PAPERS, **changes}), logging(own_logging, **{**LOGGING, "model": logging_model})]
    ran = report(scores, "--against", "paper")
    is_marked = _rows(ran)[1][4].endswith(" ‡")
    notes = [line for line in ran.stdout.splitlines() if line.startswith("‡")]
    assert len(notes) == is_marked
    return notes[0].removeprefix("‡ Unlike set-ups, fmnist linear: ").removesuffix(".") if notes else None


def test_the_papers_own_set_up_is_not_marked(report: Report) -> None:
    assert _unlike(report) is None
    assert _unlike(report, own_logging=0.215) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"missing": 4800}, "6,000 train rows (paper: 60,000)"),
        ({"logs.width": 16}, "logging policy resnet-v1 of width 16 (paper: resnet-v1 of width 64)"),
        ({"logging_model": "linear"}, "logging policy linear (paper: resnet-v1 of width 64)"),
        ({"logs.tau_mode": "sample"}, "τ applied when drawing (paper: when fitting)"),
        ({"logs.features": "mobilenet_v2"}, "features of mobilenet_v2 (paper: raw)"),
        ({"optimizer": "adam", "lr": 0.001}, "trained with optimizer adam, lr 0.001 (paper: optimizer sgd, lr 0.0005)"),
        ({"own_logging": 0.268}, "sampled accuracy of the logging policy at τ 10 26.8 % (paper: 20.7 %)"),
    ],
)
def test_what_differs_is_said(report: Report, changes: dict[str, Any], words: str) -> None:
    assert _unlike(report, **changes) == words


def test_mnist_stands_in_for_emnist(report: Report) -> None:
    scores = [score(0.8, dataset="mnist"), logging(0.2, dataset="mnist", model="linear", metric="sampled-accuracy")]
    ran = report(scores, "--against", "paper")
    rows = _rows(ran)[1:]
    assert [row[0] for row in rows] == ["mnist", "mnist"]
    assert all(row[4].endswith(" ‡") for row in rows)
    assert "‡ Unlike set-ups, mnist linear: dataset mnist (paper: emnist)" in ran.stdout


def test_a_part_of_a_dataset_is_noted(report: Report) -> None:
    ran = report([score(0.8, **{"logs.limit": 600})])
    assert "Logs of a part of their dataset (make-logs --limit): sample 600.\n" in ran.stdout
    assert "part of their dataset" not in report([score(0.8)]).stdout
