"""How long policies are trained: by steps or epochs, the defaults that suit a log, and what is said of the result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from learning_fixtures import arrays_of, blobs, train, train_all, train_settings, write_arrays

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.history import read_history
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.policies import NetworkSpec, read_policy
from s2bl_cli.errors import SettingError
from s2bl_cli.objectives.methods import GRADIENT_LEARNER, METHODS
from s2bl_cli.policies.optimizers import Adam
from s2bl_cli.training import data
from s2bl_cli.training.data import TrainingData
from s2bl_cli.training.diagnosis import findings
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.steps import Steps, default_lr, default_steps, settings_for, steps_of

COLUMNS = ("context", "action", "propensity", "cost", "split")
GRADIENT_METHODS = [name for name, method in METHODS.items() if method.learner == GRADIENT_LEARNER]


# --- counts ---


def test_steps_by_hand() -> None:
    """300 rows in batches of 128 are 2 steps per pass. 47 steps are 15 epochs of 3 and one of 2."""
    assert steps_of(train_settings(epochs=4), 300) == Steps(8, 2)
    assert steps_of(train_settings(epochs=4), 5) == Steps(4, 1)
    steps = steps_of(train_settings(steps=47), 300)
    assert (steps, steps.epochs) == (Steps(47, 3), 16)
    assert [steps.in_epoch(epoch) for epoch in range(16)] == [3] * 15 + [2]
    assert steps_of(train_settings(steps=3000), 10**9) == Steps(3000, 150)
    assert steps_of(train_settings(steps=0), 300).epochs == 0


def test_epochs_and_steps_exclude_each_other() -> None:
    with pytest.raises(SettingError, match="--epochs and --steps both set how long to train: drop one of them"):
        TrainSettings(epochs=1, steps=1)
    assert TrainSettings(preset="paper", steps=5).epochs is None


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """900 train rows in row groups of 50."""
    folder = tmp_path_factory.mktemp("steps")
    write_arrays(folder / "whole.parquet", blobs(rows=1000, known=0.4), 3)
    pq.write_table(pq.read_table(folder / "whole.parquet"), folder / "log.parquet", row_group_size=50)
    return folder / "log.parquet"


@pytest.mark.parametrize("stream", ["off", "on"])
@pytest.mark.parametrize("steps", [1, 7, 33, 1500])
def test_as_many_steps_are_taken_as_given(
    log_file: Path, monkeypatch: pytest.MonkeyPatch, steps: int, stream: str
) -> None:
    """An epoch of 1,500 steps has 75, more than the 28 batches of the log; the others have fewer. A part of the stream
    has 200 rows."""
    with open_logs([str(log_file)]) as log:
        monkeypatch.setattr(data, "PART_BYTES", 200 * data.row_bytes(log, COLUMNS))
    rates: list[float] = []
    real = Adam.step

    def step(self: Adam, lr: float) -> None:
        rates.append(lr)
        real(self, lr)

    monkeypatch.setattr(Adam, "step", step)
    (trained,) = train_all(log_file, epochs=None, steps=steps, lr=0.1, stream=stream)
    assert len(rates) == steps
    assert rates == sorted(rates, reverse=True)  # one cosine over all of them
    assert rates[0] == 0.1
    assert trained.policy.lineage.settings["steps"] == steps
    assert trained.policy.lineage.settings["epochs"] is None
    assert {epoch for epoch, _, _ in trained.curve} == set(range(1, min(steps, 20 if steps > 33 else 17) + 1))


def test_streamed_epoch_reads_only_what_it_uses(log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 steps of 32 rows need one part of 200 rows; one more is read ahead."""
    with open_logs([str(log_file)]) as log:
        monkeypatch.setattr(data, "PART_BYTES", 200 * data.row_bytes(log, COLUMNS))
    parts: list[int] = []
    real = TrainingData._read

    def read(self: TrainingData, row_groups: Any) -> Any:
        parts.append(len(row_groups))
        return real(self, row_groups)

    monkeypatch.setattr(TrainingData, "_read", read)
    train(log_file, epochs=None, steps=40, method="tips", stream="on")
    assert len(parts) <= 2 * 20 + 2  # of 5 parts per epoch; 2 to see whether the loss would still fall


# --- defaults ---


def _statistics(path: Path) -> data.Statistics:
    with open_logs([str(path)]) as log:
        return TrainingData(log, COLUMNS, streamed=False, sample_known=False).statistics


