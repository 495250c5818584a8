"""`make-logs`: the default logging policies, the effect of each option, and errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from learning_fixtures import CPU, table_policy

from s2bl_cli.contract.lineage import Source, command_lines
from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.contract.policies import read_policy
from s2bl_cli.datasets import sample
from s2bl_cli.datasets.labelled import LabelledData, LabelledPart
from s2bl_cli.datasets.limiting import shares
from s2bl_cli.errors import RunError, SettingError
from s2bl_cli.logging_policy.facts import LogFacts
from s2bl_cli.logging_policy.policies import ExploringPolicy, RandomPolicy, UniformPolicy, softmax
from s2bl_cli.logging_policy.settings import LoggingSettings
from s2bl_cli.policies.network import network_from
from s2bl_cli.registry import DATASETS

torch.set_num_threads(1)

ROWS, TEST_ROWS, ACTIONS = 700, 100, 10
COLUMNS = ("context", "action", "propensity", "cost", "known", "is_test", "label", "pi0")


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> LabelledData:
    """Replace the sample by a tenth of its rows."""
    from s2bl_cli.datasets.settings import DatasetSettings

    whole = sample.load(DatasetSettings())
    few = LabelledData(
        "sample",
        ACTIONS,
        LabelledPart(whole.train.context[: ROWS - TEST_ROWS], whole.train.label[: ROWS - TEST_ROWS]),
        LabelledPart(whole.test.context[:TEST_ROWS], whole.test.label[:TEST_ROWS]),
    )
    monkeypatch.setattr(sample, "load", lambda settings: few)
    return few


@pytest.fixture
def make(run: Callable[..., Any], tmp_path: Path) -> Callable[..., LogArrays]:
    """`make("--tau", 5)`: what is in the log, with its whole distributions."""

    def made(*flags: object, output: str = "made.parquet") -> LogArrays:
        ran = run("make-logs", "--epochs", 2, "--store-distribution", *flags, "--force", "-o", output)
        assert ran.code == 0, ran.stderr
        with open_logs([str(tmp_path / output)]) as log:
            arrays = log.read()
        assert arrays.pi0 is not None
        assert np.array_equal(arrays.propensity, arrays.pi0[np.arange(arrays.rows), arrays.action])
        return arrays

    return made


def same(a: LogArrays, b: LogArrays) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in COLUMNS)


# --- defaults ---


@pytest.mark.parametrize("dataset", DATASETS.names)
def test_default_model_of_each_dataset(dataset: str) -> None:
    """As in the paper: resnet-v2 for CIFAR-100, resnet-v1 for other images; linear for the rest and for features."""
    paper = dict.fromkeys(("fmnist", "mnist", "emnist", "cifar10"), "resnet-v1") | {"cifar100": "resnet-v2"}
    settings = LoggingSettings()
    assert settings.resolved(dataset, images=True, device="cpu").logging_model == paper.get(dataset, "linear")
    assert settings.resolved(dataset, images=False, device="cpu").logging_model == "linear"
    mlp = LoggingSettings(logging_model="mlp").resolved(dataset, images=True, device="cuda")
    assert (mlp.logging_model, mlp.epochs) == ("mlp", 5)


@pytest.mark.parametrize(("device", "width", "epochs"), [("cpu", 16, 2), ("cuda", 64, 10), ("mps", 64, 10)])
def test_default_sizes_of_each_device(device: str, width: int, epochs: int) -> None:
    deep = LoggingSettings().resolved("fmnist", images=True, device=device)
    assert (deep.width, deep.epochs) == (width, epochs)
    assert LoggingSettings().resolved("sample", images=True, device=device).epochs == 5
    given = LoggingSettings(width=8, epochs=0).resolved("fmnist", images=True, device=device)
    assert (given.width, given.epochs) == (8, 0)


def test_reused_policy_keeps_its_model() -> None:
    assert LoggingSettings(logging_policy="p").resolved("fmnist", images=True, device="cpu").logging_model is None


# --- policies that need no fitting ---


def test_uniform(make: Callable[..., LogArrays]) -> None:
    log = make("--logging-model", "uniform")
    assert set(log.propensity.tolist()) == {float(np.float32(0.1))}
    counts = np.bincount(log.action, minlength=ACTIONS)
    assert ((counts - ROWS / ACTIONS) ** 2 / (ROWS / ACTIONS)).sum() < 27.9  # χ², 9 degrees of freedom, 1 in 1,000


def test_random_is_independent_of_the_context(make: Callable[..., LogArrays], small_sample: LabelledData) -> None:
    first = make("--logging-model", "random", "--tau", 0.5)
    for part in (small_sample.train, small_sample.test):
        object.__setattr__(part, "context", 255 - part.context[::-1])
    other = make("--logging-model", "random", "--tau", 0.5)
    assert not np.array_equal(first.context, other.context)
    assert np.array_equal(first.pi0, other.pi0)
    assert np.array_equal(first.action, other.action)
    assert len(np.unique(first.propensity)) > ROWS / 2  # a new distribution for each row
    assert not np.array_equal(first.pi0, make("--logging-model", "random", "--tau", 0.5, "--seed", 1).pi0)


def test_random_is_softmax_of_normal_noise_over_tau() -> None:
    """Log-probabilities, centred in each row, have the variance (1 − 1/k)/τ²; batches make no difference."""
    pi0 = RandomPolicy(4, seed=0, temperature=2.0).distribution(np.zeros((20_000, 1)))
    logits = np.log(pi0.astype(np.float64))
    logits -= logits.mean(axis=1, keepdims=True)
    assert logits.var() == pytest.approx(0.75 / 4, rel=0.03)
    pieces = RandomPolicy(4, seed=0, temperature=2.0)
    assert np.array_equal(np.concatenate([pieces.distribution(np.zeros((n, 1))) for n in (7, 1, 92)]), pi0[:100])


def test_softmax_by_hand() -> None:
    pi0 = softmax(np.log([[1.0, 3.0], [1e300, 1e300]]))
    assert pi0.dtype == np.float32
    assert pi0.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    with pytest.raises(RunError, match="logits of the logging policy must be finite"):
        softmax(np.array([[0.0, np.nan]]))


# --- flags that change the policy ---


def test_uniform_mix_is_exact(make: Callable[..., LogArrays]) -> None:
    plain, mixed = make("--tau", 2), make("--tau", 2, "--uniform", 0.25)
    assert plain.pi0 is not None
    expected = np.float32(0.75) * plain.pi0 + np.float32(0.25) / np.float32(10)
    assert np.array_equal(mixed.pi0, expected)
    assert mixed.propensity.min() >= np.float32(0.025)
    assert set(make("--uniform", 1).propensity.tolist()) == {float(np.float32(0.1))}


def test_uniform_mix_of_uniform_is_uniform() -> None:
    pi0 = ExploringPolicy(UniformPolicy(4), 0.5).distribution(np.zeros((3, 1)))
    assert pi0.tolist() == [[0.25] * 4] * 3


def test_adverse_prefers_wrong_actions(make: Callable[..., LogArrays]) -> None:
    """With negated logits, the probabilities of a row are inverse to those without --adverse."""
    plain, adverse = make("--tau", 5), make("--tau", 5, "--adverse")
    assert plain.pi0 is not None
    inverse = 1 / plain.pi0.astype(np.float64)
    assert np.allclose(adverse.pi0, inverse / inverse.sum(axis=1, keepdims=True), rtol=1e-4)
    right = [float((log.action == log.label).mean()) for log in (plain, adverse)]
    assert right[0] > 0.15 > 0.1 > right[1]


# --- saved and reused policies ---


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_saved_policy_logs_the_same(make: Callable[..., LogArrays], tmp_path: Path, model: str) -> None:
    """At the same τ, which is the default. A fit of softmax(τ·h) draws from softmax(h): its logits are not divided by
    τ a second time, and at another τ they are multiplied by 5/τ."""
    fitted = make("--tau", 5, "--logging-model", model, "--hidden", 8, "--save-policy", "p.safetensors")
    reused = make("--logging-policy", "p.safetensors")
    assert same(fitted, reused)
    assert same(fitted, make("--logging-policy", "p.safetensors", "--tau", 5))
    sharper = make("--logging-policy", "p.safetensors", "--tau", 2.5)
    squared = np.asarray(fitted.pi0, np.float64) ** 2
    assert sharper.pi0 == pytest.approx(squared / squared.sum(axis=1, keepdims=True), rel=1e-4)
    policy = read_policy(str(tmp_path / "p.safetensors")).policy
    assert (policy.network.model, policy.network.actions) == (model, ACTIONS)
    assert policy.training_rows == ROWS - TEST_ROWS
    network = network_from(policy.network, policy.tensors, "p").eval()
    with torch.no_grad():
        pi0 = network(torch.tensor(fitted.context, device=CPU)).double().softmax(dim=1).numpy()
    assert np.allclose(fitted.pi0, pi0, rtol=1e-5)


def test_tau_of_a_reused_policy_is_that_of_sample_mode(make: Callable[..., LogArrays]) -> None:
    sampled = make("--tau-mode", "sample", "--tau", 5, "--save-policy", "p.safetensors")
    assert same(sampled, make("--logging-policy", "p.safetensors", "--tau", 5))
    assert same(sampled, make("--logging-policy", "p.safetensors"))
    # sample mode fits at 1 whatever τ is
    assert same(make("--tau-mode", "sample", "--tau", 1), make("--logging-policy", "p.safetensors", "--tau", 1))


def test_lineage_of_a_reused_policy(make: Callable[..., LogArrays], tmp_path: Path) -> None:
    make("--tau", 5, "--save-policy", "p.safetensors")
    make("--logging-policy", "p.safetensors", "--adverse", output="again.parquet")
    with open_logs([str(tmp_path / "again.parquet")]) as log:
        (step,) = log.lineages
    assert step is not None
    source, _ = step.inputs
    assert source.role == "policy"
    assert source.step is not None
    assert (source.step.command, source.step.settings["tau"]) == ("make-logs", 5.0)
    assert step.settings["tau"] == 5.0
    assert "logging-policy" not in step.settings


def test_policy_that_does_not_fit_is_rejected(run: Callable[..., Any], tmp_path: Path) -> None:
    table_policy(tmp_path / "three.safetensors", np.full((4, 3), 1 / 3))
    table_policy(tmp_path / "ten.safetensors", np.full((4, 10), 0.1))
    for name, expected in (
        ("three", "its number of actions is 3, the data's is 10"),
        ("ten", "its contexts are 4 float32, the data's are 1×28×28 uint8"),
    ):
        ran = run("make-logs", "--logging-policy", f"{name}.safetensors", "--quiet", "-o", "x.parquet")
        assert ran.code == 2
        assert ran.stderr == (
            f"s2bl: {name}.safetensors does not fit sample: {expected}: use a policy that was fitted to this kind of "
            "data\n"
        )
    assert not (tmp_path / "x.parquet").exists()


# --- reproducibility ---


def test_threads_do_not_change_the_log(run: Callable[..., Any], tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            flags = ("--epochs", 1, "--tau", 5, "--threads", threads, "--save-policy", f"{threads}.safetensors")
            assert run("make-logs", *flags, "-o", f"{threads}.parquet").code == 0
    finally:
        torch.set_num_threads(before)
    for suffix in ("parquet", "safetensors"):
        assert (tmp_path / f"1.{suffix}").read_bytes() == (tmp_path / f"2.{suffix}").read_bytes()


def test_batch_size_affects_only_the_fit(make: Callable[..., LogArrays]) -> None:
    make("--tau", 3, "--save-policy", "p.safetensors")
    logs = [make("--logging-policy", "p.safetensors", "--cost-noise", 0.3, "--batch-size", size) for size in (1, 700)]
    assert same(*logs)


# --- summary and warnings ---


def test_summary(run: Callable[..., Any], tmp_path: Path) -> None:
    ran = run("make-logs", "--tau", 5, "--epochs", 2, "--json", "--quiet", "-o", "x.parquet")
    assert ran.stderr == ""
    facts = json.loads(ran.stdout)
    with open_logs([str(tmp_path / "x.parquet")]) as log:
        arrays = log.read()
    inverse = 1 / arrays.propensity.astype(np.float64)
    assert (arrays.action == arrays.label)[arrays.is_test].mean() == pytest.approx(facts.pop("sampled_accuracy"))
    assert 0.2 < facts.pop("argmax_accuracy") <= 1
    assert facts.pop("propensity_quantiles") == {
        str(q): pytest.approx(np.quantile(arrays.propensity, q, method="inverted_cdf"), rel=0.001)
        for q in (0.01, 0.5, 0.99)
    }
    assert facts.pop("mean_inverse_propensity") == pytest.approx(inverse.mean())
    assert facts.pop("mean_inverse_propensity_stderr") == pytest.approx(inverse.std() / np.sqrt(ROWS))
    assert facts == {
        "output": "x.parquet",
        "limit": None,
        "train": ROWS - TEST_ROWS,
        "test": TEST_ROWS,
        "actions": ACTIONS,
        "scored_split": "test",
        "rows_below_nu": 0,
    }


def test_propensities_below_nu_give_a_warning(run: Callable[..., Any], tmp_path: Path) -> None:
    ran = run(
        "make-logs", "--logging-model", "random", "--tau", 0.3, "--seed", 1, "--json", "--quiet", "-o", "x.parquet"
    )
    below = json.loads(ran.stdout)["rows_below_nu"]
    with open_logs([str(tmp_path / "x.parquet")]) as log:
        assert below == (log.read().propensity < 0.001).sum() == 1
    assert ran.stderr == (
        "warning: train will truncate the propensity of 1 row to ν = 0.001: choose a larger --tau or --uniform to "
        "avoid this\n"
    )


def test_warning_with_many_actions_suggests_a_smaller_nu() -> None:
    facts = LogFacts(1001)
    facts.add("train", np.full(5, 1 / 1001, np.float32))
    assert facts.warnings() == [
        "train will truncate the propensity of 5 rows to ν = 0.001: give it a smaller --nu to avoid this"
    ]


def test_propensities_that_do_not_match_the_draws_give_a_warning() -> None:
    facts = LogFacts(4)
    propensity = np.full(1000, 0.5, np.float32)  # 1/p is 2 in the mean, not 4
    pi0 = np.full((1000, 4), 0.25, np.float32)
    action = np.zeros(1000, np.int32)
    facts.add("train", propensity, action, action, pi0)
    assert facts.warnings() == [
        "mean(1/p) is 2, but should be near the number of actions, 4: the propensities do not match the drawn actions"
    ]
    right = LogFacts(4)
    right.add("train", pi0[:, 0], action, action, pi0)
    assert right.warnings() == []
    assert right.summary()["scored_split"] == "train"


# --- contradictions ---


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ("--logging-policy", "p.safetensors", "--logging-model", "mlp"),
            "--logging-policy and --logging-model exclude each other: remove one of them",
        ),
        (
            ("--adverse", "--logging-model", "uniform"),
            "--adverse needs a fitted logging policy, found --logging-model uniform: remove --adverse or choose "
            "another model",
        ),
        (
            ("--adverse", "--logging-model", "random"),
            "--adverse needs a fitted logging policy, found --logging-model random: remove --adverse or choose "
            "another model",
        ),
        (
            ("--cost-noise", 0.1, "--cost", "-1"),
            "--cost-noise needs --cost match, found --cost '-1': remove --cost-noise",
        ),
        (
            ("--logging-model", "uniform", "--save-policy", "p.safetensors"),
            "--save-policy needs a logging policy that is fitted in this run: remove --save-policy",
        ),
        (("--tau", 0), "--tau must be in (0, 1e+06], found 0.0"),
        (("--uniform", 1.5), "--uniform must be in [0, 1], found 1.5"),
        (
            ("--dataset", "table"),
            "--dataset table needs a file: give its name instead, such as --dataset my.csv --label-column y",
        ),
    ],
)
def test_contradictions_are_rejected(
    run: Callable[..., Any], tmp_path: Path, flags: tuple[object, ...], expected: str
) -> None:
    ran = run("make-logs", *flags, "--quiet", "-o", "x.parquet")
    assert (ran.code, ran.stderr) == (2, f"s2bl: {expected}\n")
    assert not list(tmp_path.iterdir())


def test_unknown_dataset_lists_the_known_ones() -> None:
    from s2bl_cli.datasets.settings import DatasetSettings

    with pytest.raises(SettingError) as caught:
        DatasetSettings(dataset="imagenet")
    assert str(caught.value) == (
        f"--dataset must be one of {', '.join(DATASETS.names)}, or a .csv or .parquet file, found 'imagenet'"
    )


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_log_and_policy_cannot_be_one_file(run: Callable[..., Any], tmp_path: Path, force: tuple[object, ...]) -> None:
    ran = run("make-logs", "--epochs", 0, "--save-policy", tmp_path / "x", "--quiet", *force, "-o", "x")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: --save-policy and -o must name different files: the policy would overwrite the log\n",
    )
    assert not list(tmp_path.iterdir())


# --- a part of the dataset ---


def test_shares_of_classes_sum_to_the_limit() -> None:
    """4 of (5, 3, 2) rows: 2, 1.2 and 0.8, so the last class has the largest remainder."""
    assert shares(np.array([5, 3, 2]), 4).tolist() == [2, 1, 1]
    assert shares(np.array([5, 3, 2]), 10).tolist() == [5, 3, 2]
    assert shares(np.array([1, 1, 1]), 2).tolist() == [1, 1, 0]
    assert shares(np.array([0, 0]), 0).tolist() == [0, 0]


def test_limit_takes_a_stratified_part(
    run: Callable[..., Any], make: Callable[..., LogArrays], small_sample: LabelledData, tmp_path: Path
) -> None:
    ran = run("make-logs", "--limit", 300, "--epochs", 1, "--json", "-o", "part.parquet")
    assert ran.code == 0, ran.stderr
    assert json.loads(ran.stdout)["limit"] == 300
    assert "--limit 300: 300 of 600 train rows and 50 of 100 test rows, stratified by class\n" in ran.stderr
    with open_logs([str(tmp_path / "part.parquet")]) as log:
        part = log.read()
        (step,) = log.lineages
    whole = np.bincount(small_sample.train.label, minlength=ACTIONS)
    kept = np.bincount(part.label[~part.is_test], minlength=ACTIONS)  # type: ignore[index]
    assert np.abs(kept - whole / 2).max() < 1
    assert (int((~part.is_test).sum()), int(part.is_test.sum())) == (300, 50)
    # in the order of the dataset, each row with its own label
    rows = {row.tobytes(): i for i, row in enumerate(small_sample.train.context)}
    numbers = [rows[row.tobytes()] for row in part.context[~part.is_test]]  # type: ignore[index]
    assert numbers == sorted(set(numbers))
    assert np.array_equal(part.label[~part.is_test], small_sample.train.label[numbers])  # type: ignore[index]
    assert step is not None
    assert step.settings["limit"] == 300
    assert step.inputs == (Source("dataset", small_sample.sha256(), "sample", rows=700),)
    assert "--limit 300" in command_lines(step)[0]
    assert same(make(), make("--limit", 600))


def test_limit_of_a_table_is_streamed(run: Callable[..., Any], tmp_path: Path) -> None:
    labels = np.arange(1000) % 4 // 3  # a quarter is of class 1
    pl.DataFrame({"x": np.arange(1000.0), "label": labels, "split": ["train"] * 800 + ["test"] * 200}).write_csv(
        tmp_path / "t.csv"
    )
    ran = run("make-logs", "--dataset", "t.csv", "--limit", 40, "--epochs", 1, "-o", "t.parquet")
    assert ran.code == 0, ran.stderr
    with open_logs([str(tmp_path / "t.parquet")]) as log:
        part = log.read()
        (step,) = log.lineages
    assert part.label is not None
    assert np.bincount(part.label[~part.is_test]).tolist() == [30, 10]
    assert np.bincount(part.label[part.is_test]).tolist() == [8, 2]
    assert step is not None
    assert (step.inputs[0].role, step.inputs[0].rows) == ("table", 1000)


# --- inputs before outputs ---


def test_existing_output_does_not_hide_a_wrong_input(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("kept")
    ran = run("make-logs", "--dataset", "no.csv", "-o", "x.parquet")
    assert (ran.code, ran.stderr) == (2, "s2bl: no.csv does not exist: check the name and the folder\n")
    ran = run("make-logs", "--cost", "AVG(label)", "-o", "x.parquet")
    assert "the cost of a row must depend only on that row" in ran.stderr
    ran = run("make-logs", "--epochs", 0, "-o", "x.parquet")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: x.parquet exists already: pass --force to replace it, or another -o\n",
    )
    assert (tmp_path / "x.parquet").read_text() == "kept"


def test_existing_output_is_reported_before_a_policy_is_fitted(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s2bl_cli.logging_policy.make_logs.fit_network", None)
    for flags in (("-o", "there"), ("-o", "x.parquet", "--save-policy", "there")):
        (tmp_path / "there").write_text("kept")
        ran = run("make-logs", *flags)
        assert (ran.code, ran.stderr) == (
            2,
            "s2bl: there exists already: pass --force to replace it, or another -o\n",
        )
    assert [file.name for file in tmp_path.iterdir()] == ["there"]


# --- resnets ---


@pytest.mark.parametrize("model", ["resnet-v1", "resnet-v2"])
def test_a_resnet_logs(run: Callable[..., Any], tmp_path: Path, small_sample: LabelledData, model: str) -> None:
    """Fitted, saved and reused. The propensities are those of the saved network."""
    for part in (small_sample.train, small_sample.test):
        object.__setattr__(part, "context", part.context[:60])
        object.__setattr__(part, "label", part.label[:60])
    flags = ("--width", 2, "--epochs", 1, "--batch-size", 20, "--tau", 5, "--quiet", "--store-distribution")
    ran = run("make-logs", "--logging-model", model, *flags, "--save-policy", "p.safetensors", "-o", "x.parquet")
    assert (ran.code, ran.stderr) == (0, "")
    assert run("make-logs", "--logging-policy", "p.safetensors", "--store-distribution", "-o", "y.parquet").code == 0
    logs = []
    for name in ("x", "y"):
        with open_logs([str(tmp_path / f"{name}.parquet")]) as log:
            logs.append(log.read())
            (step,) = log.lineages
    assert same(*logs)
    assert logs[0].rows == 120
    assert logs[0].pi0 is not None
    assert np.ptp(logs[0].pi0, axis=0).max() > 1e-4  # it looks at its contexts
    policy = read_policy(str(tmp_path / "p.safetensors")).policy
    assert (policy.network.model, policy.network.width) == (model, 2)
    assert step is not None
    assert step.inputs[0].step is not None
    assert step.inputs[0].step.settings["logging-model"] == model
