"""From labels to logged decisions: draws, stored values, and the effect of τ."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from s2bl_cli.contract.logs import reading
from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.logging_policy import policies
from s2bl_cli.logging_policy.drawing import draw_actions

torch.set_num_threads(1)

ROWS, TEST_ROWS, ACTIONS = 7000, 1000, 10  # of the sample
JUST_BELOW_ONE = np.nextafter(1.0, 0.0)


@pytest.fixture
def make(run: Callable[..., Any], tmp_path: Path) -> Callable[..., LogArrays]:
    """`make("--tau", 5)`: the log of the sample with these options, after one epoch of fitting."""

    def made(*flags: object) -> LogArrays:
        ran = run("make-logs", "--epochs", 1, *flags, "--force", "-o", "made.parquet")
        assert ran.code == 0, ran.stderr
        with open_logs([str(tmp_path / "made.parquet")]) as log:
            return log.read()

    return made


# --- drawing ---


def test_draws_follow_the_distribution() -> None:
    """χ² with 3 degrees of freedom exceeds 16.3 once in a thousand times."""
    pi0 = np.array([0.5, 0.3, 0.15, 0.0, 0.05], np.float32)
    drawn = draw_actions(np.tile(pi0, (20_000, 1)), np.random.default_rng(3).random(20_000))
    counts = np.bincount(drawn, minlength=5)
    expected = 20_000 * pi0.astype(np.float64)
    assert counts[3] == 0
    assert ((counts - expected)[pi0 > 0] ** 2 / expected[pi0 > 0]).sum() < 16.3


def test_draws_by_hand() -> None:
    """Cumulative 0.25, 0.75, 1, 1: u below 0.25 draws 0, from 0.25 on 1, from 0.75 on 2, and even 1 itself not 3."""
    uniform = np.array([0, 0.2499, 0.25, 0.7499, 0.75, JUST_BELOW_ONE, 1])
    pi0 = np.tile(np.array([0.25, 0.5, 0.25, 0], np.float32), (7, 1))
    assert draw_actions(pi0, uniform).tolist() == [0, 0, 1, 1, 2, 2, 2]


@given(
    weights=arrays(np.float32, (1, 5), elements=st.sampled_from(np.float32([0, 1e-30, 1e-8, 0.1, 0.3, 1]))),
    uniform=st.one_of(st.just(0.0), st.just(JUST_BELOW_ONE), st.floats(0, 1, exclude_max=True)),
)
@settings(max_examples=300, deadline=None)
def test_action_of_probability_zero_is_never_drawn(weights: np.ndarray, uniform: float) -> None:
    if not weights.any():
        weights[0, 2] = 1
    pi0 = weights / weights.sum()
    assert pi0[0, draw_actions(pi0, np.array([uniform]))[0]] > 0


# --- the log ---


@pytest.mark.parametrize("mode", ["train", "sample"])
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_stored_numbers_agree(make: Callable[..., LogArrays], model: str, mode: str) -> None:
    log = make("--logging-model", model, "--hidden", 16, "--tau-mode", mode, "--tau", 5, "--store-distribution")
    assert log.pi0 is not None
    assert log.label is not None
    rows = np.arange(ROWS)
    assert (log.rows, int(log.is_test.sum())) == (ROWS, TEST_ROWS)
    assert np.array_equal(log.propensity, log.pi0[rows, log.action])  # exactly
    assert np.allclose(log.pi0.sum(axis=1), 1, atol=1e-6)
    assert log.known.all()
    assert np.array_equal(log.cost, np.where(log.action == log.label, -1, 0))
    # It knows the labels.
    assert (log.action == log.label).mean() > 1.5 / ACTIONS
    assert (log.pi0.argmax(axis=1) == log.label).mean() > 0.6
    # E[1/p] is the number of actions with support; its standard error is known too.
    inverse = 1 / log.propensity.astype(np.float64)
    assert inverse.mean() == pytest.approx(ACTIONS, abs=5 * inverse.std() / np.sqrt(ROWS))


def test_storing_the_distribution_changes_nothing_else(make: Callable[..., LogArrays]) -> None:
    with_pi0, without = make("--tau", 5, "--store-distribution"), make("--tau", 5)
    assert without.pi0 is None
    assert np.array_equal(with_pi0.action, without.action)
    assert np.array_equal(with_pi0.propensity, without.propensity)


@pytest.mark.parametrize("mode", ["train", "sample"])
def test_larger_tau_lowers_sampled_but_not_argmax_accuracy(make: Callable[..., LogArrays], mode: str) -> None:
    logs = [make("--tau", tau, "--tau-mode", mode, "--store-distribution") for tau in (1, 5, 20)]
    sampled_accuracies = [float((log.action == log.label).mean()) for log in logs]
    argmax_accuracies = [float((log.pi0.argmax(axis=1) == log.label).mean()) for log in logs if log.pi0 is not None]
    assert sampled_accuracies[0] > sampled_accuracies[1] + 0.1
    assert sampled_accuracies[1] > sampled_accuracies[2] + 0.03
    assert sampled_accuracies[2] > 1.1 / ACTIONS
    assert min(argmax_accuracies) > 0.6


def test_modes_differ(make: Callable[..., LogArrays]) -> None:
    assert not np.array_equal(make("--tau", 5).propensity, make("--tau", 5, "--tau-mode", "sample").propensity)
    assert np.array_equal(make("--tau", 1).propensity, make("--tau", 1, "--tau-mode", "sample").propensity)


def test_log_does_not_depend_on_the_batches(make: Callable[..., LogArrays], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the rows that are written together nor on those that are computed together. The last bit of a matrix
    product may depend on its shape."""
    whole = make("--tau", 5)
    monkeypatch.setattr(policies, "_ROWS_PER_PIECE", 70)
    monkeypatch.setattr(reading, "BATCH_BYTES", 300 * 784)
    pieces = make("--tau", 5)
    assert np.array_equal(whole.action, pieces.action)
    assert np.allclose(whole.propensity, pieces.propensity, rtol=1e-5)


def test_seed_decides_the_fit_and_the_draws(make: Callable[..., LogArrays]) -> None:
    first, again, other = make("--seed", 1), make("--seed", 1), make("--seed", 2)
    assert np.array_equal(first.action, again.action)
    assert np.array_equal(first.propensity, again.propensity)
    assert not np.array_equal(first.propensity, other.propensity)
    unfitted = [make("--epochs", 0, "--seed", seed) for seed in (1, 2)]
    assert np.array_equal(unfitted[0].propensity, unfitted[1].propensity)
    assert not np.array_equal(unfitted[0].action, unfitted[1].action)


def test_unfitted_linear_policy_is_uniform(make: Callable[..., LogArrays]) -> None:
    log = make("--epochs", 0)
    assert set(log.propensity.tolist()) == {np.float32(0.1).item()}
    counts = np.bincount(log.action, minlength=ACTIONS)
    assert ((counts - ROWS / ACTIONS) ** 2 / (ROWS / ACTIONS)).sum() < 27.9  # χ², 9 degrees of freedom, 1 in 1,000


def test_diverged_fit_is_reported_and_nothing_is_written(run: Callable[..., Any], tmp_path: Path) -> None:
    deep = ("--logging-model", "mlp", "--hidden", ",".join(["64"] * 8))
    ran = run("make-logs", *deep, "--lr", 1000, "--epochs", 2, "--quiet", "-o", "bad.parquet")
    assert ran.code == 2
    assert ran.stderr == "s2bl: the fit of the logging policy diverged at --lr 1000: use a smaller --lr\n"
    assert not list(tmp_path.iterdir())
