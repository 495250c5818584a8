"""`s2bl inspect`: every figure against numpy on tiny files, and nothing from a file reaches a terminal raw."""

import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from score_fixtures import history_row, row_of
from typer.testing import CliRunner

from s2bl_cli.app import app
from s2bl_cli.contract.checkpoints import write_checkpoint
from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.history import HistoryRow, write_history
from s2bl_cli.contract.lineage import Source, step_of
from s2bl_cli.contract.logs.propensities import MAX_BARS, Bar, PropensityHistogram
from s2bl_cli.contract.logs.reading import LogArrays
from s2bl_cli.contract.logs.schema import LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer
from s2bl_cli.contract.policies import NetworkSpec, Policy, write_policy
from s2bl_cli.contract.scores import SCHEMA, Score, write_scores
from s2bl_cli.inspection.description import _blocks

SPEC = LogSpec(actions=4, context=ContextSpec("uint8", (1, 4, 4)), optional=("label", "split"))
MADE = step_of("make-logs", {"dataset": "sample", "tau": 10.0, "seed": 3, "data-dir": "/a/folder/far/away"})
MASKED = step_of("mask", {"rho": 0.5, "seed": 0}, (Source("logs", "ab" * 32, None, MADE),))
MASKED_LINES = [  # a document keeps its settings in the order of their names
    "s2bl make-logs --data-dir /a/folder/far/away --dataset sample --seed 3 --tau 10.0 -o 1-make-logs.parquet",
    "s2bl mask --rho 0.5 --seed 0 1-make-logs.parquet -o out.parquet",
]
PERCENTS = {"q01": 1, "q10": 10, "q50": 50, "q90": 90, "q99": 99}
NASTY = "\x1b[31mred\x07\x9b2J\u202e[bold]"


def inspect(*words: object, stdin: bytes | None = None) -> Any:
    return CliRunner().invoke(app, ["inspect", *map(str, words)], input=stdin)


def said(*words: object, stdin: bytes | None = None) -> str:
    result = inspect(*words, stdin=stdin)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def facts(*words: object, stdin: bytes | None = None) -> Any:
    return json.loads(said(*words, "--json", stdin=stdin))


def refusal(*words: object, stdin: bytes | None = None) -> str:
    result = inspect(*words, stdin=stdin)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("s2bl: ")
    assert result.stderr.count("\n") == 1
    return str(result.stderr)


def random_rows(rows: int, *, seed: int = 0, spec: LogSpec = SPEC) -> LogArrays:
    random = np.random.default_rng(seed)
    return LogArrays(
        context=random.integers(0, 256, (rows, *spec.context.shape), dtype=np.uint8),
        action=random.integers(0, spec.actions, rows, dtype=np.int32),
        propensity=(10 ** random.uniform(-5, 0, rows)).astype(np.float32),
        cost=-random.random(rows, dtype=np.float32),
        known=random.random(rows) < 0.4,
        is_test=random.random(rows) < 0.25,
        label=random.integers(0, spec.actions, rows, dtype=np.int32),
        pi0=None,
    )


def write_log(path: Path, rows: LogArrays, *, spec: LogSpec = SPEC, lineage: Any = MASKED, parts: int = 3) -> Path:
    whole = log_batch(rows, spec)
    with log_writer(str(path), spec, lineage, force=True) as writer:
        for piece in np.array_split(np.arange(rows.rows), parts):
            writer.write(whole.slice(piece[0], len(piece)) if len(piece) else whole.slice(0, 0))
    return path


