"""Rows of one cluster are not independent: standard errors, intervals, bootstrap and folds go by clusters."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning_fixtures import arrays_of, blobs, one_hot, table_policy, write_arrays

from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.contract.scores import LOGGING_POLICY, read_scores
from s2bl_cli.evaluation.fitted_models import fit_models
from s2bl_cli.evaluation.selection import select_rows
from s2bl_cli.evaluation.settings import EvaluateSettings
from s2bl_cli.metrics.estimate import Estimate, IntervalSettings, Terms, intervals
from s2bl_cli.registry import METRICS

Run = Callable[..., Any]

GOOD = np.full((3, 3), 0.2) + 0.4 * np.eye(3)
NO_MODEL = "ips,tips,snips,beta-ips,argmax-accuracy,sampled-accuracy,kl-sampled,mean-weight,class-accuracy"


def _repeated(rows: LogArrays, times: int) -> LogArrays:
    """Every row several times, as a cluster."""
    values = {name: None if v is None else np.repeat(v, times, axis=0) for name, v in vars(rows).items()}
    return LogArrays(**{**values, "cluster": np.repeat(1000 + 7 * np.arange(rows.rows), times)})


def _rows(path: Path, policy: str = "p.safetensors") -> dict[tuple[str, int | None], dict[str, Any]]:
    table, _ = read_scores([str(path)])
    return {(row["metric"], row["label"]): row for row in table.to_pylist() if row["policy"] == policy}


@pytest.mark.parametrize("interval", ["normal", "bootstrap"])
def test_rows_repeated_within_clusters_give_the_intervals_of_the_rows(run: Run, tmp_path: Path, interval: str) -> None:
    """Five copies of each row are no more information. As independent rows, errors would be √5 times too small."""
    rows = blobs(300, known=0.5, test_rows=0)
    write_arrays(tmp_path / "once.parquet", rows, 3)
    write_arrays(tmp_path / "five.parquet", _repeated(rows, 5), 3)
    table_policy(tmp_path / "p.safetensors", GOOD)
    words = ("--metrics", NO_MODEL, "--interval", interval, "--bootstrap-samples", 200)
    for log, columns in (("once", ()), ("five", ()), ("naive", ("--cluster-column", ""))):
        name = "five" if log == "naive" else log
        ran = run("evaluate", "p.safetensors", "--logs", f"{name}.parquet", *words, *columns, "-o", f"{log}-s.parquet")
        assert ran.code == 0, ran.stderr
        assert ("300 clusters" in ran.stderr) == (log == "five")
    once, five, naive = (_rows(tmp_path / f"{log}-s.parquet") for log in ("once", "five", "naive"))
    compared = 0
    for key, row in once.items():
        if row["stderr"] is None:
            continue
        assert five[key]["value"] == pytest.approx(row["value"], rel=1e-9), key
        assert five[key]["stderr"] == pytest.approx(row["stderr"], rel=1e-7), key
        assert naive[key]["stderr"] == pytest.approx(row["stderr"] / np.sqrt(5), rel=0.05), key
        width = row["high"] - row["low"]
        assert five[key]["high"] - five[key]["low"] == pytest.approx(width, rel=0.03), key
        compared += 1
    assert compared == 19  # all but the verdict


def test_drawn_clusters_may_be_of_different_sizes() -> None:
    """The mean of a constant is the constant, however many rows a draw has."""
    estimate = Terms([np.full(30, 2.0)]).estimate
    clustered = replace(estimate, cluster=np.repeat(np.arange(3), [1, 9, 20]))
    (interval,) = intervals([clustered], IntervalSettings("bootstrap", draws=100))
    assert (interval.low, interval.high, interval.kind) == (2.0, 2.0, "bootstrap")


def test_few_clusters_have_wider_intervals() -> None:
    """Student's t: 12.706 standard errors for two clusters, 2.262 for ten."""
    for clusters, quantile in ((2, 12.706), (10, 2.262)):
        influence = np.random.default_rng(0).standard_normal(100)
        estimate = Estimate(0.0, 100, influence, cluster=np.arange(100) % clusters)
        assert estimate.stderr is not None
        (interval,) = intervals([estimate], IntervalSettings())
        assert interval.high == pytest.approx(quantile * estimate.stderr, rel=1e-3)


