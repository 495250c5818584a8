"""The choice among reward models by value, then by loss."""

import numpy as np
import pytest

from s2bl_cli.training.value_choice import LoggedRows, Predicted, near_the_best


def test_score_of_a_row_by_hand() -> None:
    """The model expects 0.5 of its best action and 0.3 of the logged one. Row 0 has another action: 0.5. Row 1 has the
    same one with p = 0.2 and a reward of 1: 0.5 + (1 − 0.5)/0.2 = 3. Row 2 has p = 1e-9, truncated at 0.001, and a
    reward of 0: 0.5 − 0.5/0.001 = −499.5."""
    rows = LoggedRows(np.array([1, 0, 0]), np.array([0.2, 0.2, 1e-9]), np.array([1.0, 1.0, 0.0]), np.ones(3))
    scores = rows.scores(np.zeros(3, np.int64), np.full(3, 0.5), np.array([0.3, 0.5, 0.5]))
    assert scores == pytest.approx([0.5, 3.0, -499.5])


def _rows(count: int = 400) -> tuple[LoggedRows, np.ndarray, np.ndarray]:
    """Two actions, drawn evenly, of which the second is always worth 1 and the first 0. A model expects 0.5 of all."""
    action = np.arange(count) % 2
    rows = LoggedRows(action, np.full(count, 0.5), action.astype(float), np.ones(count))
    return rows, np.full((count, 2), 0.5), np.ones(count, np.int64)


def test_model_of_a_clearly_lower_value_is_left_out_whatever_its_loss() -> None:
    rows, expected, right = _rows()
    models = [Predicted(0 * right, np.zeros(400)), Predicted(right, np.ones(400)), Predicted(right, np.full(400, 2.0))]
    assert near_the_best(models, expected, rows) == [1, 2]


def test_model_within_the_noise_of_the_best_value_is_kept() -> None:
    """The other model scores 1 less in one row and 0.5 more in another: a mean of 0.5/n, and an error of √1.25/n."""
    rows, expected, right = _rows()
    rows.reward[2] = 0.75
    other = right.copy()
    other[[1, 2]] = 0
    assert near_the_best([Predicted(right, np.ones(400)), Predicted(other, np.ones(400))], expected, rows) == [0, 1]


def test_rows_count_by_their_weights() -> None:
    """The first action is worth 1 in the first half of the rows, the second in the other half. The weights decide."""
    rows, expected, right = _rows()
    half = np.arange(400) < 200
    reward = np.where(half, 1 - rows.action, rows.action).astype(float)
    models = [Predicted(0 * right, np.ones(400)), Predicted(right, np.ones(400))]
    for number, heavy in enumerate((half, ~half)):
        weighted = rows._replace(reward=reward, weight=np.where(heavy, 1.9, 0.1))
        assert near_the_best(models, expected, weighted) == [number]
