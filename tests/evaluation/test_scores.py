"""Scores: the metrics with labels, the logging policy's own, and what a score says of its policy and log."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from learning_fixtures import CPU, MADE, arrays_of, one_hot, table_policy, write_arrays
from score_fixtures import settings_of
from typer.testing import CliRunner

from s2bl_cli.app import app
from s2bl_cli.console import Console
from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.contract.policies import LoadedPolicy, read_policy, write_policy
from s2bl_cli.contract.scores import LOGGING_POLICY, Score, read_scores
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.candidates import LOGGING_CANDIDATE, of_policy
from s2bl_cli.evaluation.evaluate import Evaluation, score_on_log
from s2bl_cli.evaluation.settings import EvaluateSettings
from s2bl_cli.metrics import gains
from s2bl_cli.metrics.health import WEIGHT_EDGES
from s2bl_cli.metrics.metric import Metric
from s2bl_cli.metrics.row_parts import PARTS
from s2bl_cli.metrics.sample import CORRECT, SAMPLED, Column, LogBatch, LoggedSample, PolicyBatch, ScoredPolicy
from s2bl_cli.registry import LABEL_METRICS, METRIC_GROUPS, METRICS

# --- metrics ---


def _metric(name: str) -> Metric:
    metric: Metric = METRICS.load(name)
    return metric


def _column(column: Column, pi: Any, label: Any, action: Any = None) -> Any:
    """The column of rows with these probabilities; without any, of the draws."""
    nothing = np.empty((0, 0), np.float32)
    drawn = np.zeros(len(label), np.int32) if action is None else np.asarray(action)
    batch = LogBatch(
        drawn, np.full(len(label), 0.5, np.float32), np.asarray(label), nothing, nothing, np.zeros(3, bool)
    )
    return column.values(PolicyBatch(nothing if pi is None else pi, batch))


PI = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]], np.float32)


def test_correct_by_hand() -> None:
    """Likeliest are 0, 2 and, of the tie of 0 and 1, the smaller: 0. Draws do not show which is likeliest."""
    assert _column(CORRECT, PI, [0, 1, 0]).tolist() == [True, False, True]
    assert _column(CORRECT, PI, [1, 2, 1]).tolist() == [False, True, False]
    assert _column(CORRECT, None, [1, 2, 1]) is None


def test_sampled_by_hand() -> None:
    """The label's probability; of draws, whether they are the label."""
    assert _column(SAMPLED, PI, [0, 1, 2]) == pytest.approx([0.5, 0.2, 0.2])
    assert _column(SAMPLED, None, [0, 2, 2], action=[0, 1, 2]).tolist() == [1, 0, 1]


def test_class_accuracy_by_hand() -> None:
    """Class 0 has 1 0 1, class 2 has one row, class 1 none."""
    label = np.array([0, 2, 0, 0], np.int32)
    sample = LoggedSample(label, np.ones(4), np.zeros(4), np.ones(4, bool), label, 3)
    policy = ScoredPolicy(sample, {CORRECT.name: np.array([True, True, False, True])})
    first, last = _metric("class-accuracy").compute(policy)
    assert (first.label, first.rows, first.value) == (0, 3, pytest.approx(2 / 3))
    assert first.stderr == pytest.approx(np.std([1, 0, 1], ddof=1) / np.sqrt(3))
    assert (last.label, last.rows, last.value, last.stderr) == (2, 1, 1.0, None)


@pytest.mark.parametrize("name", LABEL_METRICS.names)
def test_every_metric_with_labels_rates_certainty_highest(name: str) -> None:
    metric, label = _metric(name), np.tile(np.array([2, 0, 1, 1], np.int32), 100)
    sample = LoggedSample(label, np.ones(400), np.ones(400), np.ones(400, bool), label, 3)
    for chosen, rate in ((label, 1.0), ((label + 1) % 3, 0.0)):
        pi = np.eye(3, dtype=np.float32)[chosen]
        policy = ScoredPolicy(sample, {column.name: _column(column, pi, label) for column in metric.needs})
        assert {abs(estimate.value) for estimate in metric.compute(policy)} == {rate}


