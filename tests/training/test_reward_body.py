"""Image networks: the body is that of a copy of the logging policy or, if there is nothing to copy, fitted to the
rewards."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.policies import Policy
from s2bl_cli.policies.network import network_from
from s2bl_cli.training import regression_choice, reward_body
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.direct_learner import DirectLearner
from s2bl_cli.training.gradient_learner import start_network
from s2bl_cli.training.learner import Run
from s2bl_cli.training.regression_choice import PENALTIES
from s2bl_cli.training.reward_body import propensities_follow_context
from s2bl_cli.training.run import TrainingRun
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.value_choice import Floats, LoggedRows, Predicted
from tests.learning_fixtures import CPU, arrays_of, signalled_by, train, train_all, train_settings, write_arrays

ACTIONS = 3
SMALL: dict[str, Any] = {"model": "resnet-v1", "width": 4, "lr": 0.01}


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_body, "_LEAST_STEPS", 50)


def _images(kind: str, *, rows: int = 800, known: float = 0.5) -> LogArrays:
    """Noisy images of 8 × 8 pixels with a bright bar in one of three places, which is the right action. Propensities
    are uniform, random, those of a good policy or those of an adverse one."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, ACTIONS, rows)
    context = rng.normal(0, 0.3, (rows, 1, 8, 8)).astype(np.float32)
    for place in range(ACTIONS):
        context[label == place, :, :, 2 * place : 2 * place + 2] += 1
    lean = {"good": 2.0, "adverse": -2.0}.get(kind, 0.0)
    logits = lean * np.eye(ACTIONS)[label] + (kind == "random") * rng.normal(0, 2, (rows, ACTIONS))
    pi0 = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    action = (pi0.cumsum(1) < rng.random((rows, 1))).sum(1).clip(max=ACTIONS - 1)
    cost = np.where(rng.random(rows) < known, -(action == label).astype(float), np.nan)
    return arrays_of(context, action, pi0[np.arange(rows), action], cost, label=label)


def _accuracy(policy: Policy, rows: LogArrays) -> float:
    network = network_from(policy.network, policy.tensors, "policy").eval()
    with torch.no_grad():
        return float((network(torch.from_numpy(rows.context)).argmax(1).numpy() == rows.label).mean())


@pytest.mark.parametrize(
    ("kind", "follows"), [("uniform", False), ("random", False), ("good", True), ("adverse", True)]
)
def test_propensities_that_follow_the_context_are_recognised(tmp_path: Path, kind: str, follows: bool) -> None:
    path = write_arrays(tmp_path / "log.parquet", _images(kind), ACTIONS)
    with open_logs([str(path)]) as log:
        training = TrainingRun(log, TrainSettings(method="dm-s2bl", model="resnet-v1", width=4))
        data = training.data(None)
        start = start_network(training.spec, data, 0, Run(CPU))
        assert propensities_follow_context(data, start, CPU) == follows


@pytest.mark.parametrize(
    ("method", "kind", "known"), [("dm-s2bl", "uniform", 0.05), ("dm-s2bl", "random", 0.05), ("dm", "good", 0.5)]
)
def test_body_is_fitted_to_the_rewards_if_there_is_nothing_to_copy(
    tmp_path: Path, method: str, kind: str, known: float
) -> None:
    """40 rewards are too few for the features of a copy of random propensities: it is right in 77 %."""
    rows = _images(kind, known=known)
    policy = train(write_arrays(tmp_path / "log.parquet", rows, ACTIONS), method=method, epochs=5, **SMALL)
    assert _accuracy(policy, rows) > 0.9


@pytest.mark.parametrize("kind", ["good", "adverse"])
def test_few_rewards_decide_what_the_copied_body_is_worth(tmp_path: Path, kind: str) -> None:
    rows = _images(kind, known=0.15)
    policy = train(write_arrays(tmp_path / "log.parquet", rows, ACTIONS), method="dm-s2bl", epochs=5, **SMALL)
    assert _accuracy(policy, rows) > 0.9


