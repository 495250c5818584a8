"""Regressions with one map per action: against closed forms, a general optimizer, and their own limits."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.optimize import minimize

from s2bl_cli.reward_models.action_regression import fit_regressions, regression_rows

ROWS, FEATURES, ACTIONS = 300, 5, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, FEATURES))
ACTION = RNG.integers(0, ACTIONS - 1, ROWS)  # the last action is never logged
SCORE = RNG.standard_normal((ROWS, 1))
ETA = (X * RNG.standard_normal((ACTIONS, FEATURES))[ACTION]).sum(1) + 0.7 * SCORE[:, 0] - 0.3
REWARD = {True: (RNG.random(ROWS) < 1 / (1 + np.exp(-ETA))).astype(float), False: ETA + RNG.standard_normal(ROWS)}
SIZE = (ACTIONS + 1) * (FEATURES + 1) + 1


def _design() -> npt.NDArray[np.float64]:
    """The matrix of `predict`, written out: (rows, parameters)."""
    x = np.c_[X, np.ones(ROWS)]
    by_action = (np.eye(ACTIONS)[ACTION][:, :, None] * x[:, None]).reshape(ROWS, -1)
    return np.c_[by_action, x, SCORE]


def _fit(logistic: bool, weight: npt.NDArray[np.float64], penalty: list[float]) -> npt.NDArray[np.float64]:
    rows = regression_rows(torch.from_numpy(X), torch.from_numpy(SCORE), ACTION, ACTIONS)
    reward, weights = torch.from_numpy(REWARD[logistic][rows.order]), torch.from_numpy(weight[rows.order])
    parameters = fit_regressions(
        rows, reward, weights, torch.tensor(penalty, dtype=torch.float64), logistic=logistic, tolerance=1e-8
    )
    return parameters.numpy()


def _optimum(logistic: bool, weight: npt.NDArray[np.float64], penalty: float) -> npt.NDArray[np.float64]:
    design, reward = _design(), REWARD[logistic]
    ridge = np.r_[np.full(SIZE - 2, penalty), 0.0, 1e-3]

    def loss(parameters: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        eta = design @ parameters
        expected = 1 / (1 + np.exp(-eta)) if logistic else eta
        by_row = np.logaddexp(0, eta) - reward * eta if logistic else (eta - reward) ** 2 / 2
        gradient = design.T @ (weight * (expected - reward)) + ridge * parameters
        return weight @ by_row + ridge @ parameters**2 / 2, gradient

    options = {"maxiter": 10_000, "ftol": 1e-16, "gtol": 1e-10}
    return minimize(loss, np.zeros(SIZE), jac=True, method="L-BFGS-B", options=options).x


@pytest.mark.parametrize("logistic", [True, False])
def test_regressions_are_at_their_optimum(logistic: bool) -> None:
    """Several penalties at once, each with its own weights of the rows."""
    penalties = [0.3, 3.0, 300.0]
    weight = RNG.uniform(0.2, 2, (ROWS, 3))
    fitted = _design() @ _fit(logistic, weight, penalties)
    for column, penalty in enumerate(penalties):
        assert fitted[:, column] == pytest.approx(_design() @ _optimum(logistic, weight[:, column], penalty), abs=2e-4)


@pytest.mark.parametrize("logistic", [True, False])
def test_row_of_weight_0_is_not_seen(logistic: bool) -> None:
    seen = (np.arange(ROWS) % 3 > 0).astype(float)[:, None]
    before = _fit(logistic, seen, [1.0])
    kept = REWARD[logistic].copy()
    REWARD[logistic][::3] = 1 - REWARD[logistic][::3]
    after = _fit(logistic, seen, [1.0])
    REWARD[logistic][:] = kept
    assert np.array_equal(before, after)


@pytest.mark.parametrize("logistic", [True, False])
def test_regression_does_not_depend_on_those_fitted_beside_it(logistic: bool) -> None:
    """Three folds side by side. The rewards of a fold reach the regressions of the other folds, but not its own, to the
    bit: neither by their values nor by the number of steps."""
    fold = np.arange(ROWS) % 3
    weight = (fold[:, None] != np.arange(3)).astype(float)
    before = _fit(logistic, weight, [1.0] * 3)
    kept = REWARD[logistic].copy()
    REWARD[logistic][fold == 0] = np.where(X[fold == 0, 0] > 0, 0, 1)
    after = _fit(logistic, weight, [1.0] * 3)
    REWARD[logistic][:] = kept
    assert np.array_equal(before[:, 0], after[:, 0])
    assert not np.array_equal(before[:, 1], after[:, 1])


def test_without_penalty_a_logistic_regression_has_the_mean_of_its_rewards() -> None:
    """c is not penalised: its gradient, Σ (r − r̂), is 0."""
    parameters = _fit(True, np.ones((ROWS, 1)), [30.0])
    expected = 1 / (1 + np.exp(-_design() @ parameters[:, 0]))
    assert expected.mean() == pytest.approx(REWARD[True].mean(), abs=1e-8)


def test_large_penalty_leaves_the_score_and_the_mean() -> None:
    """θ and h are 0; c and s are the simple regression on the score."""
    parameters = _fit(False, np.ones((ROWS, 1)), [1e9])[:, 0]
    slope, level = np.polyfit(SCORE[:, 0], REWARD[False], 1)
    assert np.abs(parameters[:-2]).max() < 1e-4
    assert parameters[-2:] == pytest.approx([level, slope], rel=1e-4)


def test_action_that_was_never_logged_has_no_map_of_its_own() -> None:
    theta = _fit(True, np.ones((ROWS, 1)), [1.0])[: ACTIONS * (FEATURES + 1), 0].reshape(ACTIONS, -1)
    assert not theta[-1].any()
    assert theta[0].any()