@pytest.mark.parametrize("method", GRADIENT_METHODS)
def test_rows_without_feedback_do_not_change_the_steps(tmp_path: Path, method: str) -> None:
    rows = blobs(rows=600, test_rows=0, known=0.25)
    few = rows.take(rows.known | (np.arange(600) < 40))
    spec = NetworkSpec("linear", ContextSpec("float32", (3,)), 3)
    resolved = [
        settings_for(TrainSettings(method=method), spec, _statistics(write_arrays(tmp_path / name, part, 3)))
        for name, part in (("all.parquet", rows), ("few.parquet", few))
    ]
    assert resolved[0].steps == resolved[1].steps
    assert (resolved[0].epochs, resolved[0].lr) == (None, 0.03)
    assert settings_for(resolved[0], spec, _statistics(tmp_path / "few.parquet")) == resolved[0]


def test_default_steps_by_hand() -> None:
    """Batches of 128: 10 passes over 64,000 known rows are 5,000 steps, and 20 over 2,560 are 400."""
    tips, k_variant = TrainSettings(method="tips"), TrainSettings(method="wce-s2blk")
    assert [default_steps(tips, known) for known in (0, 1200, 64_000)] == [2000, 2000, 5000]
    assert [default_steps(k_variant, known) for known in (5, 2560, 64_000)] == [200, 400, 5000]
    assert default_steps(TrainSettings(method="wce-s2bl"), 2560) == 1000
    assert default_steps(TrainSettings(method="b-crm"), 5) == 2000  # its regulariser sees no rows


def test_learning_rate_of_linear_policies_falls_with_the_features() -> None:
    specs = {
        (model, features): NetworkSpec(model, ContextSpec("float32", (features,)), 3, (4,) if model == "mlp" else ())
        for model in ("linear", "mlp")
        for features in (784, 49, 1)
    }
    rates = {name: default_lr(spec) for name, spec in specs.items()}
    assert [rates["linear", features] for features in (784, 49, 1)] == [0.001, 0.008, 0.03]
    assert {rates["mlp", features] for features in (784, 49, 1)} == {0.001}


def test_small_log_is_learned_by_default(run: Callable[..., Any], tmp_path: Path) -> None:
    """10 epochs would be 20 steps. The lineage records what followed from the log, and makes the same policy."""
    log = write_arrays(tmp_path / "log.parquet", blobs(rows=400, known=0.5), 3)
    assert run("train", log, "--method", "tips", "--history", "h.parquet", "-o", "p.safetensors").code == 0
    policy = read_policy("p.safetensors").policy
    logits = (blobs(rows=4000, seed=9).context - policy.tensors["shift"]) * policy.tensors["scale"]
    logits = logits @ policy.tensors["body.1.weight"].T + policy.tensors["body.1.bias"]
    pi = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    label = blobs(rows=4000, seed=9).label
    assert label is not None
    assert pi[np.arange(4000), label].mean() > 0.9
    settings = policy.lineage.settings
    assert (settings["steps"], settings["lr"], settings["epochs"]) == (2000, 0.03, None)
    assert policy.asked["steps"] == policy.asked["lr"] == "auto"
    assert set(read_history(["h.parquet"])[0]["epoch"].to_pylist()) == set(range(1, 21))
    again = run("train", log, "--method", "tips", "--steps", 2000, "--lr", 0.03, "-o", "again.safetensors")
    assert again.code == 0
    replayed = read_policy("again.safetensors").policy
    assert all(np.array_equal(replayed.tensors[name], policy.tensors[name]) for name in policy.tensors)
    assert "steps" not in replayed.asked


# --- what is said of the result ---


@pytest.mark.parametrize("method", ["tips", "banditnet", "wce-s2bl", "cce-s2bl", "kl-s2bl", "dr-s2bl", "dr"])
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_undertraining_follows_from_the_loss(tmp_path: Path, method: str, model: str) -> None:
    log = write_arrays(tmp_path / "log.parquet", blobs(rows=400, known=0.5), 3)
    short, long = (
        train_all(log, method=method, model=model, hidden="8", epochs=None, steps=steps, lr=lr)[0]
        for steps, lr in ((10, 0.003), (2000, 0.03))
    )
    assert [finding.text for finding in short.findings] == [
        "undertrained: the loss would still fall after 10 steps; raise --steps"
    ]
    assert not any(finding.text.startswith("undertrained") for finding in long.findings)


