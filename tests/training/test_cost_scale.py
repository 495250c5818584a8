"""Policies do not depend on the unit and the offset of the rewards: risks and selectors see costs in [−1, 0]."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning_fixtures import arrays_of, blobs, train_all, train_settings, write_arrays

from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.contract.policies import Policy, read_policy
from s2bl_cli.contract.scores import read_scores
from s2bl_cli.errors import SettingError
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.registry import RISKS, SELECTORS
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.cost_scale import RAW, CostScale, cost_scale, range_warnings
from s2bl_cli.training.data import Statistics, TrainRows, count_rows
from s2bl_cli.training.validation import HeldOut

ACTIONS = 3
SHORT: dict[str, Any] = {"epochs": 3, "batch_size": 32}


def _graded(known: float = 0.5, seed: int = 0) -> LogArrays:
    """Rewards 0, 0.25, 0.5 and 1 that depend on the action: costs of a paper's log, and some between."""
    rows = blobs(rows=500, known=known, seed=seed)
    reward = np.where(rows.cost < 0, 1.0, np.random.default_rng(seed).choice([0.0, 0.25, 0.5], rows.rows))
    return replace(rows, cost=np.where(rows.known, -reward, 0).astype(np.float32))


def _changed(rows: LogArrays, factor: float, offset: float) -> LogArrays:
    """Rewards r as factor·r + offset."""
    return replace(rows, cost=np.where(rows.known, factor * rows.cost - offset, 0).astype(np.float32))


def _two_logs(folder: Path) -> list[Path]:
    """Rewards r, and 20·r − 7."""
    rows = _graded()
    return [
        write_arrays(folder / f"{factor}.parquet", _changed(rows, factor, offset), ACTIONS)
        for factor, offset in ((1.0, 0.0), (20.0, -7.0))
    ]


def _difference(one: Policy, other: Policy) -> float:
    """The largest, relative to the tensor's largest value."""
    return max(
        float(np.abs(value - other.tensors[name]).max() / np.abs(value).max()) for name, value in one.tensors.items()
    )


def _statistics(rewards: Any) -> Statistics:
    count = len(rewards)
    rows = arrays_of(np.ones((count, 1), np.float32), np.zeros(count), np.ones(count), -np.asarray(rewards, float))
    return count_rows([TrainRows(rows, np.arange(count))], 1)


# --- the scale ---


def test_scale_by_hand() -> None:
    """Rewards 2, 4 and 12: the range is 10, so costs −2, −4 and −12 become 0, −0.2 and −1."""
    scale = cost_scale(train_settings(), _statistics([2, 4, 12]), Fold(0))
    assert scale == CostScale(-12, -2)
    assert scale([-2, -4, -12]).tolist() == [0, -0.2, -1]
    assert [scale.reward(value) for value in (0, 0.2, 1)] == [2, 4, 12]
    assert scale.reward_range == "2,12"


@given(st.lists(st.sampled_from([-1.0, 0.0]), min_size=2).filter(lambda costs: len(set(costs)) == 2))
def test_costs_of_the_paper_stay_as_they_are(costs: list[float]) -> None:
    scale = cost_scale(train_settings(), _statistics([-cost for cost in costs]), Fold(0))
    assert scale == RAW
    assert scale(costs).astype(np.float32).tobytes() == np.asarray(costs, np.float32).tobytes()


def test_range_is_declared_or_that_of_the_rows_to_learn_from() -> None:
    statistics, fold = _statistics(np.arange(100) ** 2), Fold(3, 0.0, 0.4)
    learned = np.arange(100)[statistics.learned(fold)] ** 2
    assert learned.max() < 99**2  # that row is held out
    assert cost_scale(train_settings(), statistics, fold) == CostScale(-float(learned.max()), -float(learned.min()))
    assert cost_scale(train_settings(reward_range="-5,1e4"), statistics, fold) == CostScale(-1e4, 5)
    assert cost_scale(train_settings(cost_scale="none"), statistics, fold) == RAW


