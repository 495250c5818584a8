"""The copy of the logging policy: exact where it can be, absent where it would mislead."""

import numpy as np
import pytest
from scipy.special import log_softmax

from s2bl_cli.reward_models.logging_copy import fit_logging_copy, rows_to_copy

RNG = np.random.default_rng(0)
X = RNG.standard_normal((600, 3)).astype(np.float32)
TRUE = log_softmax(X @ RNG.standard_normal((3, 4)) + RNG.standard_normal(4), axis=1)
ACTION = (np.exp(TRUE).cumsum(axis=1) < RNG.random((600, 1))).sum(axis=1)


def test_linear_softmax_is_copied_for_all_actions() -> None:
    """From the propensities of the logged actions alone."""
    copy = fit_logging_copy(X, ACTION, np.exp(TRUE[np.arange(600), ACTION]), 4)
    assert copy is not None
    assert copy.log_probabilities(X).numpy() == pytest.approx(TRUE, abs=0.05)


def test_there_is_no_copy_of_noise_nor_of_a_uniform_policy() -> None:
    assert fit_logging_copy(X, ACTION, RNG.uniform(0.1, 0.9, 600), 4) is None
    assert fit_logging_copy(X, ACTION, np.full(600, 0.25), 4) is None
    assert fit_logging_copy(X[:50], ACTION[:50], np.exp(TRUE[np.arange(50), ACTION[:50]]), 4) is None


def test_many_actions_are_copied_from_fewer_rows_or_not_at_all() -> None:
    assert rows_to_copy(10, 10) == 20_000
    assert 0 < rows_to_copy(784, 10) < 20_000
    assert rows_to_copy(784, 10_000) == 0
