"""Feedback that is missing by context and action: the warning of `train`, and the weights of --missing-model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning_fixtures import CPU, arrays_of, blobs, signalled_by, train, train_all, write_arrays

from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.contract.policies import Policy, read_policy
from s2bl_cli.training import data
from s2bl_cli.training.acting import _TERMS
from s2bl_cli.training.batches import rows_on_device
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import TrainingData, joined
from s2bl_cli.training.missing_feedback import fit_feedback_weights
from s2bl_cli.training.validation import SELECTORS_BY_NAME, HeldOut

COLUMNS = ("context", "action", "propensity", "cost", "split", "cluster")
WARNING = "which rows have feedback depends on context or action (test statistic "


def _selective(rows: int = 20_000, seed: int = 0) -> LogArrays:
    """Two actions, logged uniformly, with mean rewards of 0.5 and 0.65, known in 40 and 10 % of the rows."""
    rng = np.random.default_rng(seed)
    context, action = rng.standard_normal((rows, 3)).astype(np.float32), rng.integers(0, 2, rows)
    reward = rng.random(rows) < np.array([0.5, 0.65])[action]
    known = rng.random(rows) < np.array([0.4, 0.1])[action]
    return arrays_of(context, action, np.full(rows, 0.5), np.where(known, -reward.astype(float), np.nan))


@pytest.fixture(scope="module")
def selective(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arrays(tmp_path_factory.mktemp("selective") / "log.parquet", _selective(), 2)


def _data(log: Any, streamed: bool) -> TrainingData:
    found = TrainingData(log, COLUMNS, streamed=streamed, sample_known=True, contrast_rows=3000)
    found.weigh_known(fit_feedback_weights(found.take_contrast(), found.statistics, CPU))
    assert found.statistics.contrast.rows.rows.rows == 0
    return found


def _share_of_better(policy: Policy) -> float:
    context = _selective(1000, seed=9).context
    tensors = policy.tensors
    scaled = (context - tensors["shift"]) * tensors["scale"]
    return float(((scaled @ tensors["body.1.weight"].T + tensors["body.1.bias"]).argmax(axis=1) == 1).mean())


def test_weights_are_the_inverse_probabilities(tmp_path: Path) -> None:
    """1/0.4 and 1/0.1, from a sample that has about as many known rows as missing ones.

    The log has 80,000 rows: half of the 20,000 known ones are sampled, and a quarter of the 60,000 missing ones. The
    sampled rates of an action can be counted, and the mean weight follows them. The rates themselves vary: a logit has
    the standard error √(1/known + 1/missing), and ln(1/P) that times 1 − P. That is 0.6 √(1/8,000 + 1/6,000) = 1.0 %
    for action 0 and 0.9 √(1/2,000 + 1/9,000) = 2.2 % for action 1. The limits are four standard errors."""
    path = write_arrays(tmp_path / "log.parquet", _selective(80_000), 2)
    with open_logs([str(path)]) as log:
        found = TrainingData(log, COLUMNS, streamed=False, sample_known=False, contrast_rows=16_000)
        contrast = found.take_contrast()
        found.weigh_known(fit_feedback_weights(contrast, found.statistics, CPU))
    rows, weighted = contrast.rows.rows, found.statistics.known
    assert (contrast.known_share, contrast.missing_share) == pytest.approx((0.5, 0.25), abs=0.02)
    for a, truth, limit in ((0, 2.5, 0.041), (1, 10, 0.09)):
        known, missing = (int((rows.action[rows.known == is_known] == a).sum()) for is_known in (True, False))
        counted = 1 + (missing / contrast.missing_share) / (known / contrast.known_share)
        weight = weighted.o[weighted.action == a].mean()
        assert weight == pytest.approx(counted, rel=0.004)
        assert weight == pytest.approx(truth, rel=limit)


def test_weights_are_the_same_where_rows_are_streamed(selective: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the statistics and in the parts."""
    with open_logs([str(selective)]) as log:
        monkeypatch.setattr(data, "PART_BYTES", 5000 * data.row_bytes(log, COLUMNS))
        whole, streamed = (_data(log, is_streamed) for is_streamed in (False, True))
        known = whole.statistics.known
        assert (streamed.statistics.known.o == known.o).all()
        for rows in (whole, streamed):
            sample, parts = rows.statistics.sample, joined(list(rows.parts(0)))
            by_number = dict(zip(parts.number.tolist(), rows._weighed(parts).o, strict=True))
            assert sample.o == pytest.approx([by_number[number] for number in sample.number.tolist()])


