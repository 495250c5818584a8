"""What to expect of missing feedback: the costs that are filled in, and the reward weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning_fixtures import CPU, arrays_of, blobs, train, write_arrays

from s2bl_cli.registry import COST_MODELS
from s2bl_cli.training.batches import rows_on_device
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import TrainRows, count_rows
from s2bl_cli.training.expected_rewards import Expectation, ExpectedRewards, fit_expected_rewards, scaled


def _expected(rows: Any, folds: list[Fold], model: str = "propensity") -> tuple[list[ExpectedRewards], TrainRows]:
    train_rows = TrainRows(rows, np.arange(rows.rows))
    statistics = count_rows([train_rows], 3, sample_bytes=1 << 30)
    fitted = COST_MODELS.load(model)
    return [fit_expected_rewards(fitted, statistics, fold, CPU, with_baseline=True) for fold in folds], train_rows


def _costs(expected: list[ExpectedRewards], train_rows: TrainRows) -> Any:
    costs = np.stack([of_fold.costs(train_rows) for of_fold in expected])
    assert (costs.shape, costs.dtype) == ((len(expected), train_rows.rows.rows), np.float32)
    return costs


def _weights(expected: list[ExpectedRewards], train_rows: TrainRows) -> Any:
    weights = np.stack([of_fold.weights(train_rows) for of_fold in expected])
    assert weights.shape == (len(expected), train_rows.rows.rows)
    return weights


def _five_rows() -> Any:
    return arrays_of(
        np.zeros((5, 3), np.float32), [0, 1, 2, 0, 1], [0.9, 0.1, 0.5, 0.5, 0.7], [-1, 0, -1, -0.5, np.nan]
    )


def test_costs_and_reward_weights_by_hand() -> None:
    """Known costs −1, 0, −1, −0.5: rewards 1, 0, 1, 0.5 of mean 0.625. Four rows are too few to calibrate: nothing is
    trusted, a missing row has no weight, and a known one counts 1/ρ = 1.25-fold, by its reward. With three actions
    (1 − 0.625)·1/(3·0.9)·1.25 = 0.1736, (1 − 0.625)·1/(3·0.5)·1.25 = 0.3125, and half of that for half a reward."""
    expected, train_rows = _expected(_five_rows(), [Fold(0)])
    weights = _weights(expected, train_rows)[0]
    assert weights == pytest.approx([0.375 / 2.7 * 1.25, 0, 0.3125, 0.15625, 0], abs=1e-6)
    rescaled = _weights(scaled(expected, [train_rows]), train_rows)[0]
    assert rescaled == pytest.approx(weights / weights.mean(), rel=1e-6)
    assert _costs(expected, train_rows)[0] == pytest.approx([-1, 0, -1, -0.5, -0.625], abs=1e-6)


def test_rare_action_weighs_no_more_than_twenty_times() -> None:
    """1/(3·0.001) would be 333."""
    rows = arrays_of(np.zeros((4, 3), np.float32), [0, 1, 2, 0], [0.001, 0.5, 0.5, 0.5], [-1, 0, 0, 0])
    expected, train_rows = _expected(rows, [Fold(0)])
    assert _weights(expected, train_rows)[0] == pytest.approx([0.75 * 20, 0, 0, 0])


def test_scale_is_that_of_all_parts() -> None:
    """Weights have mean 1 over the log, for every fold, whatever parts it comes in."""
    rows = blobs(known=0.5, test_rows=0)
    folds = [Fold(0), Fold(1, 0.0, 0.3)]
    expected, train_rows = _expected(rows, folds)
    parts = [train_rows.take(train_rows.number < 70), train_rows.take(train_rows.number >= 70)]
    rescaled = scaled(expected, iter(parts))
    assert _weights(rescaled, train_rows).mean(axis=1) == pytest.approx([1, 1], rel=1e-5)
    assert np.hstack([_weights(rescaled, part) for part in parts]) == pytest.approx(_weights(rescaled, train_rows))


def test_missing_rows_have_the_weight_of_their_propensity() -> None:
    """Right above p = 0.5 and wrong below, always: so are the missing rows expected to be, the rarer the more."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 600)
    cost = np.where(np.arange(600) % 2 == 0, np.nan, -(p > 0.5).astype(float))
    rows = arrays_of(np.zeros((600, 3), np.float32), np.zeros(600), p, cost)
    weights = _weights(*_expected(rows, [Fold(0)]))[0]
    missing = ~rows.known
    right = missing & (p > 0.55)
    assert weights[right] * 3 * p[right] == pytest.approx(np.full(right.sum(), 0.5), abs=0.05)  # 1 − r̄
    assert weights[missing & (p < 0.45)].max() < 0.05


