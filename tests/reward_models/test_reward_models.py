"""The reward model: its limits, what it learns, and that a row's fold is not learned from."""

from typing import Any

import numpy as np
import pytest
import torch
from learning_fixtures import CPU, default_device_elsewhere, one_hot
from scipy.optimize import minimize

from s2bl_cli.policies.contexts import context_tensor
from s2bl_cli.reward_models.linear_maps import Rows
from s2bl_cli.reward_models.logistic import cross_fit, fit_reward_model
from s2bl_cli.reward_models.observation_model import cross_fit_observation
from s2bl_cli.reward_models.reward_model import assign_folds
from s2bl_cli.reward_models.settings import RewardModelSettings

FEW = RewardModelSettings(newton_steps=2)


def test_it_learns_the_mean_reward_of_each_context_and_action() -> None:
    """Two contexts, two actions, 4,000 rows: the four means, shrunk a little."""
    rng = np.random.default_rng(0)
    x, a = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    mean = np.array([[-0.9, -0.5], [-0.2, -0.6]])
    cost = -(rng.random(4000) < -mean[x, a]).astype(np.float32)
    model = fit_reward_model(one_hot(x.tolist(), 2), a, cost, 2)
    assert model.predict(np.eye(2, dtype=np.float32)) == pytest.approx(mean, abs=0.03)


@pytest.mark.parametrize("kind", ["rare", "skewed", "weighted"])
def test_mean_prediction_is_the_mean_reward_of_the_rows_that_were_learned_from(kind: str) -> None:
    """One reward of 1 in 4,000 rows; revenue whose largest value is 200 times its mean; rows of unequal weight."""
    rng = np.random.default_rng(0)
    rows = 40_000 if kind == "rare" else 5_000
    x, a = rng.standard_normal((rows, 8)).astype(np.float32), rng.integers(0, 5, rows)
    reward = (rng.permutation(rows) < 10).astype(float)
    if kind != "rare":
        reward = (rng.random(rows) < 0.2) * np.exp(0.8 * x[:, 0] + 1.5 * rng.standard_normal(rows))
    weight = rng.uniform(0.2, 5, rows) if kind == "weighted" else np.ones(rows)
    fold = assign_folds(np.ones(rows, bool), 5, seed=0)
    model = cross_fit(x, a, reward, fold, 5, weight=None if kind == "rare" else weight)
    for j in range(5):
        learned = fold != j
        predicted = model.predict(x[learned], np.full(learned.sum(), j))[np.arange(learned.sum()), a[learned]]
        means = [np.average(values, weights=weight[learned]) for values in (predicted, reward[learned])]
        assert means[0] == pytest.approx(means[1], rel=1e-4)


def test_fit_is_the_optimum_of_the_penalised_likelihood() -> None:
    """Against scipy on the objective of the docstring, for 0/1 and for graded rewards: the same predictions."""
    rng = np.random.default_rng(0)
    x, a = rng.standard_normal((300, 2)).astype(np.float32), rng.integers(0, 3, 300)
    chance = 1 / (1 + np.exp(-(x[:, 0] + a - 1)))
    standardised = (x - x.mean(axis=0)) / x.std(axis=0)
    columns = np.hstack([standardised, np.ones((300, 1))])
    for reward in ((rng.random(300) < chance).astype(float), chance + rng.uniform(-0.2, 0.2, 300)):
        value = (reward - reward.min()) / (reward.max() - reward.min())
        mean = value.mean()
        precision = value.var() / (mean * (1 - mean)) / RewardModelSettings().spread ** 2
        ridge = np.tile([2 * precision, 2 * precision, precision], (4, 1))
        ridge[-1, -1] = 0

        def objective(flat: Any, value: Any = value, ridge: Any = ridge) -> float:
            maps = flat.reshape(4, 3)
            z = (columns * (maps[a] + maps[3])).sum(axis=1)
            return float((np.logaddexp(0, z) - value * z).sum() + (ridge * maps**2).sum() / 2)

        maps = minimize(objective, np.zeros(12), tol=1e-10).x.reshape(4, 3)
        wanted = 1 / (1 + np.exp(-columns @ (maps[:3] + maps[3]).T))
        many = RewardModelSettings(newton_steps=20, gradient_steps=30)
        for settings, tolerance in ((many, 1e-3), (RewardModelSettings(), 0.01)):
            predicted = fit_reward_model(x, a, reward, 3, settings).predict(x)
            assert (predicted - reward.min()) / np.ptp(reward) == pytest.approx(wanted, abs=tolerance)


