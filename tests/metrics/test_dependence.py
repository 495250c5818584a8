"""The test of whether context and action predict which rows have feedback."""

from typing import Any

import numpy as np
import pytest

from s2bl_cli.metrics.dependence import dependence


def _log(seed: int, rows: int, features: int = 4, actions: int = 3) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, features)).astype(np.float32), rng.integers(0, actions, rows), rng


DEPENDS = {
    "action": lambda x, a: np.where(a == 0, 0.5, 0.3),
    "linear": lambda x, a: np.where(x[:, 0] > 0, 0.45, 0.3),
    "absolute": lambda x, a: np.where(np.abs(x[:, 0]) > 0.67, 0.45, 0.3),
    "product": lambda x, a: np.where(x[:, 0] * x[:, 1] > 0, 0.45, 0.25),
    "both": lambda x, a: np.where((x[:, 0] > 0) == (a == 0), 0.45, 0.25),
}


@pytest.mark.parametrize("name", DEPENDS)
def test_dependence_is_found(name: str) -> None:
    x, a, rng = _log(0, 4000)
    known = rng.random(4000) < DEPENDS[name](x, a)
    found = dependence(x, a, known)
    assert found is not None
    assert found.startswith("which rows have feedback depends on context or action (test statistic ")
    assert dependence(x, a, known) == found  # deterministic
    assert dependence(x, a, rng.permutation(known)) is None


@pytest.mark.parametrize(("rows", "share"), [(300, 0.3), (300, 0.02), (40, 0.5)])
def test_false_alarms_are_as_rare_as_the_level(rows: int, share: float) -> None:
    """1 % of 200 logs is 2; 9 or more have a probability of 0.0002. Features have extreme values, and actions are
    rare."""
    alarms = 0
    for seed in range(200):
        x, _, rng = _log(seed, rows)
        a = np.minimum(rng.geometric(0.2, rows), 20)
        alarms += dependence(np.exp(2 * x), a, rng.random(rows) < share) is not None
    assert alarms < 9


@pytest.mark.parametrize("is_constant", [False, True])
def test_rounding_is_no_dependence(is_constant: bool) -> None:
    """With one action, statistics of the constant are 0 but for rounding, which is largest in this order of rows."""
    alarms = 0
    for seed in range(20):
        x, _, _ = _log(seed, 2000)
        known = np.arange(2000) < 900
        alarms += dependence(np.ones_like(x) if is_constant else x, np.zeros(2000, np.int64), known) is not None
    assert alarms <= 2


def test_false_alarms_are_rare_in_clusters() -> None:
    """Ten rows of a user have one context, and are known together: without the clusters, most logs raise an alarm."""
    alarms = {True: 0, False: 0}
    for seed in range(100):
        x, _, rng = _log(seed, 60)
        user = np.repeat(np.arange(60), 10)
        known = np.repeat(rng.random(60) < 0.4, 10)
        for clustered in alarms:
            cluster = user if clustered else None
            alarms[clustered] += dependence(x[user], rng.integers(0, 3, 600), known, cluster) is not None
    assert alarms[True] < 6
    assert alarms[False] > 50


def test_dependence_of_whole_clusters_is_found() -> None:
    x, _, rng = _log(0, 400)
    user = np.repeat(np.arange(400), 5)
    known = np.repeat(rng.random(400) < np.where(np.abs(x[:, 0]) > 0.67, 0.6, 0.2), 5)
    assert dependence(x[user], rng.integers(0, 3, 2000), known, user) is not None


def test_wide_contexts_of_integers_and_many_actions() -> None:
    """Images of bytes, of which a part is constant, and 500 actions. What is missing is decided by a bright half."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (3000, 14, 14), np.uint8)
    bright = rng.random(3000) < 0.5
    image[bright, :7] = np.minimum(image[bright, :7].astype(int) + 40, 255)
    image[:, 0] = 0
    action = rng.integers(0, 500, 3000)
    assert dependence(image, action, rng.random(3000) < np.where(bright, 0.5, 0.3)) is not None
    assert dependence(image, action, rng.random(3000) < 0.4) is None


@pytest.mark.parametrize("unit", [1e-42, 1e-30, 1e30])
def test_unit_of_the_context_does_not_matter(unit: float) -> None:
    x, a, rng = _log(0, 2000)
    for share, is_found in ((np.where(x[:, 0] > 0, 0.5, 0.3), True), (0.4, False)):
        known = rng.random(2000) < share
        assert (dependence(x * np.float32(unit), a, known) is not None) == is_found


@pytest.mark.parametrize("known", [np.ones(5, bool), np.zeros(5, bool)], ids=["all", "none"])
def test_nothing_to_test(known: Any) -> None:
    assert dependence(np.zeros((5, 2)), np.zeros(5, int), known) is None


def test_a_model_that_does_not_fit_is_found() -> None:
    """P depends on |x₀|. A model that knows only its mean, or only the action, does not fit; the true one does."""
    x, a, rng = _log(0, 4000)
    truth = DEPENDS["absolute"](x, a)
    known = rng.random(4000) < truth
    assert dependence(x, a, known, probability=truth.astype(np.float32)) is None
    found = dependence(x, a, known, probability=np.full(4000, known.mean(), np.float32))
    assert found is not None
    assert found.startswith("the model of missingness does not predict which rows have feedback (test statistic ")


def test_false_alarms_on_a_true_model_are_rare() -> None:
    """1 % of 60 logs is 0.6; 5 or more have a probability of 0.0004. Probabilities are 0.02 and 0.6."""
    alarms = 0
    for seed in range(60):
        x, a, rng = _log(seed, 300)
        truth = np.where(x[:, 0] > 0, 0.6, 0.02).astype(np.float32)
        alarms += dependence(x, a, rng.random(300) < truth, None, seed, truth) is not None
    assert alarms < 5