@pytest.mark.parametrize("name", METRICS.names)
def test_every_metric_describes_itself(name: str) -> None:
    metric = _metric(name)
    assert metric.name == name
    assert name in METRIC_GROUPS[metric.group].names
    assert metric.title
    assert metric.better in ("high", "low", None)


# --- scores on a log ---


def _rows(**changes: Any) -> LogArrays:
    """Contexts 0 0 1 1 of the test split, then one train row. The logging policy draws 0 1 1 0; labels are 0 0 1 1."""
    rows = arrays_of(
        one_hot([0, 0, 1, 1, 0], 2),
        [0, 1, 1, 0, 0],
        [0.75, 0.25, 0.5, 0.5, 0.75],
        [-1, 0, -1, 0, -1],
        label=[0, 0, 1, 1, 0],
        pi0=[[0.75, 0.25], [0.75, 0.25], [0.5, 0.5], [0.5, 0.5], [0.75, 0.25]],
        is_test=[True, True, True, True, False],
    )
    return replace(rows, **changes)


TABLE = [[0.9, 0.1], [0.6, 0.4]]  # π(a|x): right in context 0, wrong in context 1


def _evaluated(log: Path, *policies: LoadedPolicy, **settings: Any) -> Evaluation:
    candidates = [*map(of_policy, policies), LOGGING_CANDIDATE]
    evaluation = Evaluation()
    with open_logs([str(log)]) as opened:
        given = EvaluateSettings(**settings)
        score_on_log(candidates, opened, given, CPU, Console(quiet=True).progress, evaluation)
    return evaluation


def _scores(log: Path, *policies: Path, split: str = "test", metrics: str = "labels") -> list[Score]:
    loaded = [read_policy(str(policy)) for policy in policies]
    return _evaluated(log, *loaded, split=split, metrics=metrics).scores


def _values(scores: list[Score], policy: str) -> dict[str, tuple[float, int]]:
    return {
        score.metric: (round(score.value, 6), score.rows)
        for score in scores
        if score.policy == policy and score.label is None
    }


def test_scores_by_hand(tmp_path: Path) -> None:
    """On the four test rows: the policy's likeliest action is 0 always, right in 2 of 4; the label's probability is
    0.9 0.9 0.4 0.4, mean 0.65. The logging policy: likeliest 0 0 0 0 (a tie goes to 0), right in 2 of 4; 0.75 0.75
    0.5 0.5, mean 0.625."""
    log = write_arrays(tmp_path / "log.parquet", _rows(), 2)
    policy = table_policy(tmp_path / "p.safetensors", TABLE)
    scores = _scores(log, policy)
    learned, logging = _values(scores, "p.safetensors"), _values(scores, LOGGING_POLICY)
    assert (learned["argmax-accuracy"], learned["sampled-accuracy"]) == ((0.5, 4), (0.65, 4))
    assert (logging["argmax-accuracy"], logging["sampled-accuracy"]) == ((0.5, 4), (0.625, 4))
    assert (learned["accuracy"], logging["accuracy"]) == ((0.65, 4), (0.625, 4))
    assert (learned["true-risk"], logging["true-risk"]) == ((-0.65, 4), (-0.625, 4))
    by_class = [(s.label, s.value, s.rows) for s in scores if s.metric == "class-accuracy" and s.policy_sha256]
    assert by_class == [(0, 1.0, 2), (1, 0.0, 2)]
    sampled = next(score for score in scores if score.metric == "sampled-accuracy" and score.policy_sha256)
    error = np.std([0.9, 0.9, 0.4, 0.4], ddof=1) / 2
    assert sampled.stderr == pytest.approx(error, rel=1e-6)
    half = 3.1824463 * error  # Student's t, three degrees of freedom
    assert (sampled.low, sampled.high) == pytest.approx((0.65 - half, 0.65 + half), rel=1e-6)


