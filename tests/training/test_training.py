"""Training: what it reads and what it must not, what its settings mean, and how it ends."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning_fixtures import (
    CPU,
    arrays_of,
    blobs,
    default_device_elsewhere,
    train,
    train_all,
    train_settings,
    write_arrays,
)

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.contract.policies import NetworkSpec, Policy, read_policy, write_policy
from s2bl_cli.errors import ContractError, RunError, SettingError
from s2bl_cli.objectives.methods import DEFAULT_METHOD, GRADIENT_LEARNER, METHODS
from s2bl_cli.policies.network import build_network, network_from
from s2bl_cli.policies.single import SinglePolicy
from s2bl_cli.policies.stacked import StackedPolicies
from s2bl_cli.policies.trainable import TrainablePolicies
from s2bl_cli.training.batches import Rows, rows_on_device, sample
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import TrainRows, count_rows
from s2bl_cli.training.learner import Run
from s2bl_cli.training.loop import Metrics, TrainState
from s2bl_cli.training.settings import TrainSettings

ACTIONS = 3


def _log(path: Path, arrays: LogArrays) -> Path:
    return write_arrays(path, arrays, ACTIONS)


def _same(one: Policy, other: Policy) -> bool:
    assert one.tensors.keys() == other.tensors.keys()
    return all(np.array_equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def _close(one: Policy, other: Policy) -> bool:
    """The same numbers but for float rounding."""
    return all(np.allclose(one.tensors[name], other.tensors[name], rtol=1e-4, atol=1e-5) for name in one.tensors)


def _policy_bytes(policy: Policy, folder: Path, log: Path) -> bytes:
    """The policy's file, the digest of its log blanked: another log has another digest."""
    write_policy(policy, str(folder / "p.safetensors"), force=True)
    with open_logs([str(log)]) as opened:
        digest = opened.sha256.encode()
    content = (folder / "p.safetensors").read_bytes()
    assert digest in content
    return content.replace(digest, b"0" * 64)


def _accuracy(policy: Policy, rows: LogArrays) -> float:
    """The expected share of right draws."""
    with torch.no_grad():
        logits = network_from(policy.network, policy.tensors, "policy")(torch.from_numpy(rows.context))
    assert rows.label is not None
    return float(torch.softmax(logits, dim=1).numpy()[np.arange(rows.rows), rows.label].mean())


# --- what it reads ---


@pytest.mark.parametrize("method", METHODS)
def test_labels_are_never_read(tmp_path: Path, method: str) -> None:
    rows = blobs(known=0.5)
    assert rows.label is not None
    logs = {
        "true": _log(tmp_path / "true.parquet", rows),
        "scrambled": _log(tmp_path / "scrambled.parquet", replace(rows, label=(rows.label + 1) % ACTIONS)),
        "nonsense": _log(tmp_path / "nonsense.parquet", replace(rows, label=rows.label + 99)),
        "none": _log(tmp_path / "none.parquet", replace(rows, label=None)),
    }
    files = {_policy_bytes(train(path, method=method), tmp_path, path) for path in logs.values()}
    assert len(files) == 1


def test_test_rows_are_not_learned_from(tmp_path: Path) -> None:
    """Their contexts count neither for the standardisation nor for the counts of actions."""
    rows = blobs(known=0.5)
    other = blobs(known=0.5, seed=99)
    train_rows = ~rows.is_test
    changed = arrays_of(
        np.where(train_rows[:, None], rows.context, 100 * other.context),
        np.where(train_rows, rows.action, other.action),
        np.where(train_rows, rows.propensity, other.propensity),
        np.where(train_rows & ~rows.known, np.nan, np.where(train_rows, rows.cost, other.cost)),
        is_test=rows.is_test,
    )
    policies = [train(_log(tmp_path / f"{i}.parquet", arrays)) for i, arrays in enumerate((rows, changed))]
    assert _same(*policies)
    assert policies[0].training_rows == 300
    assert policies[0].training_known == int((rows.known & train_rows).sum())


def test_missing_costs_are_not_read_as_zeros(tmp_path: Path) -> None:
    rows = blobs(known=0.5)
    as_zero = replace(rows, known=np.ones(rows.rows, bool))
    policies = [
        train(_log(tmp_path / f"{i}.parquet", arrays), method="tips") for i, arrays in enumerate((rows, as_zero))
    ]
    assert not _same(*policies)


