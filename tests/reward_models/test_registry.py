"""Every reward model of the registry: what the interface promises."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from s2bl_cli.registry import REWARD_MODELS
from s2bl_cli.reward_models import mlp
from s2bl_cli.reward_models.reward_model import CrossFit, RewardModel, assign_folds
from s2bl_cli.reward_models.settings import RewardModelSettings

ROWS, ACTIONS, FOLDS = 150, 3, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, 2)).astype(np.float32)
ACTION = RNG.integers(0, ACTIONS - 1, ROWS)  # the last action is never logged
CHANCE = 1 / (1 + np.exp(-X[:, 0] * np.array([2, -2])[ACTION]))
REWARDS = {
    "clicks": (RNG.random(ROWS) < CHANCE).astype(float),
    "graded": CHANCE + RNG.uniform(-0.2, 0.2, ROWS),
}
FOLD = np.arange(ROWS) % FOLDS
SCORE = RNG.standard_normal((ROWS, ACTIONS)).astype(np.float32)
SETTINGS = RewardModelSettings(folds=FOLDS)

models = pytest.mark.parametrize("name", REWARD_MODELS.names)
kinds = pytest.mark.parametrize("kind", REWARDS)


@pytest.fixture(autouse=True)
def _small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer units, penalties and steps, so that a network takes a second."""
    monkeypatch.setattr(mlp, "HIDDEN", (4,))
    monkeypatch.setattr(mlp, "_PENALTIES", (3.0,))
    monkeypatch.setattr("s2bl_cli.reward_models.reward_network._LEAST_STEPS", 60)
    monkeypatch.setattr("s2bl_cli.reward_models.reward_network._EPOCHS", 1)


def _fit(name: str, reward: npt.NDArray[Any], rows: Any = slice(None), **more: Any) -> RewardModel:
    cross_fit: CrossFit = REWARD_MODELS.load(name)
    return cross_fit(X[rows], ACTION[rows], reward[rows], FOLD[rows], ACTIONS, more.pop("settings", SETTINGS), **more)


@models
@kinds
@pytest.mark.parametrize("with_score", [False, True])
def test_mean_prediction_is_the_mean_reward_of_the_rows_that_were_learned_from(
    name: str, kind: str, with_score: bool
) -> None:
    """With rows of unequal weight."""
    weight, reward = RNG.uniform(0.2, 5, ROWS), REWARDS[kind]
    score = SCORE[np.arange(ROWS), ACTION] if with_score else None
    model = _fit(name, reward, weight=weight, score=score)
    for j in range(FOLDS):
        learned = j != FOLD
        given = torch.from_numpy(SCORE[learned]) if with_score else None
        of_actions = model.predict(X[learned], np.full(learned.sum(), j), given)
        predicted = of_actions[np.arange(learned.sum()), ACTION[learned]]
        means = [np.average(values, weights=weight[learned]) for values in (predicted, reward[learned])]
        assert means[0] == pytest.approx(means[1], rel=1e-5)


@models
@kinds
def test_unit_and_offset_of_the_rewards_do_not_matter(name: str, kind: str) -> None:
    """Predictions for a·r + b are a times those for r, plus b."""
    reward = REWARDS[kind]
    before, after = (_fit(name, r).predict(X, FOLD) for r in (reward, 250 * reward - 40))
    assert after == pytest.approx(250 * before - 40, abs=250 * 2e-3)
    assert np.ptp(before) > 0.2


@models
@kinds
def test_rewards_of_a_fold_do_not_reach_its_predictions(name: str, kind: str) -> None:
    """Neither through the fit nor through the choice of the strength: predictions are the same to the bit. Both ends of
    the range are in another fold, because rewards are scaled by their range."""
    reward = REWARDS[kind].copy()
    reward[np.flatnonzero(FOLD == 0)[:2]] = reward.min(), reward.max()
    changed = np.where(FOLD == 1, np.where(X[:, 0] > 0, reward.min(), reward.max()), reward)
    before, after = (_fit(name, r).predict(X, FOLD) for r in (reward, changed))
    assert (before[FOLD == 1] == after[FOLD == 1]).all()
    assert (before[FOLD == 0] != after[FOLD == 0]).any()


@models
def test_a_planted_leak_would_be_seen(name: str) -> None:
    """The same check fails if the rows of fold 1 are learned from under another number."""
    leaking = np.where(FOLD == 1, 0, FOLD)
    reward = REWARDS["graded"]
    changed = np.where(FOLD == 1, np.where(X[:, 0] > 0, reward.min(), reward.max()), reward)
    cross_fit = REWARD_MODELS.load(name)
    before, after = (cross_fit(X, ACTION, r, leaking, ACTIONS, SETTINGS).predict(X, FOLD) for r in (reward, changed))
    assert (before[FOLD == 1] != after[FOLD == 1]).any()


@models
def test_score_is_a_feature(name: str) -> None:
    """Rewards that only the score predicts, also for an action that was never logged."""
    logged = SCORE[np.arange(ROWS), ACTION]
    model = _fit(name, 2.0 * logged, score=logged)
    predicted = model.predict(X, FOLD, torch.from_numpy(SCORE))
    inside = np.abs(SCORE) < 1
    assert np.corrcoef(predicted[inside], SCORE[inside])[0, 1] > 0.95
    assert np.corrcoef(predicted[:, -1], SCORE[:, -1])[0, 1] > 0.95


@models
def test_few_rows_one_action_and_equal_rewards(name: str) -> None:
    x = np.array([[1.0, 2.0], [0.0, 1.0]], np.float32)
    cross_fit = REWARD_MODELS.load(name)
    equal = cross_fit(x, np.array([1, 0]), np.full(2, -0.25), np.array([0, 1]), 3, RewardModelSettings(folds=2))
    assert equal.predict(x, np.array([0, 1])).tolist() == [[-0.25] * 3] * 2
    two = cross_fit(x, np.array([1, 0]), np.array([0.0, 1.0]), np.array([0, 1]), 3, RewardModelSettings(folds=2))
    assert np.isfinite(two.predict(x, np.array([0, 1]))).all()
    only = cross_fit(X, np.zeros(ROWS, int), REWARDS["clicks"], FOLD, 1, SETTINGS).predict(X, FOLD)
    assert only.shape == (ROWS, 1)
    assert only.mean() == pytest.approx(REWARDS["clicks"].mean(), abs=0.1)


@models
def test_action_without_rows_is_predicted_from_what_the_actions_share(name: str) -> None:
    """The same reward for both logged actions: the third is expected to earn as much."""
    reward = X[:, 0] + 0.1 * RNG.standard_normal(ROWS)
    predicted = _fit(name, reward).predict(X, FOLD)
    assert np.corrcoef(predicted[:, -1], X[:, 0])[0, 1] > 0.9


@models
def test_the_same_rows_make_the_same_model(name: str) -> None:
    first, second = (_fit(name, REWARDS["graded"]).predict(X, FOLD) for _ in range(2))
    assert (first == second).all()


def test_ridge_is_strong_if_there_is_nothing_to_learn() -> None:
    """Noise in 40 features: a weak ridge would predict worse than the mean."""
    rng = np.random.default_rng(1)
    x, a, reward = rng.standard_normal((200, 40)).astype(np.float32), rng.integers(0, 5, 200), rng.random(200)
    fold = assign_folds(np.ones(200, bool), 5, seed=0)
    predicted = REWARD_MODELS.load("ridge")(x, a, reward, fold, 5).predict(x, fold)[np.arange(200), a]
    assert ((reward - predicted) ** 2).mean() < 1.05 * reward.var()