def test_untrained_policies_are_not_judged(tmp_path: Path) -> None:
    log = write_arrays(tmp_path / "log.parquet", blobs(rows=100, test_rows=0), 3)
    assert train_all(log, epochs=0)[0].findings == ()


def test_draws_far_below_the_likeliest_actions_are_reported() -> None:
    """Two actions at p = ½; one is always worth 1, the other 0. The policy takes the good one in 6 of 10 draws: SNIPS
    0.6 against 1, and the log's mean is 0.5."""
    reward = np.tile([1.0, 0.0], 50)
    sampled, likeliest = np.tile([1.2, 0.8], 50), np.tile([2.0, 0.0], 50)
    (finding,) = findings(reward, sampled, likeliest, np.ones(len(reward)), is_soft=True)
    assert finding == (
        "sampled actions are worth far less than argmax actions: 0.6 against 1 (SNIPS on the known train rows); "
        "consider --act auto or --act argmax",
        False,
    )
    assert not list(findings(reward, sampled, likeliest, np.ones(len(reward)), is_soft=False))
    assert not list(findings(reward, np.tile([1.9, 0.1], 50), likeliest, np.ones(len(reward)), is_soft=True))
    # Values of 0.4 and 0.5, but the log's mean is 0.6: neither is better than the log.
    poor = np.tile([1.0, 1.0, 1.0, 0.0, 0.0], 50), np.tile([1.0, 0.5, 0.5, 2.0, 1.0], 50)
    assert not list(findings(*poor, np.tile([2.0, 0.0, 0.0, 2.0, 0.0], 50), np.ones(250), is_soft=True))
    noisy = np.array([1.0, 0.0, 1.0, 1.0])  # four rows show nothing
    assert not list(findings(noisy, np.full(4, 1.0), np.array([2.0, 0.0, 2.0, 0.0]), np.ones(4), is_soft=True))


def test_banditnet_that_avoids_logged_actions_is_reported(run: Callable[..., Any], tmp_path: Path) -> None:
    """The logging policy takes the better of two actions in 9 of 10 draws, and a third one never. The context does not
    tell which is better. With baseline t an action's mean term is −½ − t: at the mean cost, t = −0.9, all that was
    logged is avoided. The remedy works."""
    rng = np.random.default_rng(0)
    better, is_hit = rng.integers(0, 2, 2000), rng.random(2000) < 0.9
    context = rng.standard_normal((2000, 2)).astype(np.float32)
    action, p = np.where(is_hit, better, 1 - better), np.where(is_hit, 0.9, 0.1)
    log = write_arrays(tmp_path / "log.parquet", arrays_of(context, action, p, -is_hit.astype(np.float32)), 3)
    collapsed = run("train", log, "--method", "banditnet", "--quiet", "-o", "p.safetensors")
    assert collapsed.stderr == (
        "warning: p.safetensors: avoids the logged actions: the mean weight of the known train rows is 0.00, not "
        "about 1; with --risk banditnet, search the translation with --translation auto --select ips\n"
    )
    remedy = ("--translation", "auto", "--select", "ips")
    searched = run("train", log, "--method", "banditnet", *remedy, "-o", "q.safetensors")
    assert len(searched.stderr.splitlines()) == 1


def test_policy_that_avoids_some_logged_actions_is_reported_if_it_is_worth_less() -> None:
    """Mean weight 0.6: the policy avoids two of five logged actions. If all have the same reward, it loses 0.4 of it;
    if it avoids the bad ones, it loses nothing. Two fifths of four rows show nothing."""
    ones, weight = np.ones(50), np.tile([1.0, 1.0, 1.0, 0.0, 0.0], 10)
    reward = np.tile([1.0, 1.0, 0.0, 1.0, 1.0], 10)
    (finding,) = findings(reward, weight, weight, ones, is_soft=True)
    assert finding.has_failed
    assert "mean weight of the known train rows is 0.60" in finding.text
    assert not list(findings(weight, weight, weight, ones, is_soft=True))
    assert not list(findings(reward[:5], weight[:5], weight[:5], ones[:5], is_soft=True))


def test_truncated_weights_of_the_logging_policy_are_no_failure() -> None:
    """3,000 equally likely actions and ν = 0.001: the logging policy itself has weights of p/ν = 1/3."""
    third = np.full(50, 1 / 3)
    assert not list(findings(np.tile([1.0, 0.0], 25), third, np.zeros(50), third, is_soft=True))