def test_logging_policy_without_its_distribution_is_scored_by_its_draws(tmp_path: Path) -> None:
    """Draws 0 1 1 0 against labels 0 0 1 1: right in 2 of 4. What is likeliest, draws cannot tell."""
    log = write_arrays(tmp_path / "log.parquet", _rows(pi0=None), 2)
    scores = _scores(log, table_policy(tmp_path / "p.safetensors", TABLE))
    logging = _values(scores, LOGGING_POLICY)
    assert logging["sampled-accuracy"] == (0.5, 4)
    assert "argmax-accuracy" not in logging


@pytest.mark.parametrize(("split", "rows", "value"), [("test", 4, 0.65), ("train", 1, 0.9), ("all", 5, 0.7)])
def test_split_chooses_the_rows(tmp_path: Path, split: str, rows: int, value: float) -> None:
    log = write_arrays(tmp_path / "log.parquet", _rows(), 2)
    scores = _scores(log, table_policy(tmp_path / "p.safetensors", TABLE), split=split)
    assert _values(scores, "p.safetensors")["sampled-accuracy"] == (value, rows)
    assert {score.split for score in scores} == {split}
    if rows == 1:
        assert {(score.stderr, score.low, score.high) for score in scores} == {(None, None, None)}


def test_many_policies_in_one_pass_are_each_alone(tmp_path: Path) -> None:
    log = write_arrays(tmp_path / "log.parquet", _rows(), 2)
    rng = np.random.default_rng(0)
    policies = [table_policy(tmp_path / f"{i}.safetensors", rng.dirichlet([1, 1], size=2)) for i in range(4)]
    together = _scores(log, *policies)
    alone = [score for policy in policies for score in _scores(log, policy) if score.policy != LOGGING_POLICY]
    assert [score for score in together if score.policy != LOGGING_POLICY] == alone
    assert len(alone) == 4 * (4 + 2)  # four over all rows, one for each of two classes
    assert len({score.value for score in alone if score.metric == "sampled-accuracy"}) == 4


# --- what does not fit ---


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (
            [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]],
            "its number of actions is 3, the log's is 2; if some actions were never logged, pass --actions 3",
        ),
        ([[1.0], [1.0]], "its number of actions is 1, the log's is 2; train the policy again with --actions 2"),
        (
            [[0.5, 0.5]] * 3,
            "its contexts are 3 float32, the log's are 2 float32; "
            "evaluate a policy on logs of the kind it was trained on",
        ),
    ],
    ids=["fewer-actions-logged", "more-actions-logged", "contexts"],
)
def test_policy_of_another_kind_is_refused(tmp_path: Path, table: list[list[float]], line: str) -> None:
    log = write_arrays(tmp_path / "log.parquet", _rows(), 2)
    with pytest.raises(ContractError) as raised:
        _scores(log, table_policy(tmp_path / "p.safetensors", table))
    assert str(raised.value) == f"p.safetensors does not fit {log}: {line}"


def _policy_of_columns(folder: Path, names: tuple[str, ...]) -> Path:
    path = table_policy(folder / "p.safetensors", np.full((len(names), 2), 0.5))
    policy = read_policy(str(path)).policy
    network = replace(policy.network, context=ContextSpec("float32", (len(names),), names))
    write_policy(replace(policy, network=network), str(path), force=True)
    return path


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (("b", "a"), "its context columns are b, a, the log's are a, b: another order; pass --context-columns b,a"),
        (("a", "b", "c"), "the log's contexts lack c; pass --context-columns a,b,c"),
        (("a",), "the log's contexts have b, unknown to the policy; pass --context-columns a"),
        (
            ("a", "c d"),
            "the log's contexts lack c d and have b, unknown to the policy; pass --context-columns 'a,c d'",
        ),
    ],
)
def test_columns_that_differ_are_named(
    tmp_path: Path, run: Callable[..., Any], columns: tuple[str, ...], line: str
) -> None:
    plain = {"a": [0.0, 1.0], "b": [1.0, 0.0], "action": [0, 1], "propensity": [0.5, 0.5], "cost": [0.0, 1.0]}
    pq.write_table(pa.table(plain), tmp_path / "log.parquet")
    _policy_of_columns(tmp_path, columns)
    ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", "--context-columns", "a,b")
    assert (ran.code, ran.stderr) == (2, f"s2bl: p.safetensors does not fit log.parquet: {line}\n")


