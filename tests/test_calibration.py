"""What to expect of missing feedback: calibration by a score, and the costs and merits that come of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from learning_fixtures import CPU, arrays_of, blobs, train, write_arrays

from s2bl_cli.registry import COST_MODELS
from s2bl_cli.training.calibration import Calibration, calibrate
from s2bl_cli.training.cost_filling import Filler, filler_of
from s2bl_cli.training.groups import Group, TrainRows
from s2bl_cli.training.log_facts import count_log

Floats = npt.NDArray[np.float64]


def _drawn(rng: np.random.Generator, chance: Floats) -> Floats:
    return (rng.random(len(chance)) < chance).astype(np.float64)


# --- calibration ---


@pytest.mark.parametrize("turn", [1, -1], ids=["rising", "falling"])
def test_monotone_curve_is_found_whichever_way_it_goes(turn: int) -> None:
    """E[r|s] = s² or 1 − s², from 20,000 draws: within a few hundredths everywhere but at the ends."""
    rng = np.random.default_rng(0)
    score = rng.random(20_000)
    truth = score**2 if turn > 0 else 1 - score**2
    curve = calibrate(score, _drawn(rng, truth), 0)
    grid = np.linspace(0.02, 0.98, 50)
    assert np.abs(curve(grid) - (grid**2 if turn > 0 else 1 - grid**2)).max() < 0.06
    assert curve.trust > 0.95
    steps = np.diff(curve(np.linspace(-1, 2, 500)))
    assert (turn * steps >= -1e-12).all()


def test_useless_score_is_not_trusted() -> None:
    """Rewards that have nothing to do with the score, 40 times 200 rows: nearly flat, and usually quite."""
    trusts, departures = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        score, reward = rng.random(200), _drawn(rng, np.full(200, 0.3))
        curve = calibrate(score, reward, 0)
        trusts.append(curve.trust)
        departures.append(np.abs(curve(score) - reward.mean()).mean())
    assert np.median(trusts) < 0.1
    assert np.mean(departures) < 0.02


def test_curve_is_constant_beyond_its_scores() -> None:
    score = np.linspace(0.3, 0.6, 100)
    curve = calibrate(score, (score > 0.45).astype(float), 0)
    assert curve(np.array([0.0, 0.3])).tolist() == [curve(np.array([0.3]))[0]] * 2
    assert curve(np.array([0.6, 1.0])).tolist() == [curve(np.array([0.6]))[0]] * 2


@pytest.mark.parametrize(
    ("score", "reward"),
    [
        (np.empty(0), np.empty(0)),
        (np.array([0.1, 0.9]), np.array([0.0, 1.0])),
        (np.full(100, 0.5), np.arange(100) % 2.0),
        (np.arange(100) / 100, np.ones(100)),
    ],
    ids=["no rows", "two rows", "one score", "one reward"],
)
def test_nothing_to_learn_is_the_mean(score: Floats, reward: Floats) -> None:
    curve = calibrate(score, reward, 0)
    mean = float(reward.mean()) if len(reward) else 0.0
    assert curve(np.array([0.0, 0.5, 1.0])).tolist() == [mean] * 3
    assert curve.trust == 0


def test_trust_draws_the_curve_towards_the_mean() -> None:
    half = Calibration(np.array([0.0, 1.0]), np.array([0.2, 0.8]), 0.6, 0.5)
    assert half(np.array([0.0, 0.5, 1.0])) == pytest.approx([0.4, 0.55, 0.7])


# --- costs and merits ---


def _filler(rows: Any, groups: list[Group], model: str = "propensity") -> tuple[Filler, TrainRows]:
    train_rows = TrainRows(rows, np.arange(rows.rows))
    facts = count_log([train_rows], groups, 3, reg_on_known=False)
    known = train_rows.take(rows.known)
    return filler_of(COST_MODELS.load(model), facts, groups, known, actions=3, device=CPU), train_rows


def test_merits_by_hand() -> None:
    """Known costs −1, 0, −1, −0.5: rewards 1, 0, 1, 0.5 of mean 0.625. Four rows are too few to calibrate: nothing is
    trusted, a missing row has no merit, and a known one counts 1/ρ = 1.25-fold. With three actions
    (1 − 0.625)·1/(3·0.9)·1.25 = 0.1736 and (1 − 0.625)·1/(3·0.5)·1.25 = 0.3125; below the mean there is none."""
    rows = arrays_of(
        np.zeros((5, 3), np.float32), [0, 1, 2, 0, 1], [0.9, 0.1, 0.5, 0.5, 0.7], [-1, 0, -1, -0.5, np.nan]
    )
    filler, train_rows = _filler(rows, [Group(0)])
    filling = filler.fill(train_rows, costs=True, merits=True)
    assert filling.merit is not None
    assert filling.cost is not None
    assert filling.merit[0] == pytest.approx([0.375 / 2.7 * 1.25, 0, 0.3125, 0, 0], abs=1e-6)
    scaled = filler.scaled_by([train_rows]).fill(train_rows, costs=False, merits=True).merit
    assert scaled is not None
    assert scaled[0] == pytest.approx(filling.merit[0] / filling.merit[0].mean(), rel=1e-6)
    assert filling.cost[0] == pytest.approx([-1, 0, -1, -0.5, -0.625], abs=1e-6)
    neither = filler.fill(train_rows, costs=False, merits=False)
    assert (neither.cost, neither.merit) == (None, None)


def test_missing_rows_have_the_merit_of_their_propensity() -> None:
    """Right above p = 0.5 and wrong below, always: so are the missing rows held to be, the rarer the more."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 600)
    cost = np.where(np.arange(600) % 2 == 0, np.nan, -(p > 0.5).astype(float))
    rows = arrays_of(np.zeros((600, 3), np.float32), np.zeros(600), p, cost)
    filler, train_rows = _filler(rows, [Group(0)])
    merit = filler.fill(train_rows, costs=False, merits=True).merit
    assert merit is not None
    missing = ~rows.known
    right = missing & (p > 0.55)
    assert merit[0][right] * 3 * p[right] == pytest.approx(np.full(right.sum(), 0.5), abs=0.05)  # 1 − r̄
    assert merit[0][missing & (p < 0.45)].max() < 0.05


