"""`s2bl train` without a method: what is compared, what is written, what is printed, and what is refused."""

import itertools
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from learning_fixtures import CPU, blobs, signalled_by, train_settings, write_arrays

from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.policies import read_policy
from s2bl_cli.contract.scores import read_scores
from s2bl_cli.training import auto_run
from s2bl_cli.training.auto_run import AutoRun
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.comparison import Comparison
from s2bl_cli.training.learner import Run as TrainRun
from s2bl_cli.training.settings import PORTFOLIO

Run = Callable[..., Any]
ACTIONS = 3
QUICK = ("--epochs", 3, "--batch-size", 32, "--threads", 1)
TWO = ("--candidates", "dm,tips", *QUICK)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arrays(tmp_path_factory.mktemp("auto") / "log.parquet", blobs(known=0.5), ACTIONS)


def _worse(rows: LogArrays) -> LogArrays:
    """The logging policy is right in every row that is logged, and no other action is."""
    return replace(rows, cost=np.where(rows.known, -1.0, 0.0).astype(np.float32))


def _tensors(name: str) -> dict[str, bytes]:
    return {key: value.tobytes() for key, value in read_policy(name).policy.tensors.items()}


# --- what is written ---


@pytest.mark.parametrize("candidates", ["dm,tips", "cce-s2bl"])
def test_policy_is_the_one_that_its_method_trains_alone(run: Run, log: Path, candidates: str) -> None:
    ran = run("train", log, "--candidates", candidates, *QUICK, "--json", "-o", "p.safetensors")
    assert ran.code == 0, ran.stderr
    assert "training steps" not in ran.stderr
    policy = read_policy("p.safetensors").policy
    chosen = json.loads(ran.stdout)["policies"][0]["chosen"]
    assert policy.lineage.settings["method"] == chosen.split(" ")[0]
    assert policy.asked["method"] == "auto"
    words = shlex.split(command_lines(policy.lineage)[-1])[1:]
    words = [str(log) if word == "1-make-logs.parquet" else word for word in words]
    assert run(*words[:-1], "alone.safetensors", "--threads", 1).code == 0
    assert _tensors("alone.safetensors") == _tensors("p.safetensors")
    assert read_policy("alone.safetensors").policy.acts == policy.acts


def test_every_method_has_policies_of_its_own(run: Run, log: Path) -> None:
    """Stored under one name, the second method took over those of the first."""
    ran = run("train", log, "--candidates", "tips,banditnet", "--act", "softmax", *QUICK, "--json", "-o", "p")
    values = [row["value"] for row in json.loads(ran.stdout)["policies"][0]["comparison"]]
    assert len(set(values)) == 3


def test_seeds_are_repetitions_of_auto(run: Run, log: Path) -> None:
    assert run("train", log, *TWO, "--seeds", "0,1", "-o", "p/").code == 0
    assert run("evaluate", "p/", "--logs", log, "--quiet", "-o", "s.parquet").code == 0
    ran = run("report", "s.parquet")
    assert "mean ± std over 2 seeds" in ran.stdout
    assert " Auto " in ran.stdout