def test_known_rows_are_weighted_by_their_share_of_the_log_not_of_a_sample() -> None:
    """Of a long streamed log, models are fitted on a sample of the known rows. With nothing to trust (one propensity),
    a known row counts 1/ρ-fold all the same: ρ = 1/2, so (1 − r̄)/(3·0.5)·2."""
    cost = np.where(np.arange(400) % 2 == 0, np.nan, -(np.arange(400) % 4 == 1).astype(float))
    rows = arrays_of(np.zeros((400, 3), np.float32), np.zeros(400), np.full(400, 0.5), cost)
    train_rows = TrainRows(rows, np.arange(400))
    statistics = count_rows([train_rows], 3, sample_bytes=800)
    sample = statistics.sample
    assert 20 < sample.rows.rows <= 66
    expected = fit_expected_rewards(COST_MODELS.load("propensity"), statistics, Fold(0), CPU, with_baseline=True)
    weights = _weights([expected], train_rows)[0]
    mean_reward = -sample.rows.cost.mean()
    assert weights[1::4] == pytest.approx(np.full(100, (1 - mean_reward) / 1.5 * 2), rel=1e-5)
    assert not weights[0::2].any()


def test_folds_fill_in_what_they_may_not_see() -> None:
    """A held-out row is filled in like a missing one."""
    rows = blobs(known=1.0, test_rows=0)
    folds = [Fold(0), Fold(0, 0.0, 0.5)]
    expected, train_rows = _expected(rows, folds)
    cost = _costs(expected, train_rows)
    held = folds[1].holds_out(train_rows.number)
    assert 100 < held.sum() < 300
    assert cost[0] == pytest.approx(rows.cost, abs=1e-6)
    assert cost[1][~held] == pytest.approx(rows.cost[~held], abs=1e-6)
    assert not np.isin(cost[1][held], [-1, 0]).any()


@pytest.mark.parametrize("model", COST_MODELS.names)
def test_feedback_that_is_held_out_changes_nothing(model: str) -> None:
    """Flip the held-out costs: the fold's costs and weights are the same to the bit, those of a fold that sees them are
    not."""
    rows = blobs(known=0.5, test_rows=0)
    folds = [Fold(0), Fold(0, 0.0, 0.5)]
    held = folds[1].holds_out(np.arange(400))
    flipped = replace(rows, cost=np.where(rows.known & held, -1 - rows.cost, rows.cost).astype(np.float32))
    before, after = (
        (_costs(*_expected(r, folds, model)), _weights(*_expected(r, folds, model))) for r in (rows, flipped)
    )
    for one, other in zip(before, after, strict=True):
        assert (one[1] == other[1]).all()
        assert (one[0] != other[0]).any()


@pytest.mark.parametrize("model", COST_MODELS.names)
def test_expected_costs_stay_within_the_known_ones(model: str) -> None:
    rows = blobs(known=0.5, test_rows=0)
    scaled = replace(rows, cost=np.where(rows.known, 3 * rows.cost + 5, 0).astype(np.float32))  # 2 or 5
    cost = _costs(*_expected(scaled, [Fold(0)], model))
    assert (cost.min(), cost.max()) == (pytest.approx(2, abs=1e-5), pytest.approx(5, abs=1e-5))
    right = rows.label == rows.action
    missing = ~rows.known
    assert cost[0][missing & right].mean() < cost[0][missing & ~right].mean() - 0.3  # it tells them apart


def test_costs_all_alike_are_no_reason_to_fail() -> None:
    for level in (-1.0, 0.0, 3.0):
        rows = blobs(known=0.5, test_rows=0)
        alike = replace(rows, cost=np.where(rows.known, level, 0).astype(np.float32))
        for model in COST_MODELS.names:
            expected, train_rows = _expected(alike, [Fold(0)], model)
            assert _costs(expected, train_rows) == pytest.approx(level)
            assert _weights(expected, train_rows).max() == 0
            assert _weights(scaled(expected, [train_rows]), train_rows).max() == 0


def test_reward_weights_of_known_and_missing_rows_by_hand() -> None:
    """r̂ = 0.6, b = 0.5, t = 0.8 and two actions at p = 1/2: a missing row has the advantage 0.1. A known one has
    0.1·r/0.6 and, with ρ = 0.5, (1 − 0.8)·(1 − 0.5)·r/0.5 = 0.2 r."""
    rows = arrays_of(np.zeros((4, 3), np.float32), np.zeros(4), np.full(4, 0.5), [np.nan, 0, -1, np.nan])
    train_rows = TrainRows(rows, np.arange(4))
    statistics = count_rows([train_rows], 2, sample_bytes=1 << 20)
    model, baseline = (
        Expectation(lambda part, fold, level=level: np.full(part.rows, level), trust)
        for level, trust in ((0.6, 0.8), (0.5, 0.0))
    )
    expected = ExpectedRewards(Fold(0), model, baseline, 0.5, 0.5, 1.0, statistics)
    assert expected.weights(train_rows) == pytest.approx([0.1, 0, 0.1 / 0.6 + 0.2, 0.1])
    doubled = train_rows._replace(o=np.array([1, 2, 2, 1], np.float32))  # of rows that are known half as often
    assert expected.weights(doubled) == pytest.approx([0.1, 0, 0.1 / 0.6 + 0.4, 0.1])