def write_foreign(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def a_policy(**changes: Any) -> Policy:
    weights = {
        "shift": np.zeros(16, np.float32),
        "scale": np.ones(16, np.float32),
        "body.1.weight": np.ones((4, 16), np.float32),
        "body.1.bias": np.zeros(4, np.float32),
        "body.2.running_mean": np.zeros(4, np.float32),
    }
    trained = step_of("train", {"reg": "wce", "lam": 0.1}, (Source("logs", "cd" * 32, None, MASKED),))
    policy = Policy(NetworkSpec("linear", SPEC.context, 4), 900, 300, trained, weights)
    return dataclasses.replace(policy, **changes)


def a_score(**changes: Any) -> Score:
    told = {"policy": "p.safetensors", "log": "l.parquet", "log_sha256": "ef" * 32, "method": "tips+wce"}
    figures = {"split": "test", "metric": "argmax-accuracy", "value": 0.8125, "stderr": 0.01, "rows": 1000}
    made: Score = row_of(Score, **{**told, **figures})
    return dataclasses.replace(made, **changes)


def expected_split(rows: LogArrays, chosen: Any) -> dict[str, Any]:
    """The same figures the plain way: all rows in memory, one action at a time."""
    known, cost, action = rows.known[chosen], rows.cost[chosen].astype(np.float64), rows.action[chosen]
    return {
        "rows": int(chosen.sum()),
        "known": int(known.sum()),
        "missing": int((~known).sum()),
        "rho": pytest.approx(known.mean()),
        "feedback": {
            "min": pytest.approx(cost[known].min()),
            "mean": pytest.approx(cost[known].mean()),
            "max": pytest.approx(cost[known].max()),
        },
        "actions_logged": len(np.unique(action)),
        "by_action": [
            {
                "action": int(a),
                "rows": int((action == a).sum()),
                "share": pytest.approx((action == a).mean()),
                "known": int((known & (action == a)).sum()),
                "mean_feedback": pytest.approx(cost[known & (action == a)].mean()),
            }
            for a in np.unique(action)
        ],
    }


def nearest_rank(values: Any, percent: int) -> float:
    return float(np.sort(values)[max(1, -(-len(values) * percent // 100)) - 1])


# Logs


@pytest.mark.parametrize("sign", [-1, 1])  # a missing cost reads as 0: below the known ones, or above them
def test_every_figure_of_a_log_is_numpys(tmp_path: Path, sign: int) -> None:
    rows = random_rows(3000)
    rows = dataclasses.replace(rows, cost=sign * (np.abs(rows.cost) + 1))
    found = facts(write_log(tmp_path / "log.parquet", rows))
    for split, chosen in (("train", ~rows.is_test), ("test", rows.is_test)):
        quantiles, histogram = found[split].pop("propensity"), found[split].pop("histogram")
        assert found[split] == expected_split(rows, chosen)
        propensity = rows.propensity[chosen]
        assert np.float32(quantiles["min"]) == propensity.min()
        assert np.float32(quantiles["max"]) == propensity.max()
        for name, percent in PERCENTS.items():
            exact = nearest_rank(propensity, percent)
            assert exact <= np.float32(quantiles[name]) <= exact * (1 + 2**-10)
        assert sum(bar["rows"] for bar in histogram) == len(propensity)


def test_a_log_says_what_it_is(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.parquet", random_rows(50))
    found = facts(path)
    digest = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
    told = {key: found[key] for key in found if key not in ("train", "test")}
    assert told == {
        "kind": "logs",
        "version": 1,
        "name": str(path),
        "files": 1,
        "sha256": digest,
        "rows": 50,
        "actions": 4,
        "context": {"dtype": "uint8", "shape": [1, 4, 4], "names": []},
        "columns": ["context", "action", "propensity", "cost", "label", "split"],
        "feedback_kind": "cost",
        "extra_columns": [],
        "ignored_columns": [],
        "action_names": [],
        "warnings": [],
        "lineages": [MASKED_LINES],
    }


def test_quantiles_are_exact_where_propensities_are_few(tmp_path: Path) -> None:
    rows = dataclasses.replace(
        random_rows(100),
        propensity=np.repeat(np.float32([0.01, 0.1, 0.7, 1]), [2, 9, 80, 9]),
        is_test=np.zeros(100, bool),
    )
    found = facts(write_log(tmp_path / "log.parquet", rows))["train"]
    assert found["propensity"] == {
        "min": 0.01, "q01": 0.01, "q10": 0.1, "q50": 0.7, "q90": 0.7, "q99": 1.0, "max": 1.0,
    }  # fmt: skip
    assert [bar for bar in found["histogram"] if bar["rows"]] == [
        {"low": 0.01, "high": 0.015, "rows": 2},
        {"low": 0.1, "high": 0.15, "rows": 9},
        {"low": 0.7, "high": 1.0, "rows": 89},
    ]


def test_words_for_people(tmp_path: Path) -> None:
    rows = random_rows(3000)
    text = said(write_log(tmp_path / "log.parquet", rows))
    train = ~rows.is_test
    known = int(rows.known[train].sum())
    counts = [f"{train.sum():,}", f"{known:,}", f"{train.sum() - known:,}", f"{known / train.sum():.4g}"]
    assert "log.parquet: logs, contract version 1\n" in text
    assert f"rows     3,000 ({train.sum():,} train, {3000 - train.sum():,} test)\n" in text
    assert "context  1×4×4 uint8\n" in text
    assert ["train", *counts] in [line.split() for line in text.splitlines()]
    assert "█" * 40 in text
    assert "Made by\n" + "\n".join(MASKED_LINES) + "\n" in text
    assert "\x1b" not in text
    body = text.partition("Made by")[0].splitlines()[1:]
    assert max(map(len, body)) <= 80
    assert not any(line != line.rstrip() for line in body)


def test_a_pipe_gets_no_colour_even_where_colour_is_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in said(write_log(tmp_path / "log.parquet", random_rows(50)))


def test_a_log_without_a_split_is_all_train(tmp_path: Path) -> None:
    spec = LogSpec(4, SPEC.context, ("label",))
    path = write_log(tmp_path / "log.parquet", random_rows(50), spec=spec)
    found = facts(path)
    assert (found["train"]["rows"], found["test"]["rows"]) == (50, 0)
    assert found["test"]["rho"] is None
    assert found["test"]["propensity"] is None
    assert "\ntest " not in said(path)


def test_a_log_without_any_feedback(tmp_path: Path) -> None:
    rows = dataclasses.replace(random_rows(50), known=np.zeros(50, bool))
    path = write_log(tmp_path / "log.parquet", rows)
    found = facts(path)["train"]
    assert (found["known"], found["rho"], found["feedback"]) == (0, 0.0, None)
    assert {one["mean_feedback"] for one in found["by_action"]} == {None}
    assert "Known costs" not in said(path)


def test_a_log_without_rows(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.parquet", random_rows(0), parts=1)
    assert facts(path)["rows"] == 0
    assert "rows     0 (0 train, 0 test)" in said(path)


def test_only_test_rows(tmp_path: Path) -> None:
    rows = dataclasses.replace(random_rows(50), is_test=np.ones(50, bool))
    assert "Actions of the test rows" in said(write_log(tmp_path / "log.parquet", rows))


def test_the_most_frequent_of_many_actions(tmp_path: Path) -> None:
    """Action a of 60 has a rows: 59 are logged, and 59 to 40 are the most frequent."""
    action = np.repeat(np.arange(60), np.arange(60)).astype(np.int32)
    spec = LogSpec(60, SPEC.context, SPEC.optional)
    rows = dataclasses.replace(random_rows(len(action), spec=spec), action=action, is_test=np.zeros(len(action), bool))
    path = write_log(tmp_path / "log.parquet", rows, spec=spec)
    text = said(path)
    table = text.partition("Actions of the train rows")[2].partition("Made by")[0].splitlines()
    assert table[0] == " (1 of 60 never logged; the 20 most frequent of 59)"
    assert [int(line.split()[0]) for line in table[2:22]] == list(range(59, 39, -1))
    assert table[22:] == [""]
    assert [one["action"] for one in facts(path)["train"]["by_action"]] == list(range(1, 60))


def test_listed_actions_are_bounded(tmp_path: Path) -> None:
    action = np.append(np.arange(1500), [1499, 1499, 3]).astype(np.int32)
    spec = LogSpec(1 << 24, SPEC.context, ())
    rows = dataclasses.replace(random_rows(len(action)), action=action)
    found = facts(write_log(tmp_path / "log.parquet", rows, spec=spec))["train"]
    assert found["actions_logged"] == 1500
    assert len(found["by_action"]) == 1000
    assert [one["action"] for one in found["by_action"][:3]] == [1499, 3, 0]


# Logs of other tools, and several files


def test_a_foreign_log_with_other_names(tmp_path: Path) -> None:
    path = write_foreign(
        tmp_path / "theirs.parquet",
        x_0=[0.5, 1.5, 2.5],
        x_1=[1, 2, 3],
        arm=[0, 2, 2],
        prob=[0.25, 0.5, 0.5],
        click=[1.0, None, 0.0],
        user=["a", "b", "c"],
    )
    names = ("--context-columns", "x_*", "--action-column", "arm", "--propensity-column", "prob")
    found = facts(path, *names, "--reward-column", "click")
    assert (found["version"], found["lineages"], found["actions"]) == (None, [], 3)
    assert found["context"] == {"dtype": "float32", "shape": [2], "names": ["x_0", "x_1"]}
    assert found["extra_columns"] == [{"name": "user", "type": "string"}]
    train = found["train"]
    assert (train["rows"], train["known"], train["missing"]) == (3, 2, 1)
    assert found["feedback_kind"] == "reward"
    assert found["columns"] == ["context", "action", "propensity", "reward"]
    assert train["feedback"] == {"min": 0.0, "mean": 0.5, "max": 1.0}
    assert train["by_action"][1] == {
        "action": 2,
        "rows": 2,
        "share": pytest.approx(2 / 3),
        "known": 1,
        "mean_feedback": 0.0,
    }
    text = said(path, *names, "--reward-column", "click")
    assert "theirs.parquet: logs, made by another tool\n" in text
    assert "user (string)" in text
    assert ["train", "0", "0.5", "1"] in [line.split() for line in text.splitlines()]
    assert "\nKnown rewards\n" in text
    assert "mean reward\n" in text
    assert "cost" not in text.replace(str(tmp_path), "")
    assert "Made by" not in text


def test_ignored_columns_and_warnings(tmp_path: Path) -> None:
    columns = {"context": [[1.0], [2.0]], "action": [1, 2], "propensity": [0.5, 0.5], "cost": [0.0, -1.0]}
    pq.write_table(pa.table({**columns, "label": ["cat", "dog"]}), tmp_path / "log.parquet")
    found = facts(tmp_path / "log.parquet")
    assert found["ignored_columns"] == [{"name": "label", "type": "string"}]
    (warning,) = found["warnings"]
    ran = inspect(tmp_path / "log.parquet")
    assert "ignored  label (string)\n" in ran.stdout
    assert f"warning: {warning}\n" in ran.stderr


def test_what_actions_stand_for(tmp_path: Path) -> None:
    spec = dataclasses.replace(SPEC, action_names=("up", "down\x1b[31m", "left", "right"))
    rows = random_rows(50)
    with log_writer(str(tmp_path / "log.parquet"), spec, step_of("make-logs", {}), force=True) as writer:
        writer.write(log_batch(rows, spec))
    assert facts(tmp_path / "log.parquet")["action_names"] == ["up", "down [31m", "left", "right"]
    told = inspect(tmp_path / "log.parquet").stdout
    assert "\n1 down [31m  " in told
    assert "\x1b" not in told


def test_parquet_that_is_no_log_says_what_it_lacks(tmp_path: Path) -> None:
    told = refusal(write_foreign(tmp_path / "other.parquet", a=[1], b=[2]))
    assert "no column 'action' for the action: name it with --action-column" in told
    assert "its columns: a, b" in told


def test_several_files_are_one_log(tmp_path: Path) -> None:
    write_log(tmp_path / "a.parquet", random_rows(40, seed=1))
    write_log(tmp_path / "b.parquet", random_rows(60, seed=2))
    for names in ([tmp_path], [tmp_path / "*.parquet"], [tmp_path / "a.parquet", tmp_path / "b.parquet"]):
        found = facts(*names)
        assert (found["rows"], found["files"], found["version"]) == (100, 2, 1)
        assert found["lineages"] == [MASKED_LINES]
    assert "2, read as one log" in said(tmp_path)


def test_a_foreign_file_among_ours_leaves_no_version(tmp_path: Path) -> None:
    ours = write_log(tmp_path / "a.parquet", random_rows(40))
    theirs = tmp_path / "b.parquet"
    pq.write_table(pq.read_table(ours).replace_schema_metadata(None), theirs)
    found = facts(ours, theirs)
    assert (found["rows"], found["version"], found["lineages"]) == (80, None, [MASKED_LINES])


def test_a_log_from_stdin(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.parquet", random_rows(40))
    piped, named = facts("-", stdin=path.read_bytes()), facts(path)
    assert piped.pop("name") == "stdin"
    named.pop("name")
    assert piped == named


# Policies and scores


def test_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    write_policy(a_policy(), str(path), force=False)
    found = facts(path)
    assert (found["kind"], found["version"], found["model"], found["actions"]) == ("policy", 2, "linear", 4)
    assert found["context"] == {"dtype": "uint8", "shape": [1, 4, 4], "names": []}
    assert (found["training_rows"], found["training_known"]) == (900, 300)
    assert found["parameters"] == 4 * 16 + 4
    assert {"name": "body.1.weight", "dtype": "float32", "shape": [4, 16]} in found["tensors"]
    assert [tensor["name"] for tensor in found["tensors"]] == sorted(a_policy().tensors)
    assert len(found["tensors"]) == 5
    assert len(found["sha256"]) == 64
    assert found["lineages"][0][-1] == "s2bl train --lam 0.1 --reg wce 2-mask.parquet -o policy.safetensors"
    text = said(path)
    assert "trained on  900 rows, 300 of them with known feedback\n" in text
    assert "acts by     softmax\n" in text
    assert "parameters  68\n" in text
    assert "body.1.weight        float32  4×16\n" in text


def test_scores_and_policies_from_stdin(tmp_path: Path) -> None:
    write_policy(a_policy(), str(tmp_path / "policy"), force=False)
    write_scores([a_score()], step_of("evaluate", {}), str(tmp_path / "scores"), force=False)
    for name in ("policy", "scores"):
        content = (tmp_path / name).read_bytes()
        assert facts("-", stdin=content)["name"] == "stdin"
        damaged = content[: len(content) // 2] + bytes(40) + content[len(content) // 2 + 40 :]
        for broken in (content[:-9], damaged):
            told = refusal("-", stdin=broken)
            assert told.startswith("s2bl: stdin")
            assert "spool" not in told


def test_scores_by_class_and_by_bin_say_of_which(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    classes = [a_score(metric="class-accuracy", label=i, value=i / 4, stderr=None) for i in range(3)]
    share = a_score(metric="weight-share", label=1, interval="bin", low=0.5, high=2.0, stderr=None)
    write_scores([a_score(), *classes, share], step_of("evaluate", {}), str(path), force=False)
    assert [(one["metric"], one["label"]) for one in facts(path)["values"]] == [
        ("argmax-accuracy", None), ("class-accuracy", 0), ("class-accuracy", 1), ("class-accuracy", 2),
        ("weight-share", 1),
    ]  # fmt: skip
    assert said(path).partition("Values ± standard error\n")[2].partition("\n\n")[0].splitlines() == [
        "p.safetensors",
        "  argmax-accuracy          0.8125 ± 0.01         1,000 rows",
        "  class-accuracy, class 0  0                     1,000 rows",
        "  class-accuracy, class 1  0.25                  1,000 rows",
        "  class-accuracy, class 2  0.5                   1,000 rows",
        "  weight-share, bin 1      0.8125                1,000 rows",
    ]


def test_what_the_actions_of_a_policy_stand_for(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    write_policy(a_policy(action_names=("up", "down\x1b[31m", "left", "right")), str(path), force=False)
    assert facts(path)["action_names"] == ["up", "down [31m", "left", "right"]
    assert "actions     4: up, down [31m, left, right\n" in said(path)


def test_scores(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    scores = [
        a_score(),
        a_score(policy="q.safetensors", method="none+wce", value=0.75),
        a_score(metric="snips", value=float("nan"), stderr=None),
    ]
    write_scores(scores, step_of("evaluate", {}, (Source("policy", "ab" * 32),)), str(path), force=False)
    found = facts(path)
    assert (found["kind"], found["version"], found["rows"]) == ("scores", 2, 3)
    assert found["policies"] == ["p.safetensors", "q.safetensors"]
    assert (found["logs"], found["splits"]) == (["l.parquet"], ["test"])
    assert found["methods"] == ["tips+wce", "none+wce"]
    assert found["metrics"] == ["argmax-accuracy", "snips"]
    assert [one["value"] for one in found["values"]] == [0.8125, 0.75, None]
    assert found["lineages"][0][0].startswith("s2bl evaluate ")
    assert said(path).partition("Values ± standard error\n")[2].partition("\n\n")[0].splitlines() == [
        "p.safetensors, method tips+wce",
        "  argmax-accuracy  0.8125 ± 0.01         1,000 rows",
        "q.safetensors, method none+wce",
        "  argmax-accuracy  0.75 ± 0.01           1,000 rows",
        "p.safetensors, method tips+wce",
        "  snips            –                     1,000 rows",
    ]


def a_history_row(**changes: Any) -> HistoryRow:
    row: HistoryRow = history_row("p.safetensors", "wce-s2bl", 0, 1, "loss", 2.0, lam=1.0, nu=0.001)
    return dataclasses.replace(row, **changes)


def test_a_history(tmp_path: Path) -> None:
    path = tmp_path / "history.parquet"
    rows = [
        a_history_row(epoch=2, value=0.5),
        a_history_row(),
        a_history_row(quantity="risk", value=float("nan")),
        a_history_row(policy="q.safetensors", seed=1, value=3.0),
    ]
    write_history(rows, step_of("train", {"seed": 0}, (Source("logs", "ab" * 32),)), str(path), force=False)
    found = facts(path)
    assert (found["kind"], found["version"], found["rows"], found["epochs"]) == ("history", 2, 4, 2)
    assert found["policies"] == ["p.safetensors", "q.safetensors"]
    assert (found["methods"], found["seeds"], found["quantities"]) == (["wce-s2bl"], [0, 1], ["loss", "risk"])
    assert found["curves"] == [
        {"policy": "p.safetensors", "quantity": "loss", "epochs": 2, "first": 2.0, "last": 0.5},
        {"policy": "p.safetensors", "quantity": "risk", "epochs": 1, "first": None, "last": None},
        {"policy": "q.safetensors", "quantity": "loss", "epochs": 1, "first": 3.0, "last": 3.0},
    ]
    words = said(path)
    assert words.startswith(f"{path}: history, contract version 2\n")
    assert "p.safetensors\n  loss  2 → 0.5\n  risk  – → –\nq.safetensors\n  loss  3 → 3\n" in words
    assert "Made by\ns2bl train --seed 0 logs-abababab.parquet -o policy.safetensors\n" in words


TENSORS = {"a": np.zeros((2, 3), np.float32)}
CURRENT = {"stage": "training", "key": "1", "epoch": 4, "step": 5, "tensors": TENSORS, "sums": {}, "results": {}}
RESULT = {"tensors": {}, "held_out": None, "curve": [], "best_epoch": 1}
FINISHED = {"choosing": {"0": RESULT, "1": RESULT}, "training": {"0": RESULT}}
CONTENT: dict[str, Any] = {"streamed": False, "finished": FINISHED, "current": CURRENT}


def write_a_checkpoint(path: Path, content: Any) -> Path:
    run = step_of("train", {"seed": 0}, (Source("logs", "ab" * 32),))
    write_checkpoint(run, content, str(path))
    return path


def test_a_checkpoint(tmp_path: Path) -> None:
    path = write_a_checkpoint(tmp_path / "p.checkpoint", CONTENT)
    found = facts(path)
    assert (found["kind"], found["version"], found["policies_done"]) == ("checkpoint", 2, 3)
    assert (found["stage"], found["epoch"], found["step"]) == ("training", 4, 5)
    assert (found["tensors"], found["bytes"]) == (1, 24)
    words = said(path)
    assert words.startswith(f"{path}: checkpoint, contract version 2\n")
    assert "in progress        training: 4 epochs and 5 steps of the next finished\n" in words
    assert "Made by\ns2bl train --seed 0 logs-abababab.parquet -o policy.safetensors\n" in words


def test_a_checkpoint_between_two_fits(tmp_path: Path) -> None:
    path = write_a_checkpoint(tmp_path / "p.checkpoint", {**CONTENT, "current": None})
    assert (facts(path)["stage"], facts(path)["epoch"]) == (None, None)
    assert "in progress" not in said(path)


def test_a_history_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "history"
    row = a_history_row(policy=NASTY, method=NASTY, quantity=NASTY)
    write_history([row], step_of("train", {}), str(path), force=False)
    assert_harmless(said(path))
    assert_harmless(said(path, "--json"))


@pytest.mark.parametrize(
    "content",
    [
        {"more": 1},
        {"finished": 3, "current": None},
        {"finished": {}, "current": {}},
        {"finished": {"a": 1}, "current": None},
    ],
)
def test_a_checkpoint_whose_content_is_damaged(tmp_path: Path, content: Any) -> None:
    path = write_a_checkpoint(tmp_path / "p.checkpoint", content)
    assert refusal(path) == f"s2bl: {path} is damaged; drop --resume to start over\n"


def test_what_train_leaves_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history of `train`, and the checkpoint of one that is stopped at its end."""
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "log.parquet", random_rows(60))
    monkeypatch.setattr("s2bl_cli.training.learner.Checkpoint.remove", lambda self: None)
    words = ["train", "log.parquet", "--reg", "wce", "--epochs", "2", "--history", "h.parquet", "-o", "p.safetensors"]
    result = CliRunner().invoke(app, [*words, "--checkpoint-every", "1"])
    assert result.exit_code == 0, result.output
    assert (facts("h.parquet")["kind"], facts("h.parquet")["epochs"]) == ("history", 2)
    found = facts("p.checkpoint")
    assert (found["kind"], found["stage"], found["epoch"]) == ("checkpoint", "training", 2)


def test_many_scores_are_cut_and_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    write_scores([a_score(policy=f"p{i}") for i in range(1001)], step_of("evaluate", {}), str(path), force=False)
    text = said(path)
    assert "Values ± standard error (the first 20 of 1,001)" in text
    assert "and 989 more" in text
    assert text.count("argmax-accuracy ") == 20
    assert len(facts(path)["values"]) == 1000


def test_long_names_fold(tmp_path: Path) -> None:
    write_policy(a_policy(tensors={"q" * 59: np.zeros((1,) * 10, np.float32)}), str(tmp_path / "p"), force=False)
    lines = said(tmp_path / "p").partition("Tensors")[2].partition("Made by")[0].splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.count("q") for line in lines) == 59
    assert any(line.endswith("×".join("1" * 10)) for line in lines)


def test_the_content_decides_not_the_name(tmp_path: Path) -> None:
    write_policy(a_policy(), str(tmp_path / "a"), force=False)
    write_log(tmp_path / "b", random_rows(10))
    write_scores([a_score()], step_of("evaluate", {}), str(tmp_path / "c"), force=False)
    for name, other in (("a", "a.parquet"), ("b", "b.safetensors"), ("c", "c.txt")):
        (tmp_path / name).rename(tmp_path / other)
    assert [facts(tmp_path / name)["kind"] for name in ("a.parquet", "b.safetensors", "c.txt")] == [
        "policy",
        "logs",
        "scores",
    ]


def test_files_of_all_kinds_at_once(tmp_path: Path) -> None:
    """The logs as one, each other file by itself, one JSON object a line."""
    write_policy(a_policy(), str(tmp_path / "p"), force=False)
    write_log(tmp_path / "l1", random_rows(10))
    write_log(tmp_path / "l2", random_rows(10))
    names = [tmp_path / name for name in ("l1", "p", "l2", "p")]
    lines = [json.loads(line) for line in said(*names, "--json").splitlines()]
    assert [line["kind"] for line in lines] == ["logs", "policy", "policy"]
    assert lines[0]["rows"] == 20
    assert said(*names).count("contract version 1") == 1
    assert said(*names).count("contract version 2") == 2


def test_a_folder_of_policies_and_other_files(tmp_path: Path) -> None:
    """The logs are described first, as one log; other files follow in the order of their names."""
    for name in ("b", "a"):
        write_policy(a_policy(), str(tmp_path / f"{name}.safetensors"), force=False)
    assert [line["name"] for line in map(json.loads, said(tmp_path, "--json").splitlines())] == [
        f"{tmp_path}/a.safetensors",
        f"{tmp_path}/b.safetensors",
    ]
    write_log(tmp_path / "log.parquet", random_rows(9))
    kinds = [json.loads(line)["kind"] for line in said(tmp_path, "--json").splitlines()]
    assert kinds == ["logs", "policy", "policy"]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == (
        f"s2bl: {tmp_path} is a folder without *.parquet or *.safetensors or *.checkpoint files: check the name\n"
    )


def test_a_long_lineage_keeps_its_ends(tmp_path: Path) -> None:
    step = MADE
    for seed in range(29):
        step = step_of("mask", {"seed": seed}, (Source("logs", f"{seed:064x}", None, step),))
    path = write_log(tmp_path / "log.parquet", random_rows(10), lineage=step)
    lines = said(path).partition("Made by\n")[2].splitlines()
    assert len(lines) == 21
    assert lines[0].startswith("s2bl make-logs ")
    assert lines[19] == "… 10 more commands (--json has all) …"
    assert lines[20].startswith("s2bl mask --seed 28 ")
    assert len(facts(path)["lineages"][0]) == 30


# What is wrong


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\x89PNG\r\n\x1a\n{", b"{}", b'[{"a":1},{"b":2}]'])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.parquet"
    path.write_bytes(content)
    assert "other.parquet is not a log, scores or policy file: it starts with" in refusal(path)


def test_a_csv_is_told_from_other_files(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("x_0,action,propensity,cost\n1,0,0.5,-1\n")
    assert refusal(path) == (
        f"s2bl: {path} is not a log, scores or policy file: it starts with b'x_0,acti', and not like Parquet "
        "(b'PAR1') or safetensors: it looks like CSV; "
        "convert it, for example with polars: pl.read_csv(…).write_parquet(…)\n"
    )


def test_an_empty_or_absent_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert "empty is empty" in refusal(tmp_path / "empty")
    assert "does not exist" in refusal(tmp_path / "absent")


def test_a_flipped_bit_in_a_context_is_found(tmp_path: Path) -> None:
    """No rule for values is broken: only the page's checksum tells."""
    rows = random_rows(200)
    path = write_log(tmp_path / "log.parquet", rows)
    content = bytearray(path.read_bytes())
    content[content.index(rows.context[70].tobytes()) + 5] ^= 1
    path.write_bytes(content)
    assert "log.parquet is a damaged Parquet file" in refusal(path)


def test_a_flipped_bit_in_a_further_column_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    plain = pa.table(
        {"context": [[1.0], [2.0]], "action": [0, 1], "propensity": [0.5, 0.5], "cost": [0.0, -1.0]}
        | {"user": ["first person", "second person"]}
    )
    pq.write_table(
        plain, path, use_dictionary=False, compression="none", write_page_checksum=True, write_statistics=False
    )
    path.write_bytes(path.read_bytes().replace(b"first person", b"worst person"))
    assert "damaged" in refusal(path)


def test_a_truncated_log_and_policy_are_refused(tmp_path: Path) -> None:
    log, policy = write_log(tmp_path / "log", random_rows(20)), tmp_path / "policy"
    write_policy(a_policy(), str(policy), force=False)
    for path in (log, policy):
        path.write_bytes(path.read_bytes()[:-7])
    assert "truncated Parquet" in refusal(log)
    assert "policy is not a policy file" in refusal(policy)


def test_all_faults_of_the_values_are_told(tmp_path: Path) -> None:
    """Values that would index outside the tallies must reach the message, not a traceback."""
    path = write_foreign(
        tmp_path / "log.parquet",
        context=[[1.0], [2.0], [3.0], [4.0], [5.0]],
        action=[0, 9, -3, None, 1],
        propensity=[0.5, float("nan"), -1.0, 7.0, None],
        cost=[float("inf"), 0.0, None, 0.0, 0.0],
    )
    told = refusal(path, "--actions", 2)
    for rule in ("action must be in [0, 1]", "propensity must be in (0, 1]", "cost must be finite", "must not be null"):
        assert rule in told


def test_faults_of_rewards_are_told_as_such(tmp_path: Path) -> None:
    path = write_foreign(
        tmp_path / "log", context=[[0.0]] * 3, action=[0, 1, 0], propensity=[0.5] * 3, reward=[1.0, np.inf, np.nan]
    )
    assert refusal(path, "--reward-column", "reward").endswith(
        "log: reward must be finite, or null if it is missing (polars: fill_nan(None)): 2 rows, the first is row 1 "
        "with inf (rows count from 0); fix or drop these rows\n"
    )


def test_a_policy_in_parquet_is_refused(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.parquet", random_rows(10))
    table = pq.read_table(path)
    document = table.schema.metadata[b"s2bl"].replace(b'"kind":"logs"', b'"kind":"policy"')
    pq.write_table(table.replace_schema_metadata({b"s2bl": document}), path)
    assert "declares itself a policy file, but it is Parquet" in refusal(path)


# Text from files


def assert_harmless(text: str) -> None:
    assert "red" in text, "the nasty text was left out, so nothing was tested"
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "[bold]" in text, "it was taken as markup"


def test_a_column_name_cannot_steer_the_terminal(tmp_path: Path) -> None:
    plain = {"context": [[1.0]], "action": [0], "propensity": [0.5], "cost": [0.0]}
    path = write_foreign(tmp_path / "log.parquet", **plain, **{NASTY: [1]})
    assert_harmless(said(path))
    assert_harmless(said(path, "--json"))


def test_a_lineage_cannot_steer_the_terminal(tmp_path: Path) -> None:
    step = step_of("mask", {"rho": 0.5, "note": NASTY}, (Source("logs", "ab" * 32, NASTY),))
    path = write_log(tmp_path / "log.parquet", random_rows(5), lineage=step)
    assert_harmless(said(path))
    assert_harmless(said(path, "--json"))


def test_a_policy_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    policy = a_policy(network=NetworkSpec(NASTY, SPEC.context, 4), tensors={NASTY: np.zeros(1, np.float32)})
    write_policy(policy, str(path), force=False)
    assert_harmless(said(path))
    assert_harmless(said(path, "--json"))


@pytest.mark.parametrize(
    "column", [field.name for field in SCHEMA if field.type == pa.string() and field.name != "settings"]
)
def test_scores_cannot_steer_the_terminal(tmp_path: Path, column: str) -> None:
    path = tmp_path / "scores"
    write_scores([a_score(), a_score(**{column: NASTY})], step_of("evaluate", {}), str(path), force=False)
    for text in (said(path), said(path, "--json")):
        assert all(character.isprintable() or character == "\n" for character in text)
        if column in ("policy", "log", "method", "split", "metric"):
            assert_harmless(text)


# The distribution of propensities


def tally(*batches: Any) -> PropensityHistogram:
    found = PropensityHistogram()
    for batch in batches:
        found.add(np.asarray(batch, np.float32))
    return found


def test_batches_add_up() -> None:
    values = np.random.default_rng(0).random(1000, dtype=np.float32)
    assert tally(values[:1], values[1:400], [], values[400:]).quantiles() == tally(values).quantiles()


def test_quantiles_are_at_most_a_thousandth_too_large() -> None:
    values = np.random.default_rng(0).uniform(0.01, 1, 200_000).astype(np.float32)
    found = tally(values).quantiles()
    assert found is not None
    for name, percent in PERCENTS.items():
        exact = nearest_rank(values, percent)
        assert exact <= np.float32(getattr(found, name)) <= exact * (1 + 2**-10)


def test_no_rows_have_no_distribution() -> None:
    assert tally().quantiles() is None
    assert tally().bars() == []


def test_an_edge_belongs_to_the_bar_above_it() -> None:
    """The float32 nearest to 0.1 and its lower neighbour share a fine bin; what holds 0.1 alone lies above the edge."""
    assert tally([0.1, 0.2, 0.2, 0.15]).bars() == [Bar(0.1, 0.15, 1), Bar(0.15, 0.2, 1), Bar(0.2, 0.3, 2)]


def test_certainty_is_one_bar() -> None:
    assert tally([1, 1]).bars() == [Bar(0.7, 1.0, 2)]


@pytest.mark.parametrize("decades", [0.5, 2, 4, 10, 44])
def test_bars_are_few_and_hold_all_rows(decades: float) -> None:
    values = (10 ** np.random.default_rng(1).uniform(-decades, 0, 5000)).astype(np.float32)
    bars = tally(values).bars()
    assert 2 <= len(bars) <= MAX_BARS
    assert sum(bar.rows for bar in bars) == 5000
    assert all(low.high == high.low for low, high in itertools.pairwise(bars))
    for bar in bars:
        top = values <= bar.high if bar.high == 1 else values < bar.high
        assert bar.rows == pytest.approx(int(((values >= bar.low) & top).sum()), abs=8)


def test_a_bar_is_as_long_as_its_share() -> None:
    assert [_blocks(share) for share in (0, 1e-9, 1 / 40, 0.5 / 40, 1)] == ["", "▏", "█", "▌", "█" * 40]


# What it loads


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (["inspect", "--help"], {"torch", "polars", "matplotlib", "numpy", "pyarrow"}),
        (["inspect", "LOG", "POLICY"], {"torch", "polars", "matplotlib"}),
    ],
)
def test_heavy_packages_stay_unloaded(tmp_path: Path, words: list[str], never: set[str]) -> None:
    files = {"LOG": str(write_log(tmp_path / "log", random_rows(5))), "POLICY": str(tmp_path / "policy")}
    write_policy(a_policy(), files["POLICY"], force=False)
    script = (
        "import sys\nfrom s2bl_cli.app import app\n"
        "try: app(sys.argv[1:])\nexcept SystemExit as leave: assert not leave.code\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    command = [sys.executable, "-c", script, *(files.get(word, word) for word in words)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(run.stderr.split())
    assert "s2bl_cli.commands.inspect" in loaded
    assert not loaded & never