def test_runs_are_the_same_whole_stopped_and_streamed(
    run: Run, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", log, "--candidates", "dm-s2bl,tips", *QUICK)
    asked = 0

    def is_asked(stop: int) -> bool:
        nonlocal asked
        asked += 1
        return asked == stop

    with monkeypatch.context() as patch:
        signalled_by(patch, lambda: is_asked(0))
        for name in ("whole", "again"):
            asked = 0
            assert run(*words, "-o", f"{name}.safetensors").code == 0
    whole, last = (tmp_path / "whole.safetensors").read_bytes(), asked
    assert (tmp_path / "again.safetensors").read_bytes() == whole
    for stop in (500, last - 30, last - 10, last):  # in the copy, in both candidates, and in the last training
        asked = 0
        with monkeypatch.context() as patch:
            signalled_by(patch, lambda stop=stop: is_asked(stop))  # type: ignore[misc]
            assert run(*words, "-o", "stopped.safetensors", "--force").code == 143
        assert run(*words, "--resume", "-o", "stopped.safetensors", "--force").code == 0
        assert (tmp_path / "stopped.safetensors").read_bytes() == whole
    assert run(*words, "--stream", "on", "-o", "streamed.safetensors").code == 0
    assert read_policy("streamed.safetensors").policy.lineage.settings["stream"] == "on"


def test_copy_of_the_logging_policy_is_written_if_nothing_is_better(run: Run, tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", _worse(blobs(known=0.5)), ACTIONS)
    ran = run("train", "log.parquet", "--candidates", "tips", *QUICK, "--json", "-o", "p.safetensors")
    assert ran.code == 0, ran.stderr
    (facts,) = json.loads(ran.stdout)["policies"]
    assert (facts["chosen"], facts["gain"]) == ("logging policy", 0)
    assert read_policy("p.safetensors").policy.lineage.settings["method"] == "match-only"
    assert "p.safetensors: nothing was shown to beat the logging policy, so the policy is a copy of it" in ran.stderr


@pytest.mark.parametrize("words", [("--lam", "0.3,1"), ("--lam", "0"), ("--missing-model",)], ids=" ".join)
def test_copy_of_the_logging_policy_has_no_settings_of_the_candidates(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    write_arrays(tmp_path / "log.parquet", _worse(blobs(known=0.5)), ACTIONS)
    methods = "tips" if words == ("--missing-model",) else "wce-s2bl"
    ran = run("train", "log.parquet", "--candidates", methods, *words, *QUICK, "--json", "-o", "p.safetensors")
    assert ran.code == 0, ran.stderr
    assert read_policy("p.safetensors").policy.lineage.settings["method"] == "match-only"


def test_penalty_that_the_learner_finds_is_one_of_a_grid(run: Run, tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", blobs(known=0.5), ACTIONS)
    ran = run("train", "log.parquet", "--candidates", "dm", "--penalty", "auto,1e9", *QUICK, "-o", "p.safetensors")
    assert ran.code == 0, ran.stderr
    assert read_policy("p.safetensors").policy.lineage.settings["penalty"] == "auto"


def test_what_follows_from_the_log_is_asked_for_in_every_seed(run: Run, tmp_path: Path) -> None:
    """A method by gradients records steps and a learning rate, the direct method does not: both are repetitions."""
    write_arrays(tmp_path / "log.parquet", blobs(known=0.5), ACTIONS)
    for method in ("dm", "tips"):
        assert run("train", "log.parquet", "--candidates", method, "-o", f"{method}.safetensors").code == 0
        asked = read_policy(f"{method}.safetensors").policy.asked
        assert (asked["steps"], asked["lr"], asked["reward-range"]) == ("auto", "auto", "auto")


# --- what is compared ---


def _compared(run: Run, log: Path, *words: Any) -> list[str]:
    ran = run("train", log, *words, *QUICK, "--json", "--force", "-o", "p.safetensors")
    assert ran.code == 0, ran.stderr
    return [row["candidate"] for row in json.loads(ran.stdout)["policies"][0]["comparison"]]


def test_options_narrow_the_portfolio(run: Run, log: Path) -> None:
    assert set(_compared(run, log, "--candidates", "dm,tips", "--act", "argmax")) == {
        "dm (linear, argmax)", "tips (linear, argmax)", "logging policy",
    }  # fmt: skip
    names = _compared(run, log, "--candidates", "wce-s2bl", "--lam", "0.1", "--model", "mlp")
    assert sorted(names) == ["logging policy", "wce-s2bl (λ 0.1, mlp, argmax)", "wce-s2bl (λ 0.1, mlp, softmax)"]
    assert len(_compared(run, log, "--candidates", "wce-s2bl")) == 5  # two λ, two ways to act


def test_without_time_the_first_candidate_is_compared(run: Run, log: Path) -> None:
    ran = run("train", log, *TWO, "--time", 0, "-o", "p.safetensors")
    assert ran.stderr.startswith("--time is over, not compared: tips (linear)\n")
    assert "\ndm (linear, argmax) " in ran.stderr
    assert "\ntips (" not in ran.stderr
    assert read_policy("p.safetensors").policy.asked["candidates"] == "dm:linear"


def test_recorded_candidates_repeat_a_run_that_was_cut(run: Run, log: Path) -> None:
    """Also if an mlp was left out: the record has the models."""
    words = ("train", log, *QUICK, "--json")
    cut = json.loads(run(*words, "--candidates", "dm-s2bl,dm-s2bl:mlp", "--time", 0, "-o", "a.safetensors").stdout)
    compared = read_policy("a.safetensors").policy.asked["candidates"]
    assert compared == "dm-s2bl:linear"
    assert "dm-s2bl:linear" in run("inspect", "a.safetensors").stdout
    again = json.loads(run(*words, "--candidates", compared, "-o", "b.safetensors").stdout)
    assert again["policies"][0]["comparison"] == cut["policies"][0]["comparison"]
    assert _tensors("a.safetensors") == _tensors("b.safetensors")
    assert any("mlp" in name for name in _compared(run, log, "--candidates", "dm-s2bl:mlp"))


def test_seeds_share_the_time(run: Run, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock takes ten seconds. Of 15 seconds, each of two seeds has 7.5."""
    clock = SimpleNamespace(monotonic=itertools.count(0, 10).__next__)
    monkeypatch.setattr(auto_run, "time", clock)
    for seeds, skipped in (("0", 0), ("0,1", 2)):
        ran = run("train", log, *TWO, "--time", 15, "--seeds", seeds, "--force", "-o", "p-{seed}.safetensors")
        assert ran.stderr.count("--time is over, not compared: tips (linear)") == skipped


def _weights_of_folds(tmp_path: Path, method: str, model: str, held: Any) -> tuple[list[Any], list[Any]]:
    """Of the policies of two folds, with the costs as they are, and with other costs in the held-out rows of the first
    fold. These are out of the range of the others, so a scale must not come from them either."""
    rows, folds = blobs(known=0.5), [Fold(0, 0.0, 0.5), Fold(0, 0.5, 1.0)]
    turned = replace(rows, cost=np.where(held, 7 - 3 * rows.cost, rows.cost))
    fitted = []
    for name, arrays in (("true", rows), ("turned", turned)):
        with open_logs([str(write_arrays(tmp_path / f"{name}.parquet", arrays, ACTIONS))]) as log:
            auto = AutoRun(log, train_settings(method="auto"))
            hidden = "4" if model == "mlp" else None
            settings = train_settings(method=method, model=model, hidden=hidden, epochs=3, batch_size=32)
            data = auto._training(settings).data(streamed=False)
            results = next(auto._fit(settings, folds, data, TrainRun(CPU))).results
            fitted.append([result.tensors["body.1.weight"] for result in results])
    return fitted[0], fitted[1]


def _held_out_rows() -> Any:
    rows = blobs(known=0.5)
    return Fold(0, 0.0, 0.5).holds_out(np.arange(rows.rows)) & rows.known & ~rows.is_test


@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize("method", [*PORTFOLIO, "dr", "tips"])
def test_policies_of_a_fold_do_not_see_its_feedback(
    tmp_path: Path, method: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out costs are others: the policies of that fold stay the same, those of the other fold change."""
    monkeypatch.setattr("s2bl_cli.reward_models.reward_network._LEAST_STEPS", 60)
    before, after = _weights_of_folds(tmp_path, method, model, _held_out_rows())
    assert np.array_equal(before[0], after[0])
    assert not np.array_equal(before[1], after[1])


@pytest.mark.parametrize("method", ["dm-s2bl", "banditnet"])
def test_a_planted_leak_is_seen(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = _held_out_rows()
    monkeypatch.setattr(Fold, "holds_out", lambda self, number: np.zeros(len(number), bool))
    before, after = _weights_of_folds(tmp_path, method, "linear", held)
    assert not np.array_equal(before[0], after[0])


@pytest.mark.parametrize("stream", ["off", "on"])
def test_clusters_are_held_out_whole(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    compared: list[dict[str, Any]] = []

    def comparison(candidates: Any, **columns: Any) -> Comparison:
        compared.append(columns)
        return Comparison(candidates, **columns)

    monkeypatch.setattr("s2bl_cli.training.auto_run.Comparison", comparison)
    write_arrays(tmp_path / "log.parquet", replace(blobs(known=0.5), cluster=np.arange(400) // 8), ACTIONS)
    assert run("train", "log.parquet", *TWO, "--stream", stream, "-o", "p.safetensors").code == 0
    (columns,) = compared
    folds = [set(columns["fold"][columns["cluster"] == cluster]) for cluster in np.unique(columns["cluster"])]
    assert len(folds) < 50
    assert {len(fold) for fold in folds} == {1}
    assert len(set.union(*folds)) == 5


def test_comparison_is_a_scores_file(run: Run, log: Path) -> None:
    ran = run("train", log, *TWO, "--comparison", "c.parquet", "--json", "-o", "p.safetensors")
    assert ran.code == 0, ran.stderr
    table, _ = read_scores(["c.parquet"])
    scores = {row["policy"]: row for row in table.to_pylist()}
    for row in json.loads(ran.stdout)["policies"][0]["comparison"]:
        score = scores[row["candidate"]]
        assert {name: score[name] for name in ("value", "stderr", "low", "high")} == {
            name: row[name] for name in ("value", "stderr", "low", "high")
        }
        assert (score["metric"], score["split"], score["note"]) == ("dr", "train", "cross-validated on known rows")
    assert json.loads(scores["dm (linear, argmax)"]["settings"])["dataset"] == "blobs"
    report = run("report", "c.parquet", "--metric", "dr")
    assert report.code == 0, report.stderr
    assert "Logging policy" in report.stdout


# --- what is refused ---


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--candidates", "dm:tree"), "--candidates must have models of linear, mlp, resnet-v1, resnet-v2 behind a "
         "colon, found tree"),
        (("--candidates", "dm,zzz"), "--candidates must be methods such as dm-s2bl,dm, found zzz: s2bl methods lists "
         "them"),
        (("--select", "snips"), "--method auto chooses by itself: drop --select, or choose a --method"),
        (("--method", "dm", "--comparison", "c.parquet"), "--comparison is for --method auto: drop one of them"),
        (("--history", "h.csv", "--comparison", "h.csv"), "--comparison h.csv is also --history's file: give another "
         "name"),
    ],
)  # fmt: skip
def test_options_without_a_use_are_refused(
    run: Run, tmp_path: Path, log: Path, words: tuple[str, ...], message: str
) -> None:
    ran = run("train", log, *words, "-o", "p.safetensors")
    assert (ran.code, ran.stdout, ran.stderr) == (2, "", f"s2bl: {message}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("known", [0.0, 0.02])
def test_too_little_feedback_is_refused(run: Run, tmp_path: Path, known: float) -> None:
    rows = blobs(known=known)
    write_arrays(tmp_path / "log.parquet", rows, ACTIONS)
    ran = run("train", "log.parquet", "-o", "p.safetensors")
    count = int((rows.known & ~rows.is_test).sum())
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith(
        f"s2bl: log.parquet: {count} rows with feedback are too few to compare methods in 5 "
        if count
        else "s2bl: log.parquet: no train row has feedback, and auto learns from feedback"
    )
    assert ran.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]