def test_costs_move_the_risk_and_not_the_regulariser(tmp_path: Path) -> None:
    rows = blobs()
    logs = [_log(tmp_path / f"{i}.parquet", replace(rows, cost=cost)) for i, cost in enumerate((rows.cost, -rows.cost))]
    assert not _same(*(train(path, method="tips") for path in logs))
    assert _same(*(train(path, method="wce-only") for path in logs))


# --- what decides the result ---


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_seed_decides_everything(tmp_path: Path, model: str) -> None:
    log = _log(tmp_path / "log.parquet", blobs(known=0.5))
    policies = [train(log, model=model, hidden="4", seed=seed) for seed in (1, 1, 2)]
    files = [_policy_bytes(policy, tmp_path, log) for policy in policies]
    assert files[0] == files[1]
    assert not _same(policies[0], policies[2])


@pytest.mark.parametrize("reg", ["wce", "kl"])
def test_with_all_feedback_the_known_rows_are_all_rows(tmp_path: Path, reg: str) -> None:
    log = _log(tmp_path / "log.parquet", blobs(known=1.0))
    assert _same(train(log, method=f"{reg}-s2bl"), train(log, method=f"{reg}-s2blk"))
    masked = _log(tmp_path / "masked.parquet", blobs(known=0.3))
    assert not _same(train(masked, method=f"{reg}-s2bl"), train(masked, method=f"{reg}-s2blk"))


def test_lam_zero_is_the_risk_alone(tmp_path: Path) -> None:
    log = _log(tmp_path / "log.parquet", blobs(known=0.5))
    assert _same(train(log, method="wce-s2bl", lam=0.0), train(log, method="tips"))
    assert not _same(train(log, method="wce-s2bl"), train(log, method="tips"))


def test_flags_and_method_names_mean_the_same(tmp_path: Path) -> None:
    log = _log(tmp_path / "log.parquet", blobs(known=0.5))
    spelled_out = train(log, risk="tips", reg="kl", reg_rows="known")
    by_name = train(log, method="kl-s2blk")
    assert _same(spelled_out, by_name)
    assert spelled_out.lineage == by_name.lineage


# --- what comes out ---


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_learned_policy_is_better_than_the_one_that_logged(tmp_path: Path, model: str) -> None:
    rows = blobs(rows=1000, known=0.2)
    log = _log(tmp_path / "log.parquet", rows)
    test = rows.take(rows.is_test)
    assert test.label is not None
    assert test.pi0 is not None
    logging = float(test.pi0[np.arange(test.rows), test.label].mean())
    learned = _accuracy(train(log, model=model, hidden="8", epochs=20, lr=0.01), test)
    assert learned > logging + 0.1


def test_learned_policy_on_the_sample_beats_its_logging_policy(run: Callable[..., Any], tmp_path: Path) -> None:
    """The logging policy draws right in about a quarter of the rows."""
    assert run("make-logs", "--tau", 10, "--epochs", 2, "-o", "logs.parquet").code == 0
    assert run("mask", "--rho", 0.1, "logs.parquet", "-o", "masked.parquet").code == 0
    assert run("train", "--method", "wce-s2bl", "--epochs", 5, "masked.parquet", "-o", "p.safetensors").code == 0
    with open_logs([str(tmp_path / "logs.parquet")]) as log:
        rows = log.read()
    test = rows.take(rows.is_test)
    drawn_right = float((test.action == test.label).mean())
    assert drawn_right < 0.35
    assert _accuracy(read_policy(str(tmp_path / "p.safetensors")).policy, test) > drawn_right + 0.1


def test_log_that_another_tool_made_is_learned_from(run: Callable[..., Any], write_plain: Any, tmp_path: Path) -> None:
    path = write_plain(tmp_path / "plain.parquet")
    ran = run("train", path, "--method", "wce-s2bl", "--epochs", 2, "--quiet", "-o", "p.safetensors")
    assert (ran.code, ran.stderr) == (0, "")
    policy = read_policy(str(tmp_path / "p.safetensors")).policy
    assert policy.network == NetworkSpec("linear", ContextSpec("float32", (2,)), 2)
    assert (policy.training_rows, policy.training_known) == (4, 3)
    assert policy.tensors["body.1.weight"].any()


def test_untrained_policy_is_the_start(tmp_path: Path) -> None:
    policy = train(_log(tmp_path / "log.parquet", blobs()), epochs=0)
    assert not policy.tensors["body.1.weight"].any()
    assert policy.tensors["scale"].all()


# --- how it ends when it cannot go on ---