def test_weights_have_a_mean_of_one_over_the_rows_of_a_fold(selective: Path) -> None:
    """In batches of known rows, and in batches of all rows, where a known row also counts N/n-fold."""
    with open_logs([str(selective)]) as log:
        found = _data(log, streamed=False)
        (part,) = found.parts(0)
        folds = [Fold(0), Fold(1, 0.0, 0.5)]
        rows = rows_on_device(part, folds, found.statistics, reg_on_known=True, device=CPU)
        assert rows.known_weight is not None
        for g, known in enumerate(rows.known):
            assert rows.known_weight[g][known].mean().item() == pytest.approx(1, rel=1e-4)
            assert rows.feedback_weight[g].mean().item() == pytest.approx(1, rel=1e-4)
        assert rows.regularised_weight is rows.known_weight
        # Of all rows, half have each action, unlike the known rows.
        weights = found.statistics.action_weight(folds[0], on_known=True)
        assert weights == pytest.approx([2, 2], rel=0.06)
        mean = found.mean_of_propensities(lambda p: p, folds[0], on_known=True)
        assert mean == pytest.approx(0.5)


@pytest.mark.parametrize("stream", ["off", "on"])
@pytest.mark.parametrize("method", ["tips", "wce-s2bl", "cce-s2bl", "q-learning", "dm", "dm-s2bl", "dr", "dr-s2bl"])
def test_the_better_action_is_chosen(selective: Path, method: str, stream: str) -> None:
    (trained,) = train_all(selective, method=method, epochs=6, lr=0.02, missing_model=True, stream=stream)
    assert _share_of_better(trained.policy) > 0.95
    assert trained.policy.lineage.settings["missing-model"] is True


@pytest.mark.parametrize("method", ["tips", "wce-s2bl", "cce-s2bl"])
def test_without_a_model_the_action_with_more_feedback_is_chosen(selective: Path, method: str) -> None:
    assert _share_of_better(train(selective, method=method, epochs=6, lr=0.02)) == 0


@pytest.mark.parametrize("sampling", ["paired", "mixed"])
def test_risk_is_that_of_all_rows(selective: Path, sampling: str) -> None:
    """With a learning rate of nearly 0, the policy is uniform: its risk is −(0.5 + 0.65)/2, and −(4·0.5 + 0.65)/5 if
    the known rows count equally."""
    for missing_model, value in ((True, -0.575), (False, -0.53)):
        (trained,) = train_all(
            selective, method="tips", sampling=sampling, epochs=1, lr=1e-9, missing_model=missing_model
        )
        (risk,) = [value for _, quantity, value in trained.curve if quantity == "risk"]
        assert risk == pytest.approx(value, abs=0.02)


@pytest.mark.parametrize("method", ["tips", "dm"])
@pytest.mark.parametrize("select", ["snips", "ips", "dr"])
def test_selectors_estimate_the_value_on_all_rows(tmp_path: Path, method: str, select: str) -> None:
    """Contexts of the second kind have a reward of 0.9 instead of 0.3, whatever the action, and are known four times as
    often. Every policy has a value of 0.6; the mean of the known rewards is 0.78."""
    rng = np.random.default_rng(0)
    kind, action = rng.integers(0, 2, 8000), rng.integers(0, 2, 8000)
    cost = -(rng.random(8000) < np.array([0.3, 0.9])[kind]).astype(float)
    cost = np.where(rng.random(8000) < np.array([0.1, 0.4])[kind], cost, np.nan)
    context = np.stack([kind, 1 - kind], axis=1).astype(np.float32)
    log = write_arrays(tmp_path / "log.parquet", arrays_of(context, action, np.full(8000, 0.5), cost), 2)
    settings: dict[str, Any] = {"method": method, "epochs": 0, "select": select, "folds": 3}
    settings |= {"penalty": "10,100"} if method == "dm" else {"nu": "0,0.001"}
    usual, weighted = (train_all(log, **settings, missing_model=m)[0].estimate for m in (False, True))
    assert usual == pytest.approx(0.78, abs=0.04)
    assert weighted == pytest.approx(0.6, abs=0.04)


def test_acts_are_chosen_by_the_value_on_all_rows() -> None:
    """Two rows of reward 1 and weight 1, two of reward 0: with o, the first count three times as much."""
    held_out = HeldOut(np.ones(4), np.array([-1.0, -1, 0, 0]), np.zeros(4), np.zeros(4), np.array([3.0, 3, 1, 1]))
    for name in ("snips", "ips", "dr"):
        assert _TERMS[name](held_out).estimate.value == pytest.approx(0.75)
        assert SELECTORS_BY_NAME[name](np.stack(held_out)) == pytest.approx(0.75)


# --- the command ---


def test_train_warns_and_says_what_to_type(run: Callable[..., Any], selective: Path) -> None:
    words = ("train", selective, "--method", "tips", "--epochs", 1, "--quiet", "--force", "-o", "p.safetensors")
    ran = run(*words)
    assert ran.code == 0
    assert ran.stderr.startswith(f"warning: {selective}: {WARNING}")
    assert ran.stderr.endswith(": policies may prefer actions with more feedback; use --missing-model\n")
    assert ran.stderr.count("\n") == 1
    ran = run(*words, "--missing-model")
    assert (ran.code, ran.stderr) == (0, "")


