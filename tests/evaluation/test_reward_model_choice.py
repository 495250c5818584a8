"""`evaluate --reward-model` and `--logging-feature`: what is fitted, recorded and reported."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from learning_fixtures import arrays_of, blobs, table_policy, write_arrays

from s2bl_cli.contract.scores import read_scores
from s2bl_cli.reward_models import mlp

MODEL_BASED = ("dm", "dr", "sndr", "switch-dr", "ppi-dr")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Blobs with half of the feedback, and the logging policy's whole distribution."""
    monkeypatch.setattr(mlp, "HIDDEN", (4,))
    monkeypatch.setattr(mlp, "_PENALTIES", (3.0,))
    monkeypatch.setattr("s2bl_cli.reward_models.reward_network._LEAST_STEPS", 60)
    path = tmp_path / "log.parquet"
    write_arrays(path, blobs(700, known=0.5), 3)
    table_policy(tmp_path / "p.safetensors", np.full((3, 3), 1 / 3))
    return path


def _scored(run: Any, *words: str, metrics: str = "value", output: str = "scores.parquet") -> pl.DataFrame:
    ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", "--split", "train", "--metrics", metrics, *words,
              "--force", "-o", output)  # fmt: skip
    assert ran.code == 0, ran.stderr
    return pl.read_parquet(output).filter(pl.col("policy") == "p.safetensors")


def _values(scores: pl.DataFrame) -> dict[str, float]:
    return {row["metric"]: row["value"] for row in scores.iter_rows(named=True) if row["label"] is None}


@pytest.mark.parametrize("name", ["ridge", "mlp"])
def test_other_models_change_the_estimates_that_use_one(run: Any, log: Path, name: str) -> None:
    """The name of the model is among the settings of the scores, and the choice in the lineage."""
    default, other = _scored(run), _scored(run, "--reward-model", name)
    before, after = _values(default), _values(other)
    for metric in before:
        base = metric.removesuffix("-simultaneous").removesuffix("-gain")
        assert (before[metric] != after[metric]) == (base in MODEL_BASED) or base == "better", metric
    assert after["dr"] == pytest.approx(before["dr"], abs=0.1)
    assert {json.loads(text).get("reward_model") for text in other["settings"]} == {name}
    assert {json.loads(text).get("reward_model") for text in default["settings"]} == {None}
    _, lineages = read_scores(["scores.parquet"])
    assert lineages[0].settings["reward-model"] == name


def test_predictions_are_clipped_to_the_declared_range(run: Any, log: Path) -> None:
    """Bernstein's bound needs the range of the terms. Rewards of this log lie on a line that `ridge` continues beyond
    1, but rewards are at most 1."""
    x = np.linspace(-1, 3, 400, dtype=np.float32)
    rows = arrays_of(x[:, None], np.arange(400) % 2, np.full(400, 0.5), -np.clip(x, 0, 1))
    write_arrays(log, rows, 2)
    values = {}
    for name, declared in (("whole", ()), ("clipped", ("--reward-range", "0,1"))):
        words = ("uniform", "--logs", "log.parquet", "--metrics", "dm", "--reward-model", "ridge", *declared)
        assert run("evaluate", *words, "-o", f"{name}.parquet").code == 0
        values[name] = _values(pl.read_parquet(f"{name}.parquet").filter(pl.col("policy") == "uniform"))["dm"]
    assert abs(values["whole"] - values["clipped"]) > 0.01


def test_auto_takes_the_model_with_the_smallest_held_out_error(run: Any, log: Path) -> None:
    """Noise in 40 features: the weak prior of `logistic` fits it, and predicts worse than the mean. Scores are those of
    the chosen model by name."""
    rng = np.random.default_rng(0)
    cost = -(rng.random(400) < 0.4).astype(np.float32)
    context, action = rng.standard_normal((400, 40)).astype(np.float32), rng.integers(0, 3, 400)
    write_arrays(log, arrays_of(context, action, np.full(400, 1 / 3), cost), 3)
    scores, chosen = {}, {}
    for name in ("auto", "ridge", "mlp"):
        words = ("uniform", "--logs", "log.parquet", "--metrics", "value", "--reward-model", name, "--force")
        assert run("evaluate", *words).code == 0
        table = pl.read_parquet("scores.parquet").filter(pl.col("policy") == "uniform")
        scores[name], chosen[name] = _values(table), json.loads(table["settings"][0]).get("reward_model")
    assert chosen["auto"] in ("ridge", "mlp")
    assert scores["auto"] == scores[chosen["auto"]]


def test_wrong_model_is_an_error_that_names_the_models(run: Any, log: Path) -> None:
    ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", "--reward-model", "forest")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: Invalid value for '--reward-model': 'forest' is not one of 'logistic', 'ridge', 'mlp', 'auto' (see: "
        "s2bl evaluate --help)\n",
    )


def test_logging_feature_is_that_of_the_log_or_of_a_copy(run: Any, log: Path) -> None:
    """The copy of a linear softmax is nearly exact, so the estimates are nearly the same. Of a uniform logging policy
    there is nothing to copy."""
    stored = _scored(run, "--logging-feature", "auto")
    assert {json.loads(text)["logging_feature"] for text in stored["settings"]} == {"stored"}
    write_arrays(log, replace(blobs(700, known=0.5), pi0=None), 3)
    missing = _scored(run, "--logging-feature", "stored")
    copied = _scored(run, "--logging-feature", "auto")
    assert {json.loads(text)["logging_feature"] for text in copied["settings"]} == {"copy"}
    without = _values(_scored(run))
    assert _values(missing) == without
    for metric in ("dm", "dr"):
        assert _values(copied)[metric] == pytest.approx(_values(stored)[metric], abs=0.002)
        assert _values(copied)[metric] != without[metric]
    write_arrays(log, replace(blobs(700, known=0.5), pi0=None, propensity=np.full(700, 1 / 3, np.float32)), 3)
    uniform = _scored(run, "--logging-feature", "auto")
    assert {json.loads(text).get("logging_feature") for text in uniform["settings"]} == {None}


def test_report_keeps_scores_of_different_models_apart(run: Any, log: Path) -> None:
    _scored(run, output="logistic.parquet")
    _scored(run, "--reward-model", "ridge", output="ridge.parquet")
    ran = run("report", "logistic.parquet", "ridge.parquet", "--table", "ope", "--metric", "dr")
    assert ran.code == 0, ran.stderr
    assert "ridge" in ran.stdout