@pytest.mark.parametrize("method", ["tips", "wce-s2bl", "wce-s2blk", "kl-s2blk"])
def test_log_without_feedback_is_refused_by_what_needs_some(tmp_path: Path, method: str) -> None:
    rows = blobs()
    log = _log(tmp_path / "log.parquet", replace(rows, known=np.zeros(rows.rows, bool)))
    with pytest.raises(ContractError) as raised:
        train(log, method=method)
    assert str(raised.value) == (
        f"{log}: no train row has feedback, and {method} learns from feedback; "
        "use a log with some, or --method wce-only"
    )


@pytest.mark.parametrize("method", ["wce-only", "kl-only"])
def test_log_without_feedback_is_enough_for_a_regulariser_alone(tmp_path: Path, method: str) -> None:
    rows = blobs()
    log = _log(tmp_path / "log.parquet", replace(rows, known=np.zeros(rows.rows, bool)))
    policy = train(log, method=method)
    assert policy.training_known == 0
    assert policy.tensors["body.1.weight"].any()


def test_feedback_of_test_rows_alone_is_no_feedback(tmp_path: Path) -> None:
    rows = blobs()
    log = _log(tmp_path / "log.parquet", replace(rows, known=rows.is_test))
    with pytest.raises(ContractError, match="no train row has feedback"):
        train(log, method="tips")


def test_log_of_test_rows_alone_is_refused(tmp_path: Path) -> None:
    log = _log(tmp_path / "log.parquet", replace(blobs(), is_test=np.ones(400, bool)))
    with pytest.raises(ContractError) as raised:
        train(log)
    assert str(raised.value) == f"{log}: it has no train rows to learn from (its rows are all of the test split)"