def test_actions_whose_rewards_vary_are_not_preferred() -> None:
    """Action 0 always has a reward of 0.6, action 1 has 0 or 1 with a mean of 0.5: the mean weights of their known rows
    have the ratio of the mean rewards, with a calibration or without."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, 20_000)
    reward = np.where(action == 0, 0.6, rng.integers(0, 2, 20_000))
    cost = np.where(rng.random(20_000) < 0.5, -reward, np.nan)
    context = rng.standard_normal((20_000, 2)).astype(np.float32)
    rows = arrays_of(context, action, np.full(20_000, 0.5), cost)
    for model in COST_MODELS.names:
        weights = _weights(*_expected(rows, [Fold(0)], model))[0]
        sure, gamble = (weights[rows.known & (action == a)].mean() for a in (0, 1))
        assert sure > 1.1 * gamble


def test_baseline_is_that_of_the_context() -> None:
    """Half of the contexts have rewards of 0.9 and 0.7, the others of 0.3 and 0.1, by the action. With a model of
    context and action, missing rows have a weight if their action is the better one, in either kind of context."""
    rng = np.random.default_rng(0)
    kind, action = rng.integers(0, 2, 8000), rng.integers(0, 2, 8000)
    rate = 0.1 + 0.6 * kind + 0.2 * action
    cost = np.where(rng.random(8000) < 0.5, -(rng.random(8000) < rate).astype(float), np.nan)
    context = np.stack([kind, 1 - kind], axis=1).astype(np.float32)
    rows = arrays_of(context, action, np.full(8000, 0.5), cost)
    weights = _weights(*_expected(rows, [Fold(0)], "logistic"))[0]
    missing = [[weights[~rows.known & (kind == k) & (action == a)].mean() for a in (0, 1)] for k in (0, 1)]
    assert missing[0][1] > 0.05
    assert missing[1][1] > 0.05
    assert missing[0][0] < 0.01
    assert missing[1][0] < 0.01


def test_cce_takes_the_sure_reward(tmp_path: Path) -> None:
    """Always 0.6, or 0 or 1 with a mean of 0.5: the positive part of every single reward would prefer the gamble."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, 6000)
    reward = np.where(action == 0, 0.6, rng.integers(0, 2, 6000))
    cost = np.where(rng.random(6000) < 0.3, -reward, np.nan)
    context = rng.standard_normal((6000, 2)).astype(np.float32)
    log = write_arrays(tmp_path / "log.parquet", arrays_of(context, action, np.full(6000, 0.5), cost), 2)
    tensors = train(log, risk="none", reg="cce", epochs=5, lr=0.01).tensors
    logits = (context - tensors["shift"]) * tensors["scale"] @ tensors["body.1.weight"].T + tensors["body.1.bias"]
    assert (logits.argmax(axis=1) == 0).mean() > 0.9


def test_rows_on_the_device_have_the_filled_costs_and_the_weights() -> None:
    """Where costs are filled in, the risk sees all rows, all of weight 1; true costs stay as they are."""
    rows = blobs(known=0.5, test_rows=0)
    folds = [Fold(0), Fold(1, 0.0, 0.3)]
    expected, train_rows = _expected(rows, folds)
    statistics = count_rows([train_rows], 3)
    filled, plain = (
        rows_on_device(train_rows, folds, statistics, reg_on_known=False, device=CPU, filling=given, weighting=given)
        for given in (expected, [])
    )
    assert (filled.c.numpy() == _costs(expected, train_rows)).all()
    assert filled.reward_weight is not None
    assert (filled.reward_weight.numpy() == _weights(expected, train_rows).astype(np.float32)).all()
    assert [len(known) for known in filled.known] == [400, 400]
    assert filled.feedback_weight.unique().tolist() == [1]
    assert (filled.true_cost.numpy() == rows.cost).all()
    assert (plain.c.numpy() == rows.cost).all()
    assert plain.reward_weight is None
    assert [one.tolist() for one in plain.held_out] == [one.tolist() for one in filled.held_out]


@pytest.mark.parametrize("model", COST_MODELS.names)
def test_scale_of_the_costs_is_nothing_to_cce(tmp_path: Path, model: str) -> None:
    """0 for right and 5 for wrong, or −1 and 0: the same weights, so the same policy by the regulariser alone."""
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