# --- policies ---


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 50.0), (1e-3, 0.0), (4.0, -8.0), (37.0, -11.0)])
@pytest.mark.parametrize("method", METHODS)
def test_policy_does_not_depend_on_unit_and_offset(tmp_path: Path, method: str, factor: float, offset: float) -> None:
    rows = _graded()
    logs = [
        write_arrays(tmp_path / name, arrays, ACTIONS)
        for name, arrays in (("a.parquet", rows), ("b.parquet", _changed(rows, factor, offset)))
    ]
    one, other = (train_all(log, method=method, **SHORT)[0] for log in logs)
    assert _difference(one.policy, other.policy) < 1e-5
    if one.choice is not None:
        assert other.choice is not None
        assert one.choice.chosen == other.choice.chosen
        assert other.choice.gain == pytest.approx(factor * one.choice.gain, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("risk", [name for name in RISKS.names if name != "none"])
def test_no_risk_depends_on_unit_and_offset(tmp_path: Path, risk: str) -> None:
    rows = _graded()
    logs = [
        write_arrays(tmp_path / f"{a}.parquet", _changed(rows, a, b), ACTIONS) for a, b in ((1.0, 0.0), (20.0, -7.0))
    ]
    one, other = (train_all(log, risk=risk, reg="kl", **SHORT)[0].policy for log in logs)
    assert _difference(one, other) < 1e-5
    raw = [train_all(log, risk=risk, reg="kl", cost_scale="none", **SHORT)[0].policy for log in logs[:1]]
    assert _difference(one, raw[0]) == 0  # rewards from 0 to 1 are on the scale already


@pytest.mark.parametrize("select", SELECTORS.names)
@pytest.mark.parametrize("held", [{"folds": 3}, {"holdout": 0.3}, {"patience": 1, "holdout": 0.3}], ids=str)
def test_selection_does_not_depend_on_unit_and_offset(tmp_path: Path, select: str, held: dict[str, Any]) -> None:
    """The estimate is in the unit of the log."""
    rows = _graded()
    logs = [
        write_arrays(tmp_path / f"{a}.parquet", _changed(rows, a, b), ACTIONS) for a, b in ((1.0, 0.0), (20.0, -7.0))
    ]
    grid = {"lam": "0.01,1,100", "select": select, **held, **SHORT}
    one, other = (train_all(log, **grid)[0] for log in logs)
    assert one.candidate.hyperparameters == other.candidate.hyperparameters
    assert one.estimate is not None
    assert other.estimate == pytest.approx(20 * one.estimate - 7, abs=1e-4)


def test_translation_is_in_the_unit_of_the_costs(tmp_path: Path) -> None:
    rows = _graded()
    logs = [
        write_arrays(tmp_path / f"{a}.parquet", _changed(rows, a, b), ACTIONS) for a, b in ((1.0, 0.0), (20.0, -7.0))
    ]
    one, other = (
        train_all(log, method="banditnet", translation=t, **SHORT)[0].policy
        for log, t in zip(logs, (-0.4, 20 * -0.4 + 7), strict=True)
    )
    assert _difference(one, other) < 1e-5
    assert (one.lineage.settings["translation"], other.lineage.settings["translation"]) == (-0.4, -1.0)


@pytest.mark.parametrize("stream", ["off", "on"])
def test_held_out_rows_do_not_set_the_scale(tmp_path: Path, stream: str) -> None:
    """The reward of one row that is held out is 1000 instead of 1: the policy is the same, in every method."""
    rows = _graded()
    known = np.flatnonzero(rows.known & ~rows.is_test & (rows.cost == -1))
    held = known[Fold(0, 0.0, 0.3).holds_out(known)][0]
    cost = rows.cost.copy()
    cost[held] = -1000
    logs = [
        write_arrays(tmp_path / name, replace(rows, cost=one), ACTIONS)
        for name, one in (("a.parquet", rows.cost), ("b.parquet", cost))
    ]
    for method in ("tips", "q-learning", "cce-s2bl"):
        one, other = (train_all(log, method=method, holdout=0.3, stream=stream, **SHORT)[0].policy for log in logs)
        assert _difference(one, other) == 0
        assert one.lineage.settings["reward-range"] == "0,1"


def test_declared_range_scales_by_itself(tmp_path: Path) -> None:
    """Rewards in [0, 1] of which the known ones are 0 and 0.5: half as large a risk as by their own range."""
    rows = blobs(known=0.5)
    log = write_arrays(tmp_path / "log.parquet", _changed(rows, 0.5, 0.0), ACTIONS)
    quick = {"method": "tips", "optimizer": "sgd", "schedule": "constant", "epochs": 1, "batch_size": 300, "lr": 0.1}
    whole, half = (train_all(log, **quick, **given)[0].policy for given in ({}, {"reward_range": "0,1"}))
    assert half.tensors["body.1.weight"] == pytest.approx(whole.tensors["body.1.weight"] / 2, rel=1e-5)
    assert (half.lineage.settings["reward-range"], half.asked) == ("0,1", {})
    assert (whole.lineage.settings["reward-range"], dict(whole.asked)) == ("0,0.5", {"reward-range": "known"})


def test_policy_is_trained_again_from_its_lineage(tmp_path: Path) -> None:
    """The range that was used is as good as a declared one."""
    log = write_arrays(tmp_path / "log.parquet", _changed(_graded(), 3.3, 0.7), ACTIONS)
    one = train_all(log, method="tips", holdout=0.3, **SHORT)[0].policy
    again = train_all(log, method="tips", holdout=0.3, reward_range=one.lineage.settings["reward-range"], **SHORT)[0]
    assert _difference(one, again.policy) == 0


# --- the command ---


def test_reward_outside_the_declared_range_is_refused(run: Callable[..., Any], tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", _changed(_graded(), 8.0, 0.0), ACTIONS)
    ran = run("train", "log.parquet", "--method", "wce-s2bl", "--reward-range", "0,7.5", "-o", "p.safetensors")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("s2bl: log.parquet: known rewards must be in [0,7.5] (--reward-range), found ")
    assert ran.stderr.endswith(" others, such as 8; clip them, or declare a range that contains all possible rewards\n")
    assert not (tmp_path / "p.safetensors").exists()
    assert (
        run("train", "log.parquet", "--reg", "wce", "--reward-range", "-1,8", "--epochs", 1, "-o", "p.safetensors").code
        == 0
    )


@pytest.mark.parametrize(
    ("given_settings", "line"),
    [
        (
            {"reward_range": "1,0"},
            "--reward-range must be two numbers with the smaller first, such as 0,1, found '1,0'",
        ),
        (
            {"reward_range": "all"},
            "--reward-range must be two numbers with the smaller first, such as 0,1, found 'all'",
        ),
        ({"cost_scale": "none", "reward_range": "0,1"}, "--reward-range is for --cost-scale range, found none"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(given_settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as raised:
        train_settings(**given_settings)
    assert str(raised.value) == line


@pytest.mark.parametrize("method", ["tips", "banditnet", "q-learning", "cce-s2bl", "wnll-lpr"])
def test_equal_rewards_have_no_gradient_and_a_warning(run: Callable[..., Any], tmp_path: Path, method: str) -> None:
    rows = blobs(known=0.5)
    write_arrays(tmp_path / "log.parquet", replace(rows, cost=np.where(rows.known, -3, 0).astype(np.float32)), ACTIONS)
    ran = run("train", "log.parquet", "--method", method, "--epochs", 2, "--quiet", "-o", "p.safetensors")
    assert ran.code == 0
    assert ran.stderr == (
        "warning: log.parquet: the known rewards to learn from are all equal (3), so the risk has no gradient; add "
        "rows with other rewards, or declare the range of the rewards with --reward-range\n"
    )
    policy = read_policy(str(tmp_path / "p.safetensors")).policy
    assert policy.lineage.settings["reward-range"] == "known"
    if method in ("tips", "banditnet", "q-learning"):
        assert not policy.tensors["body.1.weight"].any()
    assert run("train", "log.parquet", "--method", "wce-only", "--epochs", 1, "--quiet").stderr == ""


OUTLIER = "the known reward 1e+06 is far from the others, most of which are in [-2."
RNG = np.random.default_rng(0)
NORMAL = RNG.standard_normal(1000)
PURCHASES = np.where(np.arange(100_000) % 200 == 0, RNG.uniform(5, 50, 100_000), 0)
REWARDS: dict[str, tuple[Any, str]] = {
    "normal": (NORMAL, ""),
    "an outlier": ([*NORMAL, 1e6], OUTLIER),
    "an outlier below": ([*NORMAL, -1e6], OUTLIER.replace("1e+06", "-1e+06")),
    "rare clicks": (np.arange(1000) % 300 == 0, ""),
    "rare purchases": (PURCHASES, ""),
    "an outlier among rare purchases": (
        np.where(np.arange(100_000) == 200, 1e5, PURCHASES),
        "the known reward 100000 is far from the others, most of which are in [5.",
    ),
    "one reward": ([2.0], "the known rewards to learn from are all equal (2)"),
    "two rewards": ([2.0, 1000.0], ""),
    "an outlier of few": ([*NORMAL[:30], 1e6], "the known reward 1e+06 is far from the others"),
    "too few for one": ([1.0, 2.0, 1e6], ""),
    "none": ([], ""),
}


@pytest.mark.parametrize("name", REWARDS)
def test_warning_of_an_outlier(name: str) -> None:
    rewards, expected = REWARDS[name]
    statistics = _statistics(rewards)
    scales = [cost_scale(train_settings(), statistics, Fold(0))] if len(rewards) else []
    warnings = list(range_warnings(statistics, scales))
    assert len(warnings) == bool(expected)
    assert not warnings or warnings[0].startswith(expected)


def test_command_warns_of_an_outlier_before_it_trains(run: Callable[..., Any], tmp_path: Path) -> None:
    rows = _graded()
    cost = np.where(np.arange(rows.rows) == np.flatnonzero(rows.known)[0], -1e7, rows.cost).astype(np.float32)
    write_arrays(tmp_path / "log.parquet", replace(rows, cost=cost), ACTIONS)
    ran = run("train", "log.parquet", "--method", "wce-s2bl", "--epochs", 1, "--quiet", "-o", "p.safetensors")
    assert ran.code == 0
    assert ran.stderr.startswith("warning: log.parquet: the known reward 1e+07 is far from the others")
    assert run("train", "log.parquet", "--reg", "wce", "--reward-range", "0,1e7", "--epochs", 1, "--quiet", "--force",
               "-o", "p.safetensors").stderr == ""  # fmt: skip


def test_report_averages_runs_whose_ranges_differ(run: Callable[..., Any], tmp_path: Path) -> None:
    """Two masks leave known rewards of other ranges: the outcomes differ, the requests do not."""
    policies = []
    for seed in (0, 1):
        log = write_arrays(tmp_path / f"log{seed}.parquet", _changed(_graded(), 1.0 + seed, 0.0), ACTIONS)
        assert (
            run(
                "train", log, "--reg", "wce", "--seed", seed, "--epochs", 1, "--quiet", "-o", f"p{seed}.safetensors"
            ).code
            == 0
        )
        policies.append(read_policy(str(tmp_path / f"p{seed}.safetensors")).policy.lineage.settings["reward-range"])
    assert policies == ["0,1", "0,2"]
    log = write_arrays(tmp_path / "test.parquet", _graded(seed=5), ACTIONS)
    words = ("p0.safetensors", "p1.safetensors", "--logs", log, "--metrics", "labels", "--quiet", "-o", "s.parquet")
    assert run("evaluate", *words).code == 0
    assert "reward_range" in read_scores([str(tmp_path / "s.parquet")])[0]["settings"].to_pylist()[0]
    ran = run("report", "s.parquet")
    assert ran.code == 0, ran.stderr
    assert ran.stdout.count("WCE-S2BL") == 1
    assert "±" in ran.stdout


# --- selectors ---


def test_all_candidates_are_scored_with_one_nu(tmp_path: Path) -> None:
    """Logged by p = 0.05, of which ν = 0.5 makes a weight ten times smaller: `ips` preferred the smallest ν, whatever
    the policies were. They are the same here, as no step is taken."""
    rows = 200
    arrays = arrays_of(
        np.ones((rows, 2), np.float32), np.arange(rows) % 2, np.full(rows, 0.05), -(np.arange(rows) % 3.0)
    )
    log = write_arrays(tmp_path / "log.parquet", arrays, 2)
    estimates = {
        nu: train_all(log, method="tips", nu=nu, select="ips", epochs=0, holdout=0.5)[0].estimate
        for nu in ("0.001,0.5", "0.5,0.001", "0.4,0.5")
    }
    assert len(set(estimates.values())) == 1
    first = [train_all(log, method="tips", nu=nu, select="ips", epochs=0, holdout=0.5)[0] for nu in estimates]
    assert [one.candidate.number for one in first] == [0, 0, 0]  # the first of equals


def test_nu_of_the_estimates_is_the_given_one() -> None:
    assert train_settings(nu="0.2").selection_nu == 0.2
    assert train_settings(nu="0.2,0.3").selection_nu == 0.001
    assert train_settings(method="kl-only", nu=0).selection_nu == 0
    assert train_settings(risk="ips", reg="wce").selection_nu == 0.001


def test_bound_allows_for_the_number_of_candidates(tmp_path: Path) -> None:
    """δ = 0.05/k: by hand, with one row of weight 1 and reward 1, λ = 1: exp(ln 2 − ln(k/0.05)) − 1 = 0.1/k − 1."""
    held_out = np.stack(HeldOut(np.ones(1), -np.ones(1), *np.ones((3, 1))))
    selector = SELECTORS.load("ls-bound")
    assert [selector(held_out, RAW, k) for k in (1, 4)] == pytest.approx([0.1 - 1, 0.1 / 4 - 1])
    log = write_arrays(tmp_path / "log.parquet", _graded(), ACTIONS)
    few, many = (
        train_all(log, method="tips", nu=nu, select="ls-bound", epochs=0, folds=2)[0].estimate
        for nu in ("0.1,0.2", "0.1,0.2,0.3,0.4")
    )
    assert few is not None
    assert many is not None
    assert many < few
