"""Policies are scored as they act: values, health, divergences and bounds, and accuracies by their names."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from learning_fixtures import arrays_of, blobs, one_hot, table_policy, write_arrays
from score_fixtures import settings_of

from s2bl_cli.contract.acts import parse_act
from s2bl_cli.contract.scores import LOGGING_POLICY, read_scores

Run = Callable[..., Any]

TABLE = [[0.9, 0.1], [0.4, 0.6]]


def _write(folder: Path) -> None:
    """Contexts 0 0 1 1; labels 0 0 1 0; the logging policy is uniform."""
    rows = arrays_of(
        one_hot([0, 0, 1, 1], 2), [0, 1, 1, 0], [0.5] * 4, [-1, 0, -1, -1], label=[0, 0, 1, 0], pi0=[[0.5, 0.5]] * 4
    )
    write_arrays(folder / "log.parquet", rows, 2)


def _values(folder: Path, policy: str) -> dict[str, float]:
    table, _ = read_scores([str(folder / "scores.parquet")])
    return {r["metric"]: r["value"] for r in table.to_pylist() if r["policy"] == policy and r["label"] is None}


ACTS = {
    # π(0|x) and π(1|x) in both contexts
    "softmax": TABLE,
    "argmax": [[1, 0], [0, 1]],
    "epsilon=0.2": [[0.9, 0.1], [0.1, 0.9]],
    "temperature=0.5": [[0.81 / 0.82, 0.01 / 0.82], [0.16 / 0.52, 0.36 / 0.52]],
}


@pytest.mark.parametrize("by", ["the file", "--act"])
@pytest.mark.parametrize("word", ACTS)
def test_everything_is_of_the_policy_as_it_acts_by_hand(run: Run, tmp_path: Path, word: str, by: str) -> None:
    """w = 2π(a|x); rewards 1 0 1 1. The argmax is right in 3 of 4 rows; draws of the softmax in 0.9 0.9 0.6 0.4."""
    _write(tmp_path)
    table_policy(tmp_path / "p.safetensors", TABLE, act=parse_act(word if by == "the file" else "argmax"))
    words = ("--act", word) if by == "--act" else ()
    assert run("evaluate", "p.safetensors", "--logs", "log.parquet", *words).code == 0
    measured, pi = _values(tmp_path, "p.safetensors"), np.array(ACTS[word])
    logged = pi[[0, 0, 1, 1], [0, 1, 1, 0]]
    assert measured["ips"] == pytest.approx((2 * logged * [1, 0, 1, 1]).mean(), rel=1e-6)
    assert measured["weight-max"] == pytest.approx(2 * logged.max(), rel=1e-6)
    entropy = (pi * np.log(np.maximum(pi, 1e-300))).sum(axis=1)[[0, 0, 1, 1]]
    assert measured["kl-exact"] == pytest.approx((entropy + np.log(2)).mean(), rel=1e-5)
    assert measured["accuracy"] == pytest.approx(pi[[0, 0, 1, 1], [0, 0, 1, 0]].mean(), rel=1e-6)
    assert measured["true-risk"] == pytest.approx(-measured["accuracy"], rel=1e-6)
    assert measured["argmax-accuracy"] == pytest.approx(0.75)
    assert measured["sampled-accuracy"] == pytest.approx(0.7, rel=1e-6)


def test_the_logging_and_the_uniform_policy_act_as_they_are(run: Run, tmp_path: Path) -> None:
    _write(tmp_path)
    assert run("evaluate", "uniform", "--logs", "log.parquet", "--act", "argmax").code == 0
    for name in ("uniform", LOGGING_POLICY):
        assert _values(tmp_path, name)["accuracy"] == pytest.approx(0.5)
        assert _values(tmp_path, name)["ips"] == pytest.approx(0.75)


@pytest.mark.parametrize("word", ACTS)
def test_probabilities_of_another_tool_act_as_asked(run: Run, tmp_path: Path, word: str) -> None:
    _write(tmp_path)
    table_policy(tmp_path / "p.safetensors", TABLE)
    pq.write_table(pa.table({"pi": np.array(TABLE)[[0, 0, 1, 1]].tolist()}), "other.parquet")
    assert run("evaluate", "p.safetensors", "other.parquet", "--logs", "log.parquet", "--act", word).code == 0
    own, other = (_values(tmp_path, name) for name in ("p.safetensors", "other.parquet"))
    assert own == pytest.approx(other, rel=1e-5, abs=1e-6)


def test_settings_of_scores_say_how_a_policy_acted(run: Run, tmp_path: Path) -> None:
    """Nothing for the softmax at temperature 1, as in scores of before; and not what --act auto chose if --act is
    given."""
    _write(tmp_path)
    settings = {"risk": "tips", "reg": "wce", "reg-rows": "all", "seed": 0, "act": "argmax"}
    table_policy(tmp_path / "p.safetensors", TABLE, settings, parse_act("argmax"))
    for words, act in (((), "argmax"), (("--act", "epsilon=0.1"), "epsilon=0.1"), (("--act", "softmax"), None)):
        assert run("evaluate", "p.safetensors", "--logs", "log.parquet", "--force", *words).code == 0
        rows = read_scores([str(tmp_path / "scores.parquet")])[0].to_pylist()
        found = {row["policy"]: settings_of(row).get("act") for row in rows}
        assert found == {"p.safetensors": act, LOGGING_POLICY: None}


def test_report_has_a_column_for_each_way_to_act(run: Run, tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", blobs(), 3)
    table_policy(tmp_path / "p.safetensors", np.full((3, 3), 0.2) + 0.4 * np.eye(3))
    for act in ("softmax", "argmax"):
        words = ("--logs", "log.parquet", "--act", act, "-o", f"{act}.parquet")
        assert run("evaluate", "p.safetensors", *words).code == 0
    ran = run("report", "softmax.parquet", "argmax.parquet", "--metric", "accuracy")
    assert (ran.code, ran.stderr) == (0, "")
    header, _, cells = [line for line in ran.stdout.splitlines() if line.startswith("|")][:3]
    assert [cell.strip() for cell in header.split("|")][-4:-1] == [
        "WCE-S2BL",
        "WCE-S2BL (act argmax)",
        "Logging policy",
    ]
    drawn, greedy = (float(re.findall(r"[\d.]+", cell)[0]) for cell in cells.split("|")[-4:-2])
    assert greedy > drawn + 10


def test_the_summary_says_how_a_policy_acts(run: Run, tmp_path: Path) -> None:
    _write(tmp_path)
    table_policy(tmp_path / "p.safetensors", TABLE)
    ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", "--act", "epsilon=0.2")
    (line,) = [line for line in ran.stderr.splitlines() if line.startswith("p.safetensors")]
    assert line.startswith("p.safetensors (epsilon=0.2) on log.parquet: accuracy 0.7000 ± ")
