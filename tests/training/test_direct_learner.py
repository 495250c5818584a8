"""The direct method: a regression of the rewards, with a copy of the logging policy or without."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.policies import Policy
from s2bl_cli.policies.network import PolicyNetwork, network_from
from s2bl_cli.reward_models.action_regression import RegressionRows
from s2bl_cli.training import direct_learner
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import TrainingData
from s2bl_cli.training.direct_learner import DirectLearner
from s2bl_cli.training.direct_models import Choice, DirectModel, Floats, parts_of
from s2bl_cli.training.learner import Run
from s2bl_cli.training.regression_choice import PENALTIES
from s2bl_cli.training.run import TrainingRun
from s2bl_cli.training.settings import TrainSettings
from tests.learning_fixtures import CPU, arrays_of, blobs, train, train_all, write_arrays

FEATURES, ACTIONS = 6, 8


def _log(lean: float, known: int, *, rows: int = 4000, seed: int = 0) -> tuple[LogArrays, npt.NDArray[np.float64]]:
    """Clicks with a rate that is linear in the context on the logit scale, and the true rates of all rows. The logging
    policy leans to good actions by so much; `known` rows have feedback."""
    rng = np.random.default_rng(seed)
    context = rng.standard_normal((rows, FEATURES)).astype(np.float32)
    score = context @ rng.standard_normal((FEATURES, ACTIONS))
    rate = 1 / (1 + np.exp(1 - score))
    pi0 = np.exp(lean * score)
    pi0 /= pi0.sum(1, keepdims=True)
    action = (pi0.cumsum(1) < rng.random((rows, 1))).sum(1).clip(max=ACTIONS - 1)
    logged = np.arange(rows), action
    cost = np.where(np.arange(rows) < known, -(rng.random(rows) < rate[logged]).astype(float), np.nan)
    return arrays_of(context, action, pi0[logged], cost), rate


def _chosen(policy: Policy, context: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    import torch

    network = network_from(policy.network, policy.tensors, "policy")
    return network(torch.from_numpy(context)).argmax(1).numpy()


def _gain(policy: Policy, rows: LogArrays, rate: npt.NDArray[np.float64]) -> float:
    """The share of the way from the logged actions to the best ones."""
    index = np.arange(rows.rows)
    logged, best = rate[index, rows.action].mean(), rate.max(1).mean()
    return float((rate[index, _chosen(policy, rows.context)].mean() - logged) / (best - logged))


@pytest.mark.parametrize(("lean", "least"), [(1.5, 0.7), (-1.5, 0.9), (0.0, 0.2)])
def test_copy_of_the_logging_policy_helps_whether_it_is_good_or_adverse(
    tmp_path: Path, lean: float, least: float
) -> None:
    """With 80 known rows the regression alone knows little. What the logging policy knows is in all 4,000."""
    rows, rate = _log(lean, 80)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    gains = {method: _gain(train(path, method=method), rows, rate) for method in ("dm-s2bl", "dm")}
    assert gains["dm-s2bl"] > least
    assert gains["dm-s2bl"] > gains["dm"] - (0.05 if lean == 0 else -0.3)


@pytest.mark.parametrize(("lean", "linear", "mlp"), [(1.5, 0, 0), (0.0, 0.5, 0.5), (-1.5, 1, 0.5)])
def test_copy_matches_the_actions_best_that_the_logging_policy_is_right_about(
    tmp_path: Path, lean: float, linear: float, mlp: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frequent actions (β = 0) if the logging policy is good, rare ones (β = 1) if it is adverse."""
    rows, _ = _log(lean, 2000)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    used: list[float] = []
    copy = DirectLearner._copy

    def watched(self: DirectLearner, data: TrainingData, seed: int, balance: float, run: Run) -> PolicyNetwork:
        used.append(balance)
        return copy(self, data, seed, balance, run)

    monkeypatch.setattr(DirectLearner, "_copy", watched)
    for model in ("linear", "mlp"):
        train(path, method="dm-s2bl", model=model)
    assert used == [linear, mlp]


