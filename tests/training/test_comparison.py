"""The comparison of `--method auto`: the choice and its gain, by hand and over many noisy logs."""

from typing import Any

import numpy as np
import pytest

from s2bl_cli.training.comparison import LOGGING, LOGGING_NAME, Candidate, Choice, Comparison

ROWS = 8
FOLD = np.arange(ROWS) % 2


def _comparison(*candidates: Candidate, reward: Any = 0.0, fold: Any = FOLD) -> Comparison:
    rows = len(fold)
    return Comparison(candidates, np.broadcast_to(np.asarray(reward, float), rows), np.ones(rows), fold)


def _candidate(name: str, scores: Any, loss: float | None = None) -> Candidate:
    scores = np.broadcast_to(np.asarray(scores, float), ROWS)
    return Candidate(name, scores, None if loss is None else np.full(2, loss))


# --- the choice ---


def test_a_significantly_better_value_comes_first() -> None:
    """The difference is 1 in every row, without noise: the better loss of the other one does not count."""
    assert _comparison(_candidate("a", 1, loss=0.1), _candidate("b", 2, loss=0.9)).choose() == 1


def test_within_two_standard_errors_the_loss_decides() -> None:
    """b − a is 3 and −1 in turn: mean 1, standard error 2·√(8/7)/√8 ≈ 0.76, so a is near. Of 5 and 1, mean 3: no."""
    noise = np.tile([2.0, -2.0], 4)
    best = _candidate("b", 1 + noise, loss=0.9)
    assert _comparison(_candidate("a", 0, loss=0.1), best, reward=-1).choose() == 0
    assert _comparison(_candidate("a", 0, loss=0.95), best, reward=-1).choose() == 1
    assert _comparison(_candidate("a", 0, loss=0.1), _candidate("b", 3 + noise, loss=0.9), reward=-1).choose() == 1


def test_a_candidate_without_a_reward_model_is_chosen_if_no_near_one_has_one() -> None:
    noise = np.tile([2.0, -2.0], 4)
    without = _candidate("b", 1 + noise)
    assert _comparison(_candidate("a", 0, loss=0.9), without, reward=-1).choose() == 0
    assert _comparison(_candidate("a", 0), without, reward=-1).choose() == 1
    assert _comparison(_candidate("a", -9, loss=0.1), without, reward=-1).choose() == 1  # it is not near


def test_the_logging_policy_is_kept_if_nothing_is_better() -> None:
    comparison = _comparison(_candidate("a", 1, loss=0.1), _candidate("b", 2), reward=3)
    assert comparison.choose() == LOGGING
    assert (comparison.gain.value, comparison.value(LOGGING).value) == (0, 3)


def test_a_candidate_below_the_logging_policy_is_not_chosen_for_its_loss() -> None:
    """a is within two standard errors of b, and predicts best, but is worth less than the logging policy."""
    noise = np.tile([2.0, -2.0], 4)
    comparison = _comparison(_candidate("a", 0, loss=0.1), _candidate("b", 1 + noise, loss=0.9), reward=0.5)
    assert comparison.choose() == 1


# --- the gain ---


def test_gain_by_hand() -> None:
    """a is better in fold 0 (4 against 0), b in fold 1 (6 against 2), rewards are 1. Without fold 0, b is chosen, and
    has 0 there; without fold 1, a is chosen, and has 2 there. The gain is (0 + 2)/2 − 1 = 0, although b has
    3 − 1 = 2 on all rows."""
    comparison = _comparison(
        _candidate("a", np.where(FOLD == 0, 4, 2)), _candidate("b", np.where(FOLD == 0, 0, 6)), reward=1
    )
    assert comparison.gain.value == 0


def test_gain_of_a_clear_choice_is_that_of_its_value() -> None:
    rng = np.random.default_rng(0)
    scores, reward = 5 + rng.standard_normal(ROWS), rng.standard_normal(ROWS)
    comparison = _comparison(_candidate("a", scores), _candidate("b", -9), reward=reward)
    assert comparison.gain.value == pytest.approx((scores - reward).mean())
    assert comparison.gain.stderr == pytest.approx((scores - reward).std(ddof=1) / np.sqrt(ROWS), rel=1e-9)


def test_gain_is_not_biased_by_the_selection() -> None:
    """20 candidates of pure noise: the best estimate is above 0 in the mean, the gain is not."""
    rng = np.random.default_rng(0)
    fold = np.arange(100) % 5
    gains, best = [], []
    for _ in range(200):
        scores = rng.standard_normal((20, 100))
        comparison = _comparison(*(Candidate(str(k), own) for k, own in enumerate(scores)), fold=fold)
        gains.append(comparison.gain.value)
        best.append(scores.mean(axis=1).max())
    assert abs(np.mean(gains)) < 3 * np.std(gains, ddof=1) / np.sqrt(200)
    assert np.mean(best) > 20 * np.std(best, ddof=1) / np.sqrt(200)


# --- what is printed ---


def test_table_marks_the_choice_and_has_one_line_per_method() -> None:
    comparison = _comparison(
        _candidate("tips (linear, softmax)", 1.23456), _candidate("tips (linear, argmax)", 1),
        _candidate("dm (linear, argmax)", 2), reward=0.5,
    )  # fmt: skip
    choice = Choice.of(comparison, comparison.choose())
    assert choice.table == [
        "candidate               estimated value",
        "dm (linear, argmax)     2 [2, 2]  chosen",
        "tips (linear, softmax)  1.235 [1.235, 1.235]",
        "logging policy          0.5 [0.5, 0.5]",
    ]
    assert choice.conclusion == "estimated to be better than the logging policy by 1.5 [1.5, 1.5]"


def test_narrow_intervals_have_the_digits_that_they_need() -> None:
    noise = np.tile([1.0, -1.0], 4)
    comparison = _comparison(_candidate("dm (linear, argmax)", 1e7 + noise), reward=0)
    assert Choice.of(comparison, 0).table[1].startswith("dm (linear, argmax)  10000000 [9999999.")


def test_the_last_line_claims_no_more_than_was_shown() -> None:
    noise = np.tile([9.0, 9.0, -9.0, -9.0], 2)
    comparison = _comparison(_candidate("dm (linear, argmax)", 0.1 + noise), reward=0)
    text = Choice.of(comparison, 0).conclusion
    assert text.startswith("not shown to be better than the logging policy (estimated gain ")
    kept = Choice.of(_comparison(_candidate("dm (linear, argmax)", -1)), LOGGING)
    assert kept.chosen == LOGGING_NAME
    assert kept.conclusion == "nothing was shown to beat the logging policy, so the policy is a copy of it"