@pytest.mark.parametrize(("kind", "features"), [("uniform", 8 * 8), ("good", 8 * 4)])
def test_reward_model_of_a_doubly_robust_network_is_linear_if_there_is_nothing_to_copy(
    tmp_path: Path, kind: str, features: int
) -> None:
    """Linear in the pixels, or in the features of the copy."""
    path = write_arrays(tmp_path / "log.parquet", _images(kind, rows=300), ACTIONS)
    settings = train_settings(method="dr-s2bl", epochs=1, **SMALL)
    with open_logs([str(path)]) as log:
        training = TrainingRun(log, settings)
        learner = DirectLearner(settings, training.spec, uses_copy=True)
        model = learner.cost_model(training.data(None), Fold(0), Run(CPU))
    assert {head.theta.shape for head in model.heads} == {(ACTIONS, features + 1)}


def test_loss_decides_among_the_heads_whose_values_are_near_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third and the eighth penalty are near, with the copy: the policy is the one of that penalty alone."""
    path = write_arrays(tmp_path / "log.parquet", _images("good", rows=300, known=0.3), ACTIONS)
    losses: list[float] = []

    def two_are_near(models: Sequence[Predicted], expected: Floats, rows: LoggedRows) -> list[int]:
        losses.extend(model.loss.sum() for model in models)
        return [2, 7]

    monkeypatch.setattr(regression_choice, "near_the_best", two_are_near)
    chosen = train(path, method="dm-s2bl", epochs=1, **SMALL)
    better = min((2, 7), key=losses.__getitem__)
    assert better != int(np.argmin(losses))
    monkeypatch.setattr(regression_choice, "near_the_best", lambda models, expected, rows: [0])
    alone = train(path, method="dm-s2bl", penalty=f"{PENALTIES[better]:g}", epochs=1, **SMALL)
    assert all(np.array_equal(chosen.tensors[name], alone.tensors[name]) for name in chosen.tensors)


@pytest.mark.parametrize("method", ["dm-s2bl", "dm"])
def test_body_has_not_seen_feedback_that_is_held_out(tmp_path: Path, method: str) -> None:
    """The rewards of held-out rows are turned round, and the policy stays the same to the last bit."""
    rows = _images("uniform", rows=300)
    path = write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    settings: dict[str, Any] = {"method": method, "penalty": "1,10", "select": "snips", "holdout": 0.3, **SMALL}
    (trained,) = train_all(path, **settings, epochs=1)
    held = rows.known & trained.candidate.fold.holds_out(np.arange(rows.rows))
    assert 20 < held.sum() < 90
    turned = replace(rows, cost=np.where(held, -1 - rows.cost, rows.cost))
    plain = {**settings, "penalty": "1", "select": None, "epochs": 1}
    policies = [train(write_arrays(tmp_path / "part.parquet", part, ACTIONS), **plain) for part in (rows, turned)]
    assert all(np.array_equal(policies[0].tensors[name], policies[1].tensors[name]) for name in policies[0].tensors)


def test_stopped_while_the_body_is_fitted_and_resumed(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_arrays(tmp_path / "log.parquet", _images("uniform", rows=300), ACTIONS)
    words = (
        "train",
        path,
        "--method",
        "dm-s2bl",
        "--model",
        "resnet-v1",
        "--width",
        4,
        "--epochs",
        4,
        "--batch-size",
        32,
    )
    assert run(*words, "-o", tmp_path / "whole.safetensors").code == 0
    with monkeypatch.context() as patch:
        steps = iter(range(1000))
        signalled_by(patch, lambda: next(steps) == 20)
        stopped = run(*words, "-o", tmp_path / "part.safetensors")
    assert stopped.code == 143, stopped.stderr
    resumed = run(*words, "--resume", "-o", tmp_path / "part.safetensors")
    assert resumed.code == 0
    assert "resuming" in resumed.stderr
    first, second = ((tmp_path / f"{name}.safetensors").read_bytes() for name in ("whole", "part"))
    assert first == second
