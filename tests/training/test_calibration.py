"""Calibration: the reward to expect of a row by a score that is known of every row."""

import numpy as np
import numpy.typing as npt
import pytest

from s2bl_cli.reward_models.reward_model import NO_FOLD
from s2bl_cli.training.expected_rewards import Calibration, calibrate, trust_in

Floats = npt.NDArray[np.float64]


def _drawn(rng: np.random.Generator, chance: Floats) -> Floats:
    return (rng.random(len(chance)) < chance).astype(np.float64)


def _folds(score: Floats) -> npt.NDArray[np.int64]:
    return np.random.default_rng(0).permutation(len(score)) % 5


@pytest.mark.parametrize("turn", [1, -1], ids=["rising", "falling"])
def test_monotone_curve_is_found_whichever_way_it_goes(turn: int) -> None:
    """E[r|s] = s² or 1 − s², from 20,000 draws: within a few hundredths everywhere but at the ends."""
    rng = np.random.default_rng(0)
    score = rng.random(20_000)
    truth = score**2 if turn > 0 else 1 - score**2
    curve = calibrate(score, _drawn(rng, truth), _folds(score))
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
        curve = calibrate(score, reward, _folds(score))
        trusts.append(curve.trust)
        departures.append(np.abs(curve(score) - reward.mean()).mean())
    assert np.median(trusts) < 0.1
    assert np.mean(departures) < 0.02


def test_curve_is_constant_beyond_its_scores() -> None:
    score = np.linspace(0.3, 0.6, 100)
    curve = calibrate(score, (score > 0.45).astype(float), _folds(score))
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
    curve = calibrate(score, reward, _folds(score))
    mean = float(reward.mean()) if len(reward) else 0.0
    assert curve(np.array([0.0, 0.5, 1.0])).tolist() == [mean] * 3
    assert curve.trust == 0


def test_trust_draws_the_curve_towards_the_mean() -> None:
    curve = np.array([0.0, 1.0]), np.array([0.2, 0.8])
    half = Calibration([curve], 0.6, 0.5)
    assert half(np.array([0.0, 0.5, 1.0])) == pytest.approx([0.4, 0.55, 0.7])
    of_fold = Calibration([(np.zeros(1), np.full(1, 0.6)), curve], 0.6, 0.5)
    assert of_fold(np.zeros(2), np.array([0, NO_FOLD])) == pytest.approx([0.6, 0.4])


def test_weights_are_repetitions() -> None:
    """A row of weight 2 counts as two rows."""
    rng = np.random.default_rng(0)
    score = rng.random(300)
    reward, weight, fold = _drawn(rng, score), rng.integers(1, 3, 300), _folds(score)
    weighted = calibrate(score, reward, fold, weight)
    repeated = calibrate(*(np.repeat(values, weight) for values in (score, reward, fold)))
    grid = np.linspace(0, 1, 30)
    assert weighted.mean == pytest.approx(repeated.mean)
    for one, other in zip(weighted.curves, repeated.curves, strict=True):
        assert np.interp(grid, *one) == pytest.approx(np.interp(grid, *other))


def test_a_rows_own_reward_does_not_reach_its_expectation() -> None:
    """Flip the rewards of one fold: its rows are expected by the same curve."""
    rng = np.random.default_rng(0)
    score = rng.random(300)
    reward, fold = _drawn(rng, score), _folds(score)
    usual, flipped = (calibrate(score, r, fold).curves[1] for r in (reward, np.where(fold == 1, 1 - reward, reward)))
    assert (usual[1] == flipped[1]).all()


def test_trust_is_the_low_end_of_the_slope_by_hand() -> None:
    """Predictions ±1 and truths ±1/2, always of the same sign: the slope is 1/2 without any error. With truths of 1
    and 0, the slope is 1/2 too, but each residual is 1/2: its error is √(Σ 1/4)/n = 1/(2√n)."""
    predicted = np.array([1.0, -1.0] * 8)
    assert trust_in(predicted, predicted / 2) == pytest.approx(0.5)
    assert trust_in(predicted, np.array([1.0, 0.0] * 8)) == pytest.approx(0.5 - 1.96 / 8)
    assert trust_in(predicted, 3 * predicted) == 1
    assert trust_in(predicted, -predicted) == 0
    assert trust_in(0 * predicted, predicted) == 0
