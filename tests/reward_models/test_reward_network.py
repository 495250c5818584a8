"""Reward networks: what they can learn, what they must not see, and their limits."""

import numpy as np
import pytest
import torch

from s2bl_cli.reward_models.reward_network import RewardNetwork, fit_reward_network

ROWS, ACTIONS = 400, 3
RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.standard_normal((ROWS, 2)).astype(np.float32))
ACTION = torch.from_numpy(RNG.integers(0, ACTIONS, ROWS))
SCORES = torch.from_numpy(RNG.standard_normal((ROWS, ACTIONS)))
FOLD = torch.from_numpy(RNG.integers(0, 5, ROWS))


def _fit(reward: torch.Tensor, *, with_scores: bool = True, logistic: bool = False) -> RewardNetwork:
    scores = SCORES.gather(1, ACTION[:, None])[:, : int(with_scores)]
    return fit_reward_network(
        X,
        scores,
        ACTION,
        reward,
        FOLD,
        torch.ones(ROWS),
        actions=ACTIONS,
        hidden=(12,),
        penalties=(0.3, 30.0),
        logistic=logistic,
        seed=0,
    )


def _truth() -> torch.Tensor:
    """|x₀|, −|x₀| or 0, by action: no linear model predicts it."""
    return torch.stack([X[:, 0].abs(), -X[:, 0].abs(), torch.zeros(ROWS)], dim=1)


def test_reward_that_no_linear_model_predicts_is_learned() -> None:
    truth = _truth()
    network = _fit(truth.gather(1, ACTION[:, None]).squeeze(1))
    assert (network.predict(X, SCORES) - truth).abs().mean() < 0.15
    assert network.held_out_loss.mean() < 0.05


def test_slope_of_the_scores_is_not_penalised() -> None:
    """Rewards that are twice the score, and that nothing else predicts."""
    network = _fit(2 * SCORES.gather(1, ACTION[:, None]).squeeze(1))
    assert network.slope == pytest.approx(2, abs=0.1)


def test_reward_without_a_pattern_is_predicted_by_its_mean() -> None:
    """Held-out rows stop the fit before it learns noise."""
    reward = torch.from_numpy((np.random.default_rng(1).random(ROWS) < 0.3).astype(np.float64))
    expected = _fit(reward, logistic=True).predict(X, SCORES).sigmoid()
    assert (expected - reward.mean()).abs().mean() < 0.1


def test_held_out_losses_are_those_of_networks_that_have_not_seen_the_row() -> None:
    """Without scores, and with every row of fold 0 having another reward than its copy in the other folds."""
    reward = torch.where(FOLD == 0, 1.0, 0.0).double()
    network = _fit(reward, with_scores=False, logistic=True)
    unseen, seen = network.held_out_loss[FOLD == 0], network.held_out_loss[FOLD != 0]
    assert unseen.mean() > 4 * seen.mean()


def test_fit_is_deterministic() -> None:
    first, second = (_fit(_truth().gather(1, ACTION[:, None]).squeeze(1)) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first.layers, second.layers, strict=True))