def test_train_warns_if_the_model_of_missingness_does_not_fit(run: Callable[..., Any], tmp_path: Path) -> None:
    """Feedback depends on the sign of x₀·x₁, which no model of missingness follows."""
    rng = np.random.default_rng(2)
    context, action = rng.standard_normal((20_000, 4)).astype(np.float32), rng.integers(0, 2, 20_000)
    known = rng.random(20_000) < np.where(context[:, 0] * context[:, 1] > 0, 0.9, 0.1)
    cost = np.where(known, -(rng.random(20_000) < 0.5).astype(float), np.nan)
    log = write_arrays(tmp_path / "log.parquet", arrays_of(context, action, np.full(20_000, 0.5), cost), 2)
    ran = run("train", log, "--method", "tips", "--epochs", 0, "--missing-model", "--quiet", "-o", "p.safetensors")
    assert ran.code == 0
    assert "the model of missingness does not predict which rows have feedback" in ran.stderr
    assert "policies may still prefer actions with more feedback\n" in ran.stderr


@pytest.mark.parametrize("method", ["tips", "wce-only"])
def test_no_warning_if_feedback_is_missing_at_random_or_not_used(
    run: Callable[..., Any], tmp_path: Path, selective: Path, method: str
) -> None:
    log = write_arrays(tmp_path / "log.parquet", blobs(known=0.3), 3) if method == "tips" else selective
    ran = run("train", log, "--method", method, "--epochs", 1, "--quiet", "-o", "p.safetensors")
    assert (ran.code, ran.stderr) == (0, "")


@pytest.mark.parametrize(("sign", "side"), [(1.0, "above"), (-1.0, "below")])
def test_train_warns_if_only_some_outcomes_seem_to_have_been_reported(
    run: Callable[..., Any], tmp_path: Path, sign: float, side: str
) -> None:
    """Half of the rows have a reward of 1 or 2, or a fine; the others none. The gain of auto is then unreliable."""
    rng = np.random.default_rng(0)
    context, action = rng.standard_normal((2000, 2)).astype(np.float32), rng.integers(0, 2, 2000)
    cost = np.where(rng.random(2000) < 0.5, -sign * (1.0 + action), np.nan)
    path = write_arrays(tmp_path / "log.parquet", arrays_of(context, action, np.full(2000, 0.5), cost), 2)
    known = int((~np.isnan(cost)).sum())
    warning = f"all {known:,} known rewards are {side} 0, and {2000 - known:,} are missing: if a missing reward means 0"
    for words in (("--method", "tips"), ("--candidates", "dm,tips")):
        ran = run("train", path, *words, "--epochs", 1, "--force", "-o", "p.safetensors")
        assert (ran.code, ran.stderr.count(warning)) == (0, 1)
        is_auto = "--candidates" in words
        assert ran.stderr.endswith("; unreliable: feedback seems to be missing selectively\n") == is_auto
        declared = "0.5,3" if sign > 0 else "-3,-0.5"
        assert warning not in run("train", path, *words, "--epochs", 1, "--reward-range", declared, "-o", "q").stderr


def test_nothing_to_model(tmp_path: Path) -> None:
    """All feedback is known: the policy is the same with a model of missingness."""
    log = write_arrays(tmp_path / "log.parquet", blobs(test_rows=0), 3)
    usual, weighted = (train(log, method="tips", missing_model=m).tensors for m in (False, True))
    assert all((usual[name] == weighted[name]).all() for name in usual)


def test_a_method_without_feedback_has_no_use_for_a_model_of_missingness(run: Callable[..., Any]) -> None:
    ran = run("train", "log.parquet", "--method", "wce-only", "--missing-model")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: --missing-model weights rows with feedback, which wce-only does not use: drop it\n",
    )


def test_a_stopped_run_with_a_model_of_missingness_goes_on_as_if_never_stopped(
    run: Callable[..., Any], tmp_path: Path, selective: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", selective, "--missing-model", "--epochs", 2, "--quiet")
    assert run(*words, "-o", "whole.safetensors").code == 0
    asked = iter(range(10_000))
    with monkeypatch.context() as patch:
        signalled_by(patch, lambda: next(asked) == 100)
        assert run(*words, "-o", "stopped.safetensors").code == 143
    assert run(*words, "-o", "stopped.safetensors", "--resume").code == 0
    whole, stopped = (read_policy(str(tmp_path / f"{name}.safetensors")).policy for name in ("whole", "stopped"))
    assert all((whole.tensors[name] == stopped.tensors[name]).all() for name in whole.tensors)