@pytest.mark.parametrize("name", ["trained", "trained/*.safetensors"])
def test_a_folder_or_glob_of_policies_is_scored(tmp_path: Path, run: Callable[..., Any], name: str) -> None:
    write_arrays(tmp_path / "log.parquet", _rows(), 2)
    (tmp_path / "trained").mkdir()
    for policy in ("b.safetensors", "a.safetensors"):
        table_policy(tmp_path / "trained" / policy, TABLE)
    (tmp_path / "trained" / "curves.parquet").touch()
    ran = run("evaluate", name, "--logs", "log.parquet", "--metrics", "labels", "-o", "scores.parquet", "--quiet")
    assert (ran.code, ran.stderr) == (0, "")
    names = pq.read_table(tmp_path / "scores.parquet")["policy"].to_pylist()
    assert list(dict.fromkeys(names)) == ["a.safetensors", "b.safetensors", "logging-policy"]


def test_a_folder_without_policies_is_refused(tmp_path: Path, run: Callable[..., Any]) -> None:
    write_arrays(tmp_path / "log.parquet", _rows(), 2)
    (tmp_path / "trained").mkdir()
    ran = run("evaluate", "trained", "--logs", "log.parquet")
    assert (ran.code, ran.stderr) == (2, "s2bl: trained is a folder without *.safetensors files: check the name\n")


def test_a_folder_of_logs_is_no_folder_of_policies(tmp_path: Path, run: Callable[..., Any]) -> None:
    (tmp_path / "logs").mkdir()
    write_arrays(tmp_path / "logs" / "log.parquet", _rows(), 2)
    ran = run("evaluate", "logs/", "--logs", "logs/")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: logs/ is a folder without policies (*.safetensors), but with Parquet files: give logs with --logs, and "
        "files of action probabilities by their names\n",
    )


def test_policies_of_one_name_are_told_apart_by_their_folders(tmp_path: Path, run: Callable[..., Any]) -> None:
    """And a file that is given twice, by its folder and by another path, is scored once."""
    write_arrays(tmp_path / "log.parquet", _rows(), 2)
    for folder, table in (("a/x", TABLE), ("b/x", TABLE[::-1]), ("b/y", [[0.5, 0.5]] * 2)):
        (tmp_path / "runs" / folder).mkdir(parents=True)
        table_policy(tmp_path / "runs" / folder / "policy.safetensors", table)
    table_policy(tmp_path / "runs" / "other.safetensors", TABLE)
    again = tmp_path / "runs" / "b" / "y" / "policy.safetensors"
    words = ("--logs", "log.parquet", "--metrics", "ips", "--compare-to", again)
    ran = run("evaluate", "runs/", "./runs/other.safetensors", again, *words)
    assert ran.code == 0, ran.stderr
    names = pq.read_table(tmp_path / "scores.parquet")["policy"].to_pylist()
    assert list(dict.fromkeys(names)) == [
        "a/x/policy.safetensors", "b/x/policy.safetensors", "y/policy.safetensors", "other.safetensors",
        "logging-policy",
    ]  # fmt: skip
    assert "better than y/policy.safetensors" in ran.stderr