def test_divergence_is_told_and_nothing_is_written(run: Callable[..., Any], tmp_path: Path) -> None:
    log = _log(tmp_path / "log.parquet", blobs())
    deep = ("--model", "mlp", "--hidden", ",".join(["64"] * 12))
    ran = run(
        "train", log, "--method", "wce-s2bl", *deep, "--lr", 1000, "--epochs", 3, "--quiet", "-o", "p.safetensors"
    )
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == (
        "s2bl: the loss became nan in epoch 1: use a smaller --lr than 1000, "
        "or a larger --nu than 0.001 if propensities are tiny\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_loss_beyond_float32_is_told(tmp_path: Path) -> None:
    """1/p = 1e38 without truncation: a sum of three such costs has no float32."""
    rows = blobs()
    log = _log(tmp_path / "log.parquet", replace(rows, propensity=np.full(rows.rows, 1e-38, np.float32), pi0=None))
    with pytest.raises(RunError, match=r"^the loss became -inf in epoch 1: .* or a larger --nu than 0 if"):
        train(log, method="tips", nu=0.0, batch_size=300)
    assert train(log, method="tips", nu=0.001).training_rows == 300


# --- where it computes ---


def _rows(device: torch.device = CPU, arrays: LogArrays | None = None) -> Rows:
    arrays = arrays or blobs(known=0.5)
    train_rows = TrainRows(arrays, np.arange(arrays.rows))
    statistics = count_rows([train_rows], ACTIONS)
    return rows_on_device(train_rows, [Fold(0)], statistics, reg_on_known=False, device=device)


def _tensors(rows: Rows) -> list[torch.Tensor]:
    return [one for value in rows if value is not None for one in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize("sampling", ["paired", "mixed"])
@pytest.mark.parametrize("method", METHODS)
def test_whole_epochs_stay_on_the_policys_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, sampling: str
) -> None:
    """As beside a GPU: what is made without saying where comes up elsewhere, and fails."""
    real = TrainState.train_epoch

    def train_epoch(state: TrainState, *words: Any) -> Metrics:
        with default_device_elsewhere():
            return real(state, *words)

    monkeypatch.setattr(TrainState, "train_epoch", train_epoch)
    log = _log(tmp_path / "log.parquet", blobs(known=0.5))
    assert train(log, method=method, sampling=sampling).training_rows == 300


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_tensors_of_a_step_live_on_the_policys_device(model: str) -> None:
    rows = _rows()
    network = build_network(NetworkSpec(model, ContextSpec("float32", (ACTIONS,)), ACTIONS, (4,) * (model == "mlp")))
    policies: TrainablePolicies = StackedPolicies([network], 1) if model == "linear" else SinglePolicy(network)
    with default_device_elsewhere():
        drawn = sample(rows, 2, 8, [(0, 0, 0)], mixed=False, reg_on_known=False, has_risk=True, has_regulariser=True)
        index, action = drawn.rows[0].flatten(), rows.action[drawn.rows[0]][:, None, None]
        log_pi, _ = policies.forward(rows.context, index, action, all_actions=False)
        log_policy, _ = policies.forward(rows.context, index, action, all_actions=True)
    everything = [*_tensors(rows), drawn.rows, log_pi, log_policy, *policies.parameters]
    assert {tensor.device for tensor in everything} == {CPU}


def test_bf16_learns_what_fp32_learns(tmp_path: Path) -> None:
    """On products as small as these every CPU has it."""
    log = _log(tmp_path / "log.parquet", blobs())
    fp32, bf16 = (train(log, method="tips", model="mlp", hidden="4", precision=kind) for kind in ("fp32", "bf16"))
    for name, value in fp32.tensors.items():
        assert bf16.tensors[name].dtype == np.float32
        np.testing.assert_allclose(bf16.tensors[name], value, atol=0.2)
    assert any(not np.array_equal(bf16.tensors[name], value) for name, value in fp32.tensors.items())


def test_distance_from_a_prior_in_bf16(tmp_path: Path) -> None:
    """The prior is laid out as the policies are that it is compared with."""
    log = _log(tmp_path / "log.parquet", blobs())
    fp32, bf16 = (train(log, method="b-crm", model="mlp", hidden="4", precision=kind) for kind in ("fp32", "bf16"))
    for name, value in fp32.tensors.items():
        np.testing.assert_allclose(bf16.tensors[name], value, atol=0.2)


def test_bf16_that_the_machine_cannot_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("could not create a primitive")

    log = _log(tmp_path / "log.parquet", blobs())
    monkeypatch.setattr(SinglePolicy, "forward", fails)
    told = (
        r"^--precision bf16: this machine cannot train a mlp so \(could not create a primitive\); use --precision fp32$"
    )
    with pytest.raises(RunError, match=told):
        train(log, method="tips", model="mlp", precision="bf16")
    assert train(log, method="tips", precision="bf16").training_rows == 300  # linear policies are in fp32 always


def test_log_is_moved_where_it_is_told() -> None:
    """All of it, and never the labels."""
    rows = _rows(torch.device("meta"))
    assert {tensor.device.type for tensor in _tensors(rows)} == {"meta"}
    assert {tensor.dtype for tensor in (rows.p, rows.c, rows.action_weight, rows.context)} == {torch.float32}
    images = arrays_of(np.zeros((2, 1, 2, 2), np.uint8), [0, 1], [0.5, 0.5], [0, 0])
    assert _rows(arrays=images).context.dtype == torch.uint8  # a quarter's memory


TOGETHER = [
    ("linear", 1 << 27, [1, 2, 3]),
    ("mlp", 1 << 27, [1, 2, 3]),
    ("mlp", 100, [1, 2, 3, 4, 5, 6]),
]


@pytest.mark.parametrize(("model", "most_together", "reported_epochs"), TOGETHER)
def test_progress_counts_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, most_together: int, reported_epochs: list[int]
) -> None:
    """Policies take theirs together, if they are not too large, else one after another."""
    monkeypatch.setattr("s2bl_cli.training.gradient_learner._MOST_TOGETHER", most_together)
    reported: list[tuple[int, str]] = []

    class Console:
        def progress(self, what: str, total: int, unit: str) -> Any:
            assert (what, total, unit) == ("training tips", reported_epochs[-1], "epochs")
            return nullcontext(lambda done, note: reported.append((done, note)))

    console: Any = Console()
    log = _log(tmp_path / "log.parquet", blobs())
    train_all(log, run=Run(CPU, console=console), method="tips", model=model, seeds="0,1", epochs=3, lr=0.01)
    assert [done for done, _ in reported] == reported_epochs
    losses = [float(note.split()[1]) for _, note in reported]
    assert losses[2] < losses[0] < 0


# --- settings ---


def test_settings_of_auto_are_open_until_a_method_is_chosen() -> None:
    settings = TrainSettings(method="auto", epochs=7)
    assert (settings.name, settings.model, settings.epochs, settings.lr) == ("auto", None, 7, None)
    assert replace(settings) == settings


