"""The reward model: its limits, what it learns, and that a row's fold is not learned from."""

import numpy as np
import pytest
import torch
from learning_fixtures import default_device_elsewhere, one_hot
from torch.nn.functional import binary_cross_entropy_with_logits

from s2bl_cli.policies.contexts import context_tensor
from s2bl_cli.reward_models.observation_model import cross_fit_observation
from s2bl_cli.reward_models.reward_model import (
    _gradients,
    _logged_logits,
    assign_folds,
    cross_fit,
    fit_reward_model,
)
from s2bl_cli.reward_models.settings import RewardModelSettings

FEW = RewardModelSettings(least_steps=60, most_steps=60)


def test_it_learns_the_mean_reward_of_each_context_and_action() -> None:
    """Two contexts, two actions, 4,000 rows: the four means, shrunk a little."""
    rng = np.random.default_rng(0)
    x, a = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    mean = np.array([[-0.9, -0.5], [-0.2, -0.6]])
    cost = -(rng.random(4000) < -mean[x, a]).astype(np.float32)
    model = fit_reward_model(one_hot(x.tolist(), 2), a, cost, 2)
    assert model.predict(np.eye(2, dtype=np.float32)) == pytest.approx(mean, abs=0.03)


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
    for nonlinear in (False, True):
        model = cross_fit_observation(x, a, known, fold, 2, FEW, nonlinear=nonlinear)
        assert (model.probability(batch, a, fold) == model.probability(x, a, fold)).all()


def test_a_rows_own_reward_does_not_reach_its_prediction() -> None:
    """Flip the costs of one fold: predictions for its rows are the same to the bit, those for others are not."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 3)).astype(np.float32)
    a, cost = rng.integers(0, 2, 120), -(rng.random(120) < 0.5).astype(np.float32)
    cost[:6] = [0, -1, 0, -1, 0, -1]  # both ends of the range are in every fold
    fold = np.arange(120) % 3
    flipped = np.where(fold == 1, -1 - cost, cost)
    settings = RewardModelSettings(folds=3, least_steps=60, most_steps=60)
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


def test_many_actions_and_few_give_the_same_logits() -> None:
    """Two ways to compute them: all outputs and a gather, or the gathered weights alone."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 3, generator=generator)
    action = torch.tensor([0, 5, 69, 3, 3, 1, 2])
    weight, bias = torch.randn(2, 71, 3, generator=generator), torch.randn(2, 71, generator=generator)
    gathered = _logged_logits(x, action, weight, bias)
    for j in range(2):
        whole = weight[j, action] + weight[j, -1]
        wanted = (whole * x).sum(dim=1) + bias[j, action] + bias[j, -1]
        torch.testing.assert_close(gathered[:, j], wanted)
    few = _logged_logits(x, action % 4, weight[:, :5], bias[:, :5])
    wanted = ((weight[0, action % 4] + weight[0, 4]) * x).sum(dim=1) + bias[0, action % 4] + bias[0, 4]
    torch.testing.assert_close(few[:, 0], wanted)


@pytest.mark.parametrize("actions", [4, 70], ids=["few actions", "many"])
def test_gradients_are_autograds(actions: int) -> None:
    """Of the summed cross-entropy, both ways of computing them."""
    generator = torch.Generator().manual_seed(0)
    x, target = torch.randn(9, 3, generator=generator), torch.rand(9, 1, generator=generator)
    action = torch.randint(0, actions, (9,), generator=generator)
    weight = torch.randn(2, actions + 1, 3, generator=generator, requires_grad=True)
    bias = torch.randn(2, actions + 1, generator=generator, requires_grad=True)
    logits = _logged_logits(x, action, weight, bias)
    loss = binary_cross_entropy_with_logits(logits, target.expand(9, 2), reduction="sum")
    wanted = torch.autograd.grad(loss, [weight, bias])
    found = _gradients(x, action, logits.detach().sigmoid() - target, actions + 1)
    torch.testing.assert_close(found, wanted)


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
    linear = cross_fit_observation(context, a, known, fold, 2).probability(context, a, fold)
    assert abs(linear[outside].mean() - linear[~outside].mean()) < 0.1
    nonlinear = cross_fit_observation(context, a, known, fold, 2, nonlinear=True).probability(context, a, fold)
    assert nonlinear[np.abs(context[:, 0]) > 1.3].mean() > 0.8
    assert nonlinear[np.abs(context[:, 0]) < 0.7].mean() < 0.2
    known = rng.random(4000) < 1 / (1 + np.exp(-context[:, 0]))
    fold = assign_folds(known, 5, seed=0)
    assert cross_fit_observation(context, a, known, fold, 2, nonlinear=True).features is None