def test_scores_beside_the_logs_of_a_folder_are_passed_over(tmp_path: Path, run: Callable[..., Any]) -> None:
    """The default output of evaluate is a Parquet file too. A folder without logs says what it has instead."""
    (tmp_path / "logs").mkdir()
    for name in ("one", "two"):
        write_arrays(tmp_path / "logs" / f"{name}.parquet", _rows(), 2)
    words = ("evaluate", "uniform", "--logs", "logs/", "--metrics", "ips", "-o", "logs/scores.parquet", "--force")
    for _ in range(2):
        ran = run(*words)
        assert ran.code == 0, ran.stderr
        assert "logs/: scored on the 8 test rows" in ran.stderr
    for name in ("one", "two"):
        (tmp_path / "logs" / f"{name}.parquet").unlink()
    ran = run(*words)
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: logs/scores.parquet: it is a scores file, but a logs file is needed here (made by s2bl make-logs or "
        "mask)\n",
    )


def _named_policy(folder: Path, names: tuple[str, ...]) -> Path:
    path = table_policy(folder / "p.safetensors", TABLE)
    write_policy(replace(read_policy(str(path)).policy, action_names=names), str(path), force=True)
    return path


def test_policy_whose_actions_stand_for_something_else_is_refused(tmp_path: Path) -> None:
    log = write_arrays(tmp_path / "log.parquet", _rows(), 2, action_names=("shoe", "hat"))
    with pytest.raises(ContractError) as raised:
        _scores(log, _named_policy(tmp_path, ("shoe", "bag\x1b")))
    assert str(raised.value) == (
        f"p.safetensors does not fit {log}: its action 1 is 'bag', the log's is 'hat'; "
        f"evaluate a policy on logs of the kind it was trained on"
    )


@pytest.mark.parametrize("own", [(), ("shoe", "hat")])
@pytest.mark.parametrize("logs", [(), ("shoe", "hat")])
def test_names_of_actions_that_agree_or_are_not_told_change_nothing(
    tmp_path: Path, own: tuple[str, ...], logs: tuple[str, ...]
) -> None:
    log = write_arrays(tmp_path / "log.parquet", _rows(), 2, action_names=logs)
    plain = write_arrays(tmp_path / "plain.parquet", _rows(), 2)
    named = [score.value for score in _scores(log, _named_policy(tmp_path, own))]
    assert named == [score.value for score in _scores(plain, _named_policy(tmp_path, ()))]


def test_log_without_labels_is_refused_where_labels_are_all_that_was_asked_for(tmp_path: Path) -> None:
    log = write_arrays(tmp_path / "log.parquet", _rows(label=None), 2)
    policy = table_policy(tmp_path / "p.safetensors", TABLE)
    with pytest.raises(ContractError) as raised:
        _scores(log, policy)
    assert str(raised.value) == (f"{log}: it has no column 'label', which accuracies need: name it with --label-column")
    measured = {score.metric for score in _scores(log, policy, metrics="labels,snips")}
    assert measured == {"snips", "snips-gain", "snips-gain-simultaneous", "better"}


def test_log_without_feedback_is_refused_where_values_are_all_that_was_asked_for(tmp_path: Path) -> None:
    nothing = _rows(known=np.zeros(5, bool), cost=np.zeros(5, np.float32))
    log = write_arrays(tmp_path / "log.parquet", nothing, 2)
    policy = table_policy(tmp_path / "p.safetensors", TABLE)
    with pytest.raises(ContractError) as raised:
        _scores(log, policy, metrics="value,health")
    assert str(raised.value) == (
        f"{log}: no row of the scored split (test) has feedback, which value,health needs; "
        f"try another --split, or --metrics divergence"
    )
    measured = {score.metric for score in _scores(log, policy, metrics="all")}
    assert {"argmax-accuracy", "kl-exact", "kl-sampled"} <= measured
    assert measured.isdisjoint({"ips", "ess", "health", "theorem1-bound", "true-risk"})