def test_weight_of_a_row_is_how_often_it_counts() -> None:
    """Each context comes with a weight of 1, 2 and 3, so that both logs are standardised alike."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.standard_normal((30, 3)).astype(np.float32), 3, axis=0)
    a, reward, count = rng.integers(0, 3, 90), rng.random(90), np.tile([1, 2, 3], 30)
    weighted = fit_reward_model(x, a, reward, 3, weight=count).predict(x)
    repeated = fit_reward_model(*(np.repeat(of_rows, count, axis=0) for of_rows in (x, a, reward)), 3).predict(x)
    assert weighted == pytest.approx(repeated, abs=1e-4)
    assert weighted != pytest.approx(fit_reward_model(x, a, reward, 3).predict(x), abs=0.01)


@pytest.mark.parametrize("actions", [3, 60], ids=["few actions", "many"])
def test_rows_in_blocks_are_multiplied_by_the_maps_of_their_actions(actions: int) -> None:
    """Values, gradients and totals as sums over rows; with few rows per action, blocks are as small."""
    rng = np.random.default_rng(0)
    x, a = rng.standard_normal((50, 4)).astype(np.float32), rng.integers(0, actions, 50)
    rows = Rows(x, a, CPU)
    columns = np.hstack([rows.standardise(torch.from_numpy(x)).numpy(), np.ones((50, 1), np.float32)])
    which = np.searchsorted(rows.actions, a)
    maps, curvature = rng.standard_normal((rows.maps, 2, 5)).astype(np.float32), rng.random((50, 2)).astype(np.float32)
    z = np.einsum("nd,nfd->nf", columns, maps[which] + maps[-1])
    values, gradient = rows.curved(torch.from_numpy(maps), rows.spread(curvature))
    torch.testing.assert_close(values * rows.spread(np.ones((50, 2), np.float32)), rows.spread(z))
    wanted = np.zeros_like(maps)
    np.add.at(wanted, which, (curvature * z)[:, :, None] * columns[:, None])
    wanted[-1] = wanted.sum(axis=0)
    assert gradient.numpy() == pytest.approx(wanted, abs=1e-4)
    assert rows.transposed(rows.spread(curvature * z)).numpy() == pytest.approx(wanted, abs=1e-4)
    totals = np.stack([np.bincount(which, curvature[:, f]) for f in range(2)], axis=1)
    assert rows.totals(rows.spread(curvature)).numpy() == pytest.approx(np.vstack([totals, totals.sum(axis=0)]))


def test_of_very_many_rows_a_sample_is_learned_from() -> None:
    rng = np.random.default_rng(0)
    x, a = rng.standard_normal((1500, 2)).astype(np.float32), rng.integers(0, 2, 1500)
    reward = (rng.random(1500) < 0.3).astype(float)
    sampled, whole = (
        fit_reward_model(x, a, reward, 2, RewardModelSettings(most_cells=cells)).predict(x) for cells in (1, 1 << 20)
    )
    assert (sampled != whole).any()
    assert sampled == pytest.approx(whole, abs=0.15)


def test_action_that_was_never_logged_is_expected_to_earn_what_the_others_do() -> None:
    x = np.zeros((20, 1), np.float32)
    predicted = fit_reward_model(x, np.arange(20) % 2, np.arange(20) % 2, 3).predict(x)[0]
    assert predicted == pytest.approx([0.1, 0.9, 0.5], abs=0.1)


def test_predictions_stay_inside_the_range_of_the_rewards() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 3)).astype(np.float32)
    cost = rng.uniform(2, 5, 200)
    model = fit_reward_model(x, rng.integers(0, 4, 200), cost, 4, FEW)
    predicted = model.predict(100 * x)
    assert predicted.min() >= cost.min() - 1e-5
    assert predicted.max() <= cost.max() + 1e-5


def test_equal_rewards_are_predicted_exactly_and_one_row_is_enough() -> None:
    x = np.array([[1.0, 2.0]], np.float32)
    model = fit_reward_model(x, np.array([1]), np.array([-0.25]), 3, FEW)
    assert model.predict(x).tolist() == [[-0.25] * 3]


def test_uint8_images_are_as_good_as_floats() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (50, 1, 4, 4), dtype=np.uint8)
    a, cost = rng.integers(0, 3, 50), -rng.random(50)
    images = fit_reward_model(x, a, cost, 3, FEW).predict(x)
    vectors = fit_reward_model(x.reshape(50, 16).astype(np.float32), a, cost, 3, FEW).predict(x)
    assert images == pytest.approx(vectors, abs=1e-6)


def test_contexts_that_are_tensors_already_are_predicted_as_they_are() -> None:
    """A batch is converted once for the policies, the reward model and the model of missingness."""
    rng = np.random.default_rng(0)
    x, a = rng.standard_normal((60, 3)).astype(np.float32), rng.integers(0, 2, 60)
    known, fold = rng.random(60) < 0.5, np.arange(60) % 5
    batch = torch.from_numpy(x)
    assert context_tensor(batch, torch.device("cpu")) is batch
    reward_model = cross_fit(x, a, rng.random(60), fold, 2, FEW)
    assert (reward_model.predict(batch, fold) == reward_model.predict(x, fold)).all()
    for seen in (known, np.abs(x[:, 0]) > 0.7):  # a linear model, and one with random features
        model = cross_fit_observation(x, a, seen, fold, 2, FEW)
        assert (model.probability(batch, a, fold) == model.probability(x, a, fold)).all()


def test_a_rows_own_reward_does_not_reach_its_prediction() -> None:
    """Flip the costs of one fold: predictions for its rows are the same to the bit, those for others are not."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 3)).astype(np.float32)
    a, cost = rng.integers(0, 2, 120), -(rng.random(120) < 0.5).astype(np.float32)
    cost[:6] = [0, -1, 0, -1, 0, -1]  # both ends of the range are in every fold
    fold = np.arange(120) % 3
    flipped = np.where(fold == 1, -1 - cost, cost)
    settings = RewardModelSettings(folds=3)
    before, after = (cross_fit(x, a, c, fold, 2, settings).predict(x, fold) for c in (cost, flipped))
    assert (before[fold == 1] == after[fold == 1]).all()
    assert (before[fold == 0] != after[fold == 0]).any()