def test_bounds_for_independent_rows_are_left_out(run: Run, tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", _repeated(blobs(100, test_rows=0), 3), 3)
    table_policy(tmp_path / "p.safetensors", GOOD)
    words = ("--metrics", "ix,ls,ips,bound", "--interval", "bernstein", "--reward-range", "0,1")
    assert run("evaluate", "p.safetensors", "--logs", "log.parquet", *words).code == 0
    rows = {name: row for (name, _), row in _rows(tmp_path / "scores.parquet").items() if not name.endswith("us")}
    assert {name: rows[name]["interval"] for name in ("ix", "ls", "ips")} == {"ix": None, "ls": None, "ips": "normal"}
    assert not set(rows) & {"theorem1-bound", "estimator-error-bound", "reverse-estimator-error-bound"}


def test_folds_do_not_divide_a_cluster(tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", _repeated(blobs(60, known=0.5, test_rows=0), 4), 3)
    with open_logs([str(tmp_path / "log.parquet")]) as log:
        rows = select_rows(log, "all")
        fold = fit_models(log, rows, [METRICS.load("dr")], EvaluateSettings(), _cpu()).fold
    assert rows.sample.cluster is not None
    for cluster in range(60):
        assert len(set(fold[rows.sample.cluster == cluster].tolist())) == 1
    assert set(fold.tolist()) == set(range(5))


def _cpu() -> Any:
    import torch

    return torch.device("cpu")


def _with_effects(users: int, each: int, seed: int) -> tuple[Any, Any, Any]:
    """Users whose rewards share an effect that is as large as the noise of a row."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), each)
    w = np.where(rng.random(users * each) < 0.5, 0.5, 1.5)
    return user, w, 3 + rng.standard_normal(users)[user] + rng.standard_normal(users * each)


def test_clustered_intervals_cover_and_others_do_not() -> None:
    """400 logs of 60 users with 10 rows: SNIPS of the value 3."""
    covered = {True: 0, False: 0}
    for seed in range(400):
        user, w, r = _with_effects(60, 10, seed)
        estimate = Terms([w * r, w], lambda reward, weight: reward / weight).estimate
        for is_clustered in covered:
            (interval,) = intervals([replace(estimate, cluster=user if is_clustered else None)], IntervalSettings())
            assert interval.low is not None
            assert interval.high is not None
            covered[is_clustered] += int(interval.low <= 3 <= interval.high)
    assert 0.925 <= covered[True] / 400 <= 0.975
    assert covered[False] / 400 < 0.75


def test_the_verdict_counts_clusters(run: Run, tmp_path: Path) -> None:
    """Feedback of 20 users is little, however many rows they have. As 1,000 rows, it would be reliable."""
    rows = _repeated(blobs(20, test_rows=0), 50)
    write_arrays(tmp_path / "log.parquet", rows, 3)
    table_policy(tmp_path / "p.safetensors", GOOD)
    words = ("evaluate", "p.safetensors", "--logs", "log.parquet", "--metrics", "snips,health", "--force")
    ran = run(*words)
    assert "log.parquet: scored on all 1,000 rows, all with feedback, labels, 20 clusters\n" in ran.stderr
    note = _rows(tmp_path / "scores.parquet")["health", None]["note"]
    assert re.fullmatch(r"unreliable: effective sample size only \S+ of 20; only \d clusters carry the estimate", note)
    assert run(*words, "--cluster-column", "").code == 0
    assert _rows(tmp_path / "scores.parquet")["health", None]["note"].startswith("reliable: ")


def test_a_single_cluster_is_refused(run: Run, tmp_path: Path) -> None:
    rows = arrays_of(one_hot([0, 0, 0], 1), [0, 1, 0], [0.5] * 3, [-1, 0, 0])
    write_arrays(tmp_path / "log.parquet", replace(rows, cluster=np.full(3, 5)), 2)
    ran = run("evaluate", "uniform", "--logs", "log.parquet", "--metrics", "ips")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: log.parquet: all scored rows with feedback are of one cluster, but standard errors need two or more; "
        "name another --cluster-column, or '' if rows are independent\n",
    )


def test_gains_are_clustered_too(run: Run, tmp_path: Path) -> None:
    rows = blobs(200, test_rows=0)
    write_arrays(tmp_path / "once.parquet", rows, 3)
    write_arrays(tmp_path / "four.parquet", _repeated(rows, 4), 3)
    table_policy(tmp_path / "p.safetensors", GOOD)
    made = []
    for log in ("once", "four"):
        assert run("evaluate", "p.safetensors", "--logs", f"{log}.parquet", "--metrics", "snips", "--force").code == 0
        made.append(_rows(tmp_path / "scores.parquet")["snips-gain", None])
        assert ("snips-gain", None) not in _rows(tmp_path / "scores.parquet", LOGGING_POLICY)
    assert made[0]["stderr"] == pytest.approx(made[1]["stderr"], rel=1e-7)