@pytest.mark.parametrize(("is_test", "split", "other"), [(False, "test", "train"), (True, "train", "test")])
def test_split_without_rows_is_refused(tmp_path: Path, is_test: bool, split: str, other: str) -> None:
    log = write_arrays(tmp_path / "log.parquet", _rows(is_test=np.full(5, is_test)), 2)
    with pytest.raises(ContractError) as raised:
        _scores(log, table_policy(tmp_path / "p.safetensors", TABLE), split=split)
    assert str(raised.value) == f"{log}: it has no rows of the {split} split; try --split {other}"


@pytest.mark.parametrize("split", ["all", "test"])
def test_log_without_rows_is_refused(tmp_path: Path, split: str) -> None:
    log = write_arrays(tmp_path / "log.parquet", _rows().take(np.zeros(5, bool)), 2)
    with pytest.raises(ContractError) as raised:
        _scores(log, table_policy(tmp_path / "p.safetensors", TABLE), split=split)
    assert str(raised.value) == f"{log}: it has no rows"


def test_log_without_a_split_column_is_scored_whole(run: Callable[..., Any], tmp_path: Path) -> None:
    """By default; a test split that is asked for must be there."""
    log = write_arrays(tmp_path / "log.parquet", _rows(), 2)
    pq.write_table(pq.read_table(log).drop_columns(["split"]).replace_schema_metadata(None), "plain.parquet")
    table_policy(tmp_path / "p.safetensors", TABLE)
    ran = run("evaluate", "p.safetensors", "--logs", "plain.parquet", "--quiet", "--split", "test")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: plain.parquet: it has no test split (no column 'split'); try --split all\n",
    )
    ran = run("evaluate", "p.safetensors", "--logs", "plain.parquet", "--metrics", "labels")
    assert ran.code == 0
    assert "plain.parquet: scored on all 5 rows, all with feedback, labels\n" in ran.stderr
    table, _ = read_scores([str(tmp_path / "scores.parquet")])
    assert {settings_of(row).get("dataset") for row in table.to_pylist()} == {
        None,
        "plain",
    }  # the policy's lineage has no origin
    assert set(table["split"].to_pylist()) == {"all"}
    overall = table.filter(pa.compute.is_null(table["label"]))
    assert set(overall["rows"].to_pylist()) == {5}


def test_distribution_that_is_none_is_told_and_not_scored(tmp_path: Path) -> None:
    wrong = write_arrays(tmp_path / "log.parquet", _rows(pi0=np.full((5, 2), 0.9, np.float32)), 2)
    with pytest.raises(ContractError, match="pi0 must be probabilities that sum to 1: 5 rows"):
        _scores(wrong, table_policy(tmp_path / "p.safetensors", TABLE))
    swapped = write_arrays(tmp_path / "log.parquet", _rows(pi0=np.tile([[0.1, 0.9]], (5, 1)).astype(np.float32)), 2)
    with pytest.raises(ContractError, match="pi0 of the logged action must equal propensity: 5 rows"):
        _scores(swapped, table_policy(tmp_path / "p.safetensors", TABLE))


def test_policy_whose_logits_overflow_is_told(tmp_path: Path) -> None:
    """Its weights are numbers, but 2 · 3e38 has no float32."""
    log = write_arrays(tmp_path / "log.parquet", _rows(context=2 * _rows().context), 2)
    loaded = read_policy(str(table_policy(tmp_path / "p.safetensors", TABLE)))
    loaded.policy.tensors["body.1.weight"][:] = 3e38
    with pytest.raises(ContractError) as raised:
        _evaluated(log, loaded, metrics="labels")
    assert str(raised.value) == (f"p.safetensors: its probabilities on {log} are not numbers; train the policy again")


# --- what a score says of its origin ---