def test_copy_matches_all_actions_if_the_log_stores_their_probabilities(tmp_path: Path) -> None:
    """Of few rows, the probabilities of all actions say more than those of the logged ones."""
    rows, rate = _log(1.5, 40)
    pi0 = np.exp(1.5 * (np.log(rate / (1 - rate)) + 1))
    stored = replace(rows, pi0=(pi0 / pi0.sum(1, keepdims=True)).astype(np.float32))
    few, gains = np.arange(rows.rows) < 80, []
    for name, log in (("bare", rows), ("stored", stored)):
        path = write_arrays(tmp_path / f"{name}.parquet", log.take(few), ACTIONS)
        gains.append(_gain(train(path, method="dm-s2bl"), rows, rate))
    assert gains[1] > gains[0] + 0.2


def test_reward_model_needs_no_copy_if_there_is_much_feedback(tmp_path: Path) -> None:
    rows, rate = _log(0.0, 4000)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    assert _gain(train(path, method="dm"), rows, rate) > 0.9


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_penalty_of_many_rows_is_chosen_on_a_part_and_fitted_on_all(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit on the 100 rows of the part alone would gain far less."""
    rows, rate = _log(0.0, 4000)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    compared: list[int] = []
    choose = direct_learner.choose_by_loss

    def counted(part: RegressionRows, *words: Any) -> tuple[Choice, Floats]:
        compared.append(len(part.order))
        return choose(part, *words)

    monkeypatch.setattr(direct_learner, "choose_by_loss", counted)
    monkeypatch.setattr(direct_learner, "_LEAST_COMPARED", 100)
    monkeypatch.setattr(direct_learner, "_MOST_COMPARED", 100)
    assert _gain(train(path, method="dm", model=model), rows, rate) > 0.8
    assert compared == [100]


@pytest.mark.parametrize("method", ["dm-s2bl", "dm", "dr-s2bl", "dr"])
@pytest.mark.parametrize("graded", [False, True])
def test_policy_does_not_depend_on_the_unit_of_the_rewards(tmp_path: Path, method: str, graded: bool) -> None:
    rows, _ = _log(0.5, 500)
    cost = rows.cost - graded * np.linspace(0, 0.5, rows.rows, dtype=np.float32)
    policies = [
        train(write_arrays(tmp_path / f"{i}.parquet", replace(rows, cost=scaled), ACTIONS), method=method)
        for i, scaled in enumerate((cost, 40 * cost + 8))
    ]
    first, second = (policy.tensors["body.1.weight"] for policy in policies)
    assert np.abs(first - second).max() < (1e-3 if method.startswith("dr") else 1e-5) * np.abs(first).max()


@pytest.mark.parametrize("method", ["dm-s2bl", "dm"])
def test_held_out_feedback_is_not_learned_from(tmp_path: Path, method: str) -> None:
    """The rewards of rows that are held out are turned round: the policies stay the same, to the last bit, and their
    predictions too. If they were seen, both would change."""
    rows, _ = _log(0.5, 600)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    settings: dict[str, Any] = {"method": method, "penalty": "10,1000", "select": "snips", "holdout": 0.3}
    (trained,) = train_all(path, **settings)
    held = rows.known & trained.candidate.fold.holds_out(np.arange(rows.rows))
    assert 100 < held.sum() < 300
    turned = replace(rows, cost=np.where(held, -1 - rows.cost, rows.cost))
    for penalty in ("10", "1000"):
        plain = {"method": method, "penalty": penalty, "holdout": 0.3}
        seen = [train(write_arrays(tmp_path / "part.parquet", part, ACTIONS), **plain) for part in (rows, turned)]
        assert all(np.array_equal(seen[0].tensors[name], seen[1].tensors[name]) for name in seen[0].tensors)


def test_penalty_is_selected_from_the_grid(tmp_path: Path) -> None:
    """auto is one of the penalties; a policy of that penalty alone is the same."""
    rows, _ = _log(0.5, 400)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    chosen = train(path, method="dm-s2bl").tensors["body.1.weight"]
    given = [train(path, method="dm-s2bl", penalty=f"{alpha:g}").tensors["body.1.weight"] for alpha in PENALTIES]
    assert sum(np.array_equal(chosen, weight) for weight in given) == 1


def test_image_network_keeps_its_body_and_gets_another_last_layer(tmp_path: Path) -> None:
    rows = blobs(300, known=0.3, test_rows=0)
    rows = replace(rows, context=rows.context.reshape(300, 1, 1, 3))
    path = write_arrays(tmp_path / "log.parquet", rows, 3)
    settings: dict[str, Any] = {"model": "resnet-v1", "width": 2, "epochs": 2}
    policies = [train(path, method="dm-s2bl", penalty=penalty, **settings) for penalty in ("1", "100")]
    same = [np.array_equal(policies[0].tensors[name], policies[1].tensors[name]) for name in policies[0].tensors]
    assert same.count(False) == 2


def _bent(known: int) -> tuple[LogArrays, npt.NDArray[np.float64]]:
    """The reward is |x₀| for the first action, else a constant. The logging policy knows nothing of it."""
    rng = np.random.default_rng(0)
    context = rng.standard_normal((1500, 3)).astype(np.float32)
    rate = np.stack([np.minimum(np.abs(context[:, 0]), 2) / 2, np.full(1500, 0.4)], axis=1).astype(np.float64)
    pi0 = np.stack([p := 1 / (1 + np.exp(-context[:, 1])), 1 - p], axis=1)
    action = (rng.random(1500) > pi0[:, 0]).astype(int)
    logged = np.arange(1500), action
    cost = np.where(np.arange(1500) < known, -(rng.random(1500) < rate[logged]).astype(float), np.nan)
    return arrays_of(context, action, pi0[logged], cost), rate


@pytest.mark.parametrize("method", ["dm-s2bl", "dm"])
def test_mlp_learns_rewards_that_the_logging_policy_knows_nothing_of(tmp_path: Path, method: str) -> None:
    """Features of the copy do not predict |x₀|: units that are fitted to the rewards do."""
    rows, rate = _bent(known=1000)
    path = write_arrays(tmp_path / "log.parquet", rows, 2)
    policy = train(path, method=method, model="mlp", hidden="16,8", epochs=2)
    assert policy.network.hidden == ((32, 16) if method == "dm-s2bl" else (16, 8))
    assert _gain(policy, rows, rate) > 0.7


def test_mlp_with_few_known_rows_has_the_copy_decide(tmp_path: Path) -> None:
    rows, rate = _log(-1.5, 80)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    assert _gain(train(path, method="dm-s2bl", model="mlp", hidden="16"), rows, rate) > 0.7


@pytest.mark.parametrize("hidden", ["16", "16,8"])
def test_logits_of_an_mlp_are_the_predicted_rewards(tmp_path: Path, hidden: str) -> None:
    """Rewards that are expected of the held-out rows and the policy file come from one model: the policy's likeliest
    action is the one whose rewards the held-out columns have."""
    for rows, actions in ((_bent(known=1000)[0], 2), (_log(1.5, 80)[0], ACTIONS)):
        path = write_arrays(tmp_path / "log.parquet", rows, actions)
        (trained,) = train_all(path, method="dm-s2bl", model="mlp", hidden=hidden, penalty="3,4", select="snips")
        held = rows.known & trained.candidate.fold.holds_out(np.arange(rows.rows))
        is_chosen = _chosen(trained.policy, rows.context[held]) == rows.action[held]
        reward, weight = -rows.cost[held], is_chosen / rows.propensity[held]
        assert trained.estimate == pytest.approx((weight * reward).sum() / weight.sum(), rel=1e-4)


def test_equal_rewards_leave_what_the_logging_policy_prefers_undecided(tmp_path: Path) -> None:
    """No reward differs: the regression is 0, and no action is better than another."""
    rows, _ = _log(0.5, 200)
    rows = replace(rows, cost=np.full(rows.rows, -1, np.float32))
    policy = train(write_arrays(tmp_path / "log.parquet", rows, ACTIONS), method="dm-s2bl")
    assert np.abs(policy.tensors["body.1.weight"]).max() < 1e-3


def test_direct_method_is_streamed_selected_and_reported(run: Callable[..., Any], tmp_path: Path) -> None:
    rows, _ = _log(0.5, 800)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    words = ("train", path, "--method", "dm-s2bl", "--penalty", "10,1e6", "--select", "snips", "--folds", 3)
    for stream in ("off", "on"):
        ran = run(*words, "--stream", stream, "--seeds", "0,1", "--force", "-o", f"{stream}/")
        assert ran.code == 0, ran.stderr
        assert "selected by snips" in ran.stderr


def _cost_model(path: Path, method: str, fold: Fold) -> tuple[DirectModel, TrainingData]:
    settings = TrainSettings(method=method)
    with open_logs([str(path)]) as log:
        training = TrainingRun(log, settings)
        data, run = training.data(None), Run(CPU)
        learner = DirectLearner(settings, training.spec, uses_copy=method == "dr-s2bl")
        return learner.cost_model(data, fold, run), data


@pytest.mark.parametrize("method", ["dr-s2bl", "dr"])
def test_expected_cost_of_a_row_does_not_depend_on_its_own_feedback(tmp_path: Path, method: str) -> None:
    """A known row is predicted by the head that has not learned from its part, others by the head of all rows."""
    rows, _ = _log(0.5, 600)
    model, data = _cost_model(write_arrays(tmp_path / "log.parquet", rows, ACTIONS), method, Fold(0))
    (train_rows,) = data.scan()
    part = parts_of(train_rows.number, 0)
    before = model(train_rows)
    all_rows = replace(model, heads=[model.heads[-1]] * len(model.heads))(train_rows)
    held = rows.known & (part == 2)
    by_hand = replace(model, heads=[model.heads[2]] * len(model.heads))(train_rows)
    assert np.array_equal(before[held], by_hand[held])
    assert np.array_equal(before[~rows.known], all_rows[~rows.known])
    assert not np.allclose(before[held], all_rows[held])


def test_doubly_robust_without_correction_takes_the_best_action_of_the_reward_model(tmp_path: Path) -> None:
    rows, _ = _log(0.5, 2000)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    direct = _chosen(train(path, method="dm-s2bl"), rows.context)
    robust = _chosen(train(path, method="dr-s2bl", correction="0", epochs=60, lr=0.03), rows.context)
    assert (direct == robust).mean() > 0.9


def test_correction_repairs_a_reward_model_that_cannot_learn_the_reward(tmp_path: Path) -> None:
    """With all feedback known, an mlp policy finds |x₀| by the residuals of a linear reward model."""
    rows, rate = _bent(known=1500)
    path = write_arrays(tmp_path / "log.parquet", rows, 2)
    settings: dict[str, Any] = {"method": "dr-s2bl", "model": "mlp", "hidden": "16", "epochs": 60, "lr": 0.01}
    gains = [_gain(train(path, correction=weight, **settings), rows, rate) for weight in ("0", "1")]
    assert gains[1] > gains[0] + 0.3


@pytest.mark.parametrize("method", ["dr-s2bl", "dr"])
def test_doubly_robust_learner_streams_and_selects(run: Callable[..., Any], tmp_path: Path, method: str) -> None:
    rows, _ = _log(0.5, 800)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    words = ("train", path, "--method", method, "--correction", "0,1", "--select", "dr", "--folds", 2, "--epochs", 2)
    for stream in ("off", "on"):
        ran = run(*words, "--stream", stream, "--force", "-o", f"{stream}.safetensors")
        assert ran.code == 0, ran.stderr
        assert "selected by dr" in ran.stderr