@pytest.mark.parametrize("method", [name for name in METHODS if name != "auto"])
def test_method_resolves_to_its_parts_and_back(method: str) -> None:
    settings = TrainSettings(method=method)
    assert settings.name == method
    parts = METHODS[method]
    assert (settings.risk, settings.reg, settings.reg_rows) == (parts.risk, parts.reg, parts.reg_rows)
    assert ("lam" in settings.hyperparameters) == (parts.reg != "none")
    assert None not in (settings.optimizer, settings.schedule, settings.sampling)
    assert replace(settings) == settings  # what is filled in may be given too
    if parts.learner == GRADIENT_LEARNER:  # else its parts do not say what it is
        assert TrainSettings(risk=parts.risk, reg=parts.reg, reg_rows=parts.reg_rows) == settings


def test_defaults_are_the_default_method() -> None:
    assert TrainSettings() == TrainSettings(method=DEFAULT_METHOD)


def test_rows_of_no_regulariser_mean_nothing() -> None:
    settings = TrainSettings(reg="none", reg_rows="known")
    assert settings == TrainSettings(method="tips")


def test_combination_without_a_name_is_recorded_by_its_parts() -> None:
    resolved = train_settings(risk="none", reg="wce", reg_rows="known", lam=2.0)
    assert (resolved.method, resolved.name, resolved.hyperparameters) == (None, "none+wce-known", {"lam": "2.0"})


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            {"method": "wce-s2bl", "reg": "kl"},
            "--method wce-s2bl means --reg wce, but --reg kl was given: drop one of them",
        ),
        (
            {"method": "wce-s2bl", "reg_rows": "known"},
            "--method wce-s2bl means --reg-rows all, but --reg-rows known was given: drop one of them",
        ),
        (
            {"method": "kl-only", "risk": "tips"},
            "--method kl-only means --risk none, but --risk tips was given: drop one of them",
        ),
        (
            {"risk": "none", "reg": "none"},
            "--risk none and --reg none leave nothing to learn from: choose a risk or a regulariser",
        ),
        (
            {"risk": "none", "lam": 0.0},
            "--risk none and --lam 0 leave nothing to learn from: choose a risk or a regulariser",
        ),
        (
            {"method": "wce-only", "lam": 0.0},
            "--risk none and --lam 0 leave nothing to learn from: choose a risk or a regulariser",
        ),
        (
            {"lam": float("nan"), "nu": -0.5, "epochs": -1},
            "--epochs must be in [0, 100000], found -1; --lam must be in [0, 1e+09], found nan; "
            "--nu must be in [0, 1], found -0.5",
        ),
        (
            {"risk": "pseudo", "reg": "wce", "reg_rows": "known", "sampling": "mixed"},
            "--sampling mixed draws one batch for both terms, but --risk pseudo sees all rows and --reg-rows known "
            "only those with feedback: use --sampling paired or --reg-rows all",
        ),
        ({"lr": 0.0}, "--lr must be in (0, 1000], found 0.0"),
        ({"lr": float("inf")}, "--lr must be in (0, 1000], found inf"),
        ({"seed": -1}, "--seed must be in [0, 4294967295], found -1"),
        ({"batch_size": 0}, "--batch-size must be in [1, 1048576], found 0"),
        (
            {"model": "mlp", "hidden": "wide"},
            "--hidden must be 1 to 16 layer widths in [1, 65536], such as 100 or 256,64, found 'wide'",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_settings_that_make_no_sense_are_refused(flags: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as raised:
        train_settings(**flags)
    assert str(raised.value) == line


def test_training_itself_prints_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    train(_log(tmp_path / "log.parquet", blobs()))
    assert capfd.readouterr() == ("", "")


def test_a_policy_knows_what_its_actions_stand_for(tmp_path: Path) -> None:
    """As the log says it; the parameters are the same without."""
    named = train(write_arrays(tmp_path / "a.parquet", blobs(), 3, action_names=("x", "y", "z")))
    plain = train(write_arrays(tmp_path / "b.parquet", blobs(), 3))
    assert (named.action_names, plain.action_names) == (("x", "y", "z"), ())
    assert all(np.array_equal(named.tensors[name], plain.tensors[name]) for name in plain.tensors)


def test_a_prior_whose_actions_stand_for_something_else_is_refused(tmp_path: Path) -> None:
    prior = train(write_arrays(tmp_path / "a.parquet", blobs(), 3, action_names=("x", "y", "z")))
    write_policy(prior, str(tmp_path / "prior.safetensors"), force=False)
    log = write_arrays(tmp_path / "b.parquet", blobs(), 3, action_names=("z", "y", "x"))
    with pytest.raises(ContractError, match=r"is no prior for .*: its action 0 is 'x', the log's is 'z'$"):
        train(log, reg="lpr", prior=str(tmp_path / "prior.safetensors"))