def test_scores_tell_where_policy_and_log_come_from(run: Callable[..., Any], tmp_path: Path) -> None:
    for words in (
        ("make-logs", "--tau", 3, "--epochs", 1, "--logging-model", "mlp", "--hidden", 8, "-o", "logs.parquet"),
        ("mask", "--rho", 0.25, "logs.parquet", "-o", "masked.parquet"),
        ("train", "--reg", "kl", "--reg-rows", "known", "--lam", 0.5, "--nu", 0.01, "--seed", 7, "--epochs", 1,
         "masked.parquet", "-o", "p.safetensors"),
        ("evaluate", "p.safetensors", "--logs", "logs.parquet", "--metrics", "labels,ips", "-o", "scores.parquet"),
    ):  # fmt: skip
        assert run(*words, "--quiet").code == 0
    table, lineages = read_scores([str(tmp_path / "scores.parquet")])
    rows = table.to_pylist()
    learned = [row for row in rows if row["policy"] == "p.safetensors"]
    logging = [row for row in rows if row["policy"] == LOGGING_POLICY]
    parts = {name: [f"{name}-accuracy-parts"] * PARTS for name in ("argmax", "sampled")}
    measured = ["argmax-accuracy", "sampled-accuracy", "accuracy", "true-risk", *["class-accuracy"] * 10]
    measured += [*parts["argmax"], *parts["sampled"], "ips"]
    assert [row["metric"] for row in learned] == [*measured, "ips-gain", "ips-gain-simultaneous", "better"]
    assert [row["label"] for row in learned] == [*[None] * 4, *range(10), *range(PARTS), *range(PARTS), *[None] * 4]
    expected = ["sampled-accuracy", "accuracy", "true-risk", *parts["sampled"], "ips"]
    assert [row["metric"] for row in logging] == expected
    log_digest = _digest(tmp_path / "logs.parquet")
    for row in learned:
        expected = {
            "policy_sha256": _digest(tmp_path / "p.safetensors"), "log": "logs.parquet", "log_sha256": log_digest,
            "method": "kl-s2blk", "seed": 7, "split": "test",
        }  # fmt: skip
        assert expected.items() <= row.items()
        expected = {
            "dataset": "sample", "tau": 3.0, "rho": 0.25, "risk": "tips", "reg": "kl", "reg_rows": "known",
            "lam": 0.5, "nu": 0.01, "model": "linear", "known": 1500, "missing": 4500, "epochs": 1, "seed": 7,
            "mask.rho": 0.25, "mask.seed": 0, "logs.tau": 3.0, "logs.adverse": False, "logs.logging_model": "mlp",
        }  # fmt: skip
        assert expected.items() <= settings_of(row).items()
        assert None not in settings_of(row).values()
    assert {row["rows"] for row in learned if row["label"] is None} == {1000}
    for name in ("class-accuracy", "argmax-accuracy-parts", "sampled-accuracy-parts"):
        assert sum(row["rows"] for row in learned if row["metric"] == name) == 1000
    expected = {
        "policy_sha256": None, "log_sha256": log_digest, "method": LOGGING_POLICY, "seed": None
    }  # fmt: skip
    assert expected.items() <= logging[0].items()
    settings = settings_of(logging[0])
    assert (settings["dataset"], settings["tau"], settings["model"], settings["logs.seed"]) == ("sample", 3.0, "mlp", 0)
    assert not settings.keys() & {"rho", "risk", "reg", "lam", "nu", "seed", "mask.rho"}
    assert [source.role for source in lineages[0].inputs] == ["policy", "logs"]
    assert lineages[0].settings == {
        "split": "auto", "metrics": "labels,ips", "interval": "normal", "level": 0.95, "nu": 0.001,
        "reward-range": None, "act": None, "compare-to": "logging", "missing-model": False,
        "reward-model": "logistic", "logging-feature": "none", "model-folds": 5, "bootstrap-samples": 1000,
        "seed": 0,
    }  # fmt: skip