def test_the_same_seed_fits_the_same_model_and_folds_are_even() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3)).astype(np.float32)
    a, cost = rng.integers(0, 2, 40), -rng.random(40)
    first, second = (fit_reward_model(x, a, cost, 2, FEW).predict(x) for _ in range(2))
    assert (first == second).all()
    known = np.arange(103) % 4 == 0
    fold = assign_folds(known, 5, seed=3)
    for rows in (known, ~known):
        counts = np.bincount(fold[rows], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert (fold == assign_folds(known, 5, seed=3)).all()
    assert (fold != assign_folds(known, 5, seed=4)).any()


def test_folds_of_clusters_are_even_and_whole() -> None:
    """20 clusters of which every other one has feedback: two with and two without in each fold."""
    cluster = np.random.default_rng(0).permutation(np.repeat(np.arange(20), 5))
    known = cluster % 2 == 0
    fold = assign_folds(known, 5, seed=3, cluster=cluster)
    by_cluster = [set(fold[cluster == c].tolist()) for c in range(20)]
    assert all(len(folds) == 1 for folds in by_cluster)
    assert np.bincount(fold[known]).tolist() == np.bincount(fold[~known]).tolist() == [10] * 5


def test_it_computes_on_the_device_that_is_given() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 3)).astype(np.float32)
    with default_device_elsewhere():
        model = fit_reward_model(x, rng.integers(0, 2, 20), -rng.random(20), 2, FEW, torch.device("cpu"))
        model.predict(x)


def test_observation_model_learns_who_answers() -> None:
    """Known with probability 0.8 in context 0 and 0.2 in context 1, whatever the action."""
    rng = np.random.default_rng(0)
    x, a = rng.integers(0, 2, 4000), rng.integers(0, 3, 4000)
    known = rng.random(4000) < np.array([0.8, 0.2])[x]
    context = one_hot(x.tolist(), 2)
    fold = assign_folds(known, 5, seed=0)
    model = cross_fit_observation(context, a, known, fold, 3)
    probability = model.probability(context, a, fold)
    assert probability[x == 0].mean() == pytest.approx(0.8, abs=0.03)
    assert probability[x == 1].mean() == pytest.approx(0.2, abs=0.03)


def test_observation_model_is_nonlinear_where_that_predicts_better() -> None:
    """Known with probability 0.9 where |x| > 1 and 0.1 elsewhere, which no line tells. Where one does, it is taken."""
    rng = np.random.default_rng(0)
    context = rng.uniform(-2, 2, (4000, 1)).astype(np.float32)
    a, outside = rng.integers(0, 2, 4000), np.abs(context[:, 0]) > 1
    known = rng.random(4000) < np.where(outside, 0.9, 0.1)
    fold = assign_folds(known, 5, seed=0)
    nonlinear = cross_fit_observation(context, a, known, fold, 2).probability(context, a, fold)
    assert nonlinear[np.abs(context[:, 0]) > 1.3].mean() > 0.8
    assert nonlinear[np.abs(context[:, 0]) < 0.7].mean() < 0.2
    known = rng.random(4000) < 1 / (1 + np.exp(-context[:, 0]))
    fold = assign_folds(known, 5, seed=0)
    assert cross_fit_observation(context, a, known, fold, 2).features is None


def test_observation_model_of_many_features_does_not_overfit() -> None:
    """Known by action alone, 0.4 or 0.1, beside 100 features that do not matter: with the weak prior alone, the
    probabilities would be off by 0.11 on average."""
    rng = np.random.default_rng(0)
    context, a = rng.standard_normal((2000, 100)).astype(np.float32), rng.integers(0, 10, 2000)
    truth = np.where(a % 2 == 0, 0.4, 0.1)
    known = rng.random(2000) < truth
    fold = assign_folds(known, 5, seed=0)
    probability = cross_fit_observation(context, a, known, fold, 10).probability(context, a, fold)
    assert np.abs(probability - truth).mean() < 0.06