def test_groups_fill_in_what_they_may_not_see() -> None:
    """A held-out row is filled in like a missing one."""
    rows = blobs(known=1.0, test_rows=0)
    groups = [Group(0), Group(0, 0.0, 0.5)]
    filler, train_rows = _filler(rows, groups)
    cost = filler.fill(train_rows, costs=True, merits=False).cost
    assert cost is not None
    held = groups[1].holds_out(train_rows.number)
    assert cost[0] == pytest.approx(rows.cost, abs=1e-6)
    assert cost[1][~held] == pytest.approx(rows.cost[~held], abs=1e-6)
    assert not np.isin(cost[1][held], [-1, 0]).all()


@pytest.mark.parametrize("model", COST_MODELS.names)
def test_expected_costs_stay_within_the_known_ones(model: str) -> None:
    rows = blobs(known=0.5, test_rows=0)
    scaled = replace(rows, cost=np.where(rows.known, 3 * rows.cost + 5, 0).astype(np.float32))  # 2 or 5
    filler, train_rows = _filler(scaled, [Group(0)], model)
    cost = filler.fill(train_rows, costs=True, merits=False).cost
    assert cost is not None
    assert (cost.min(), cost.max()) == (pytest.approx(2, abs=1e-5), pytest.approx(5, abs=1e-5))
    right = rows.label == rows.action
    missing = ~rows.known
    assert cost[0][missing & right].mean() < cost[0][missing & ~right].mean() - 0.3  # it tells them apart


def test_costs_all_alike_are_no_reason_to_fail() -> None:
    for level in (-1.0, 0.0, 3.0):
        rows = blobs(known=0.5, test_rows=0)
        alike = replace(rows, cost=np.where(rows.known, level, 0).astype(np.float32))
        for model in COST_MODELS.names:
            filler, train_rows = _filler(alike, [Group(0)], model)
            filling = filler.fill(train_rows, costs=True, merits=True)
            assert filling.cost is not None
            assert filling.cost == pytest.approx(level)
            assert filling.merit is not None
            assert filling.merit.max() == 0


@pytest.mark.parametrize("model", COST_MODELS.names)
def test_scale_of_the_costs_is_nothing_to_cce(tmp_path: Path, model: str) -> None:
    """0 for right and 5 for wrong, or −1 and 0: the same merits, so the same policy by the regulariser alone."""
    rows = blobs(known=0.5)
    scaled = replace(rows, cost=np.where(rows.known, 5 * rows.cost + 5, 0).astype(np.float32))
    logs = [write_arrays(tmp_path / f"{i}.parquet", arrays, 3) for i, arrays in enumerate((rows, scaled))]
    usual, other = (train(log, risk="none", reg="cce", cost_model=model, lr=0.05) for log in logs)
    for name in usual.tensors:
        assert np.allclose(usual.tensors[name], other.tensors[name], atol=1e-4)
    assert np.abs(usual.tensors["body.1.weight"]).max() > 0.05


def test_cce_learns_more_than_the_risk_alone(tmp_path: Path) -> None:
    """Thirty known rows of 3,000, logged by a policy that is surer where it is right."""
    rows = blobs(rows=4000, known=0.01, test_rows=1000)
    log = write_arrays(tmp_path / "log.parquet", rows, 3)
    test = rows.take(rows.is_test)

    def accuracy(method: str) -> float:
        tensors = train(log, method=method, epochs=10, lr=0.01).tensors
        x = (test.context - tensors["shift"]) * tensors["scale"]
        return float(((x @ tensors["body.1.weight"].T + tensors["body.1.bias"]).argmax(1) == test.label).mean())

    assert accuracy("cce-s2bl") > accuracy("tips")