def test_foreign_log_gives_its_file_name_as_the_dataset(run: Callable[..., Any], tmp_path: Path) -> None:
    """Through a mask as well, for the policy and for the logging policy alike."""
    log = write_arrays(tmp_path / "log.parquet", _rows(pi0=None), 2)
    pq.write_table(pq.read_table(log).replace_schema_metadata(None), tmp_path / "clicks.parquet")
    for words in (
        ("mask", "--rho", 1, "clicks.parquet", "-o", "masked.parquet"),
        ("train", "masked.parquet", "--reg", "wce", "--reward-range", "0,1", "--epochs", 1, "-o", "p.safetensors"),
        (
            "evaluate",
            "p.safetensors",
            "--logs",
            "clicks.parquet",
            "--logs",
            "masked.parquet",
            "--metrics",
            "sampled-accuracy",
        ),
    ):
        ran = run(*words, "--quiet")
        assert (ran.code, ran.stderr) == (0, "")
    table, _ = read_scores([str(tmp_path / "scores.parquet")])
    assert {settings_of(row)["dataset"] for row in table.to_pylist()} == {"clicks"}
    assert not any("tau" in settings_of(row) for row in table.to_pylist())
    assert table["log"].to_pylist() == ["clicks.parquet"] * 2 + ["masked.parquet"] * 2


def test_scores_file_has_one_row_a_policy_log_and_metric(run: Callable[..., Any], tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_arrays(tmp_path / f"{name}.parquet", _rows(), 2, replace(MADE, settings={"dataset": name, "tau": 2}))
    table_policy(tmp_path / "p.safetensors", TABLE)
    table_policy(tmp_path / "q.safetensors", TABLE[::-1])
    ran = run("evaluate", "p.safetensors", "q.safetensors", "--logs", "a.parquet", "--logs", "b.parquet")
    assert ran.code == 0
    assert ran.stdout == ""
    table: pa.Table = read_scores([str(tmp_path / "scores.parquet")])[0]
    keys = list(zip(*(table[name].to_pylist() for name in ("policy", "log", "metric", "label")), strict=True))
    # Without gamma, which is of missing feedback, and a bound, which is of a declared range; with the accuracies of two
    # classes and the shares of the bins. The rows are too few for parts.
    own = len(METRICS.names) - 6 + 2 + len(WEIGHT_EDGES)
    assert len(keys) == len(set(keys)) == 2 * (3 * own + 2 * len(gains.NAMES))
    logging = table.filter(pa.compute.equal(table["method"], LOGGING_POLICY))
    assert {(row["log"], settings_of(row)["dataset"]) for row in logging.to_pylist()} == {
        ("a.parquet", "a"),
        ("b.parquet", "b"),
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_features_in_another_order_are_refused(tmp_path: Path) -> None:
    """A policy knows the names of its features; the same columns reversed are not the same context."""
    columns = {"f_a": [0.0, 1.0], "f_b": [1.0, 0.0], "action": [0, 1], "propensity": [0.5, 0.5], "cost": [-1.0, 0.0]}
    right, wrong = tmp_path / "right.parquet", tmp_path / "wrong.parquet"
    pq.write_table(pa.table({**columns, "label": [0, 1]}), right)
    pq.write_table(pa.table({name: columns[name] for name in reversed(columns)} | {"label": [0, 1]}), wrong)
    flags = ["--context-columns", "f_*"]
    runner = CliRunner()
    policy, out = str(tmp_path / "p.safetensors"), str(tmp_path / "s.parquet")
    assert (
        runner.invoke(
            app, ["train", str(right), *flags, "--method", "wce-s2bl", "--epochs", "1", "-o", policy]
        ).exit_code
        == 0
    )
    score = ["evaluate", policy, "--split", "all", "-o", out, "--logs"]
    assert runner.invoke(app, [*score, str(right), *flags]).exit_code == 0
    refused = runner.invoke(app, [*score, str(wrong), *flags, "--force"])
    assert refused.exit_code == 2
    assert "its context columns are f_a, f_b, the log's are f_b, f_a: another order" in refused.stderr
    assert runner.invoke(app, [*score, str(wrong), "--context-columns", "f_a,f_b", "--force"]).exit_code == 0
