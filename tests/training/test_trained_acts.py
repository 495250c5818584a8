"""How a trained policy acts: as asked, or as held-out rows show to be best."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning_fixtures import arrays_of, blobs, one_hot, signalled_by, train, train_all, train_settings, write_arrays

from s2bl_cli.contract.acts import PLAIN, parse_act
from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.policies import read_policy
from s2bl_cli.contract.scores import read_scores
from s2bl_cli.errors import SettingError
from s2bl_cli.metrics.estimate import Estimate
from s2bl_cli.policies.acting import action_probabilities
from s2bl_cli.policies.network import network_from
from s2bl_cli.training import acting
from s2bl_cli.training.acting import _TERMS, AUTO_ACTS, best_act
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.validation import DELTA, SELECTORS_BY_NAME, HeldOut

Run = Callable[..., Any]


def _log(folder: Path, rows: int = 600, known: float = 1.0) -> Path:
    return write_arrays(folder / "log.parquet", blobs(rows, known=known, test_rows=0), 3)


# --- as asked ---


@pytest.mark.parametrize("word", ["softmax", "argmax", "temperature=0.5", "epsilon=0.1"])
def test_a_policy_acts_as_asked_and_is_trained_alike(tmp_path: Path, word: str) -> None:
    log = _log(tmp_path)
    plain, policy = train(log), train(log, act=word)
    assert (plain.acts, policy.acts) == (PLAIN, parse_act(word))
    assert (plain.lineage.settings["act"], policy.lineage.settings["act"]) == (None, word)
    assert all(np.array_equal(plain.tensors[name], tensor) for name, tensor in policy.tensors.items())


def test_train_says_how_a_policy_acts_and_its_command_can_be_repeated(run: Run, tmp_path: Path) -> None:
    _log(tmp_path)
    ran = run(
        "train", "log.parquet", "--method", "wce-s2bl", "--epochs", 1, "--act", "epsilon=0.1", "-o", "p.safetensors"
    )
    assert ran.code == 0
    assert "p.safetensors: wce-s2bl (seed 0, λ 1, ν 0.001, acts by epsilon=0.1), linear policy over" in ran.stderr
    again = command_lines(read_policy("p.safetensors").policy.lineage)[-1].split()
    words = again[1 : again.index("-o")]
    words[words.index("1-make-logs.parquet")] = "log.parquet"
    assert run(*words, "-o", "again.safetensors").code == 0
    first, second = (read_policy(f"{name}.safetensors").policy for name in ("p", "again"))
    assert (first.acts, first.lineage) == (second.acts, second.lineage)
    assert all(np.array_equal(first.tensors[name], second.tensors[name]) for name in first.tensors)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"act": "greedy"}, "--act must be softmax, argmax, temperature=T or epsilon=E or auto, found 'greedy'"),
        ({"act": "epsilon=2"}, "--act epsilon must be in [0, 1], found '2'"),
        (
            {"act": "auto", "select": "snips", "select_on": "act"},
            "--select-on act needs one way to act, but --act auto chooses it afterwards: drop --select-on",
        ),
        (
            {"act": "argmax", "select_on": "sampled"},
            "--select-on sampled says what to select on: say by what with --select",
        ),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as raised:
        train_settings(**settings)
    assert str(raised.value) == line


@pytest.mark.parametrize(
    ("act", "select_on", "selected_by"),
    [
        (None, None, "softmax"),
        ("argmax", None, "argmax"),
        ("epsilon=0.1", None, "epsilon=0.1"),
        ("auto", None, "softmax"),
        ("epsilon=0.1", "argmax", "argmax"),
        ("argmax", "sampled", "softmax"),
    ],
)
def test_candidates_are_selected_by_how_they_act(act: str | None, select_on: str | None, selected_by: str) -> None:
    settings = train_settings(act=act, select_on=select_on, select="snips", lam="0.1,1")
    assert settings.select_act == parse_act(selected_by)


def test_the_estimate_to_select_by_is_of_the_policy_as_it_acts(tmp_path: Path) -> None:
    """By hand from the network: SNIPS on the held-out rows."""
    log = _log(tmp_path)
    for word in ("softmax", "argmax", "epsilon=0.3", "temperature=0.5"):
        (trained,) = train_all(log, act=word, select="snips", lam="1,2", holdout=0.3, nu=0.0)
        with open_logs([str(log)]) as opened:
            rows = opened.read()
        rows = rows.take(trained.candidate.fold.holds_out(np.arange(600)))
        network = network_from(trained.policy.network, trained.policy.tensors, "p").eval()
        logits = network(torch.from_numpy(np.ascontiguousarray(rows.context))).detach()
        pi = action_probabilities(logits, parse_act(word)).numpy()
        w = pi[np.arange(rows.rows), rows.action] / rows.propensity
        assert trained.estimate == pytest.approx(-(w * rows.cost).sum() / w.sum(), rel=1e-5)


# --- auto ---


def _estimates(values: list[float], noise: float) -> list[Estimate]:
    """With paired differences of this standard error between each and any other."""
    rng = np.random.default_rng(0)
    own = rng.standard_normal((len(values), 1000))
    own -= own.mean(axis=1, keepdims=True)
    own *= noise / np.sqrt(2) * np.sqrt(1000) / own.std(axis=1, keepdims=True)
    shared = 100 * rng.standard_normal(1000)
    return [Estimate(value, 1000, shared + row) for value, row in zip(values, own, strict=True)]


@pytest.mark.parametrize(
    ("values", "noise", "chosen"),
    [
        ([0.5, 0.6, 0.7, 0.7, 0.7, 0.8], 0.01, "argmax"),
        ([0.5, 0.6, 0.8, 0.7, 0.7, 0.7], 0.01, "temperature=0.2"),
        ([0.8, 0.8, 0.8, 0.8, 0.8, 0.8], 0.01, "softmax"),  # ties explore
        ([0.5, 0.6, 0.7, 0.7, 0.7, 0.8], 0.11, "temperature=0.2"),
        ([0.5, 0.6, 0.7, 0.7, 0.7, 0.8], 1.0, "softmax"),  # nothing is shown
        ([0.5, 0.1, 0.1, 0.1, 0.1, np.nan], 0.01, "softmax"),
        ([np.nan] * 5 + [0.5], 0.01, "argmax"),
        ([np.nan] * 6, 0.01, "softmax"),
    ],
)
def test_the_first_within_one_standard_error_of_the_best_is_chosen(
    values: list[float], noise: float, chosen: str
) -> None:
    assert best_act(_estimates(values, noise)).text == chosen


def test_noise_within_clusters_counts(tmp_path: Path) -> None:
    """Ten rows of each of 100 clusters with the same influence: three times the standard error."""
    gap = np.repeat(np.random.default_rng(0).standard_normal(100), 10)
    gap -= gap.mean()
    estimates = [Estimate(0.06 * (act.text == "argmax"), 1000, gap * (act.text == "argmax")) for act in AUTO_ACTS]
    assert best_act(estimates).text == "argmax"
    assert best_act(estimates, np.repeat(np.arange(100), 10)).text == "softmax"


@pytest.mark.parametrize("name", SELECTORS_BY_NAME)
def test_the_terms_of_a_selector_are_the_selector(name: str) -> None:
    rng = np.random.default_rng(0)
    o = rng.exponential(1, 50)
    held_out = HeldOut(rng.exponential(1, 50), -rng.random(50), -rng.random(50), -rng.random(50), o / o.mean())
    assert _TERMS[name](held_out).estimate.value == pytest.approx(SELECTORS_BY_NAME[name].estimate(held_out, DELTA))


@pytest.mark.parametrize("how", [{}, {"holdout": 0.3}, {"folds": 3}, {"select": "dr", "lam": "1,2"}, {"patience": 2}])
@pytest.mark.parametrize("stream", ["off", "on"])
def test_a_soft_policy_that_is_right_acts_greedily(tmp_path: Path, how: dict[str, Any], stream: str) -> None:
    """A policy of the three blobs after a few steps: its argmax is nearly always right, its draws are not."""
    log = _log(tmp_path, rows=3000)
    (trained,) = train_all(log, act="auto", method="tips" if "lam" not in how else "wce-s2bl", stream=stream, **how)
    policy = trained.policy
    assert policy.acts in AUTO_ACTS[1:]
    assert policy.asked["act"] == "auto"
    recorded = policy.lineage.settings
    assert recorded["act"] == ("auto" if "patience" in how else policy.acts.text)
    assert recorded["holdout"] == (None if how.keys() & {"folds", "patience"} else how.get("holdout", 0.1))


def test_a_policy_whose_argmax_is_worse_stays_a_softmax(tmp_path: Path) -> None:
    """In context 0 both actions are as good; the argmax of a policy that learned little is of no more worth."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, 400)
    cost = -(rng.random(400) < 0.5).astype(float)
    write_arrays(tmp_path / "log.parquet", arrays_of(one_hot([0] * 400, 1), action, [0.5] * 400, cost), 2)
    assert train(tmp_path / "log.parquet", act="auto", method="tips", epochs=1).acts == PLAIN


def test_the_act_is_chosen_on_rows_that_were_not_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every known row is predicted once by the policies of four folds; of a hold-out of a quarter, a quarter."""
    log = _log(tmp_path, known=0.5)
    chosen: list[tuple[list[float], int]] = []
    predict = acting._predictions

    def noted(policies: Any, *more: Any, **named: Any) -> Any:
        held_out, cluster = predict(policies, *more, **named)
        chosen.append(([policy.fold.stop - policy.fold.start for policy in policies], len(held_out[0].cost)))
        return held_out, cluster

    monkeypatch.setattr(acting, "_predictions", noted)
    train(log, act="auto", folds=4)
    train(log, act="auto", holdout=0.25)
    with open_logs([str(log)]) as opened:
        known = opened.read().known
    held_out = Fold(0, 0.0, 0.25).holds_out(np.flatnonzero(known))
    assert chosen == [([0.25] * 4, known.sum()), ([0.25], held_out.sum())]


@pytest.mark.parametrize("selector", ["snips", "ips", "dr"])  # ls-bound is corrected for the number of candidates
def test_the_softmax_has_the_estimate_that_its_candidate_was_selected_by(
    tmp_path: Path, selector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, values = _log(tmp_path, known=0.5), []
    choose = acting.best_act

    def noted(estimates: Any, cluster: Any) -> Any:
        values.append(estimates[0].value)
        return choose(estimates, cluster)

    monkeypatch.setattr(acting, "best_act", noted)
    for how in ({"holdout": 0.3}, {"folds": 3}):
        (trained,) = train_all(log, act="auto", select=selector, lam="1,2", nu=0.4, **how)
        assert values.pop() == pytest.approx(trained.estimate, rel=1e-5)


def test_evaluate_and_report_know_what_was_asked_for(run: Run, tmp_path: Path) -> None:
    """Policies with --act auto are repetitions of each other, whatever each seed chose, unless scored otherwise."""
    _log(tmp_path, rows=1000)
    words = ("--method", "tips", "--epochs", 2, "--seeds", "0,1", "--act", "auto", "--test-share", 0.3, "-o", "p/")
    assert run("train", "log.parquet", "--split-column", "", *words).code == 0
    columns = ("--split-column", "", "--metrics", "ips,accuracy", "--force")
    assert run("evaluate", "p/", "--logs", "log.parquet", *columns).code == 0
    ran = run("report", "scores.parquet", "--metric", "accuracy")
    assert "mean ± std over 2 seeds" in ran.stdout
    table, _ = read_scores([str(tmp_path / "scores.parquet")])
    texts = [row["settings"] for row in table.to_pylist() if row["policy"].startswith("log-tips")]
    assert all('"asked.act":"auto"' in text for text in texts)
    assert run("evaluate", "p/", "--logs", "log.parquet", "--act", "argmax", *columns).code == 0
    table, _ = read_scores([str(tmp_path / "scores.parquet")])
    assert not any("asked.act" in row["settings"] for row in table.to_pylist())


def test_a_resumed_run_chooses_the_same(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in its second fold of three and in the last training: the policies of the folds are kept."""
    _log(tmp_path, known=0.5)
    words = (
        "train",
        "log.parquet",
        "--method",
        "tips",
        "--epochs",
        2,
        "--act",
        "auto",
        "--folds",
        3,
        "--batch-size",
        32,
    )
    assert run(*words, "-o", "whole.safetensors").code == 0
    steps = iter(range(10**6))
    with monkeypatch.context() as patch:
        signalled_by(patch, lambda: next(steps) == 50)
        assert run(*words, "-o", "stopped.safetensors").code == 143
    assert run(*words, "--resume", "-o", "stopped.safetensors").code == 0
    assert (tmp_path / "whole.safetensors").read_bytes() == (tmp_path / "stopped.safetensors").read_bytes()


def test_named_methods_keep_the_softmax(tmp_path: Path) -> None:
    log = _log(tmp_path)
    assert train(log, method="tips").acts == train(log, method="wce-s2bl").acts == PLAIN


@pytest.mark.parametrize("method", ["dm", "dm-s2bl"])
def test_direct_methods_take_the_best_action(run: Run, tmp_path: Path, method: str) -> None:
    """Their logits are expected rewards, not log-probabilities."""
    write_arrays(tmp_path / "log.parquet", blobs(600, test_rows=200), 3)
    assert run("train", "log.parquet", "--method", method, "-o", "p.safetensors").code == 0
    policy = read_policy("p.safetensors").policy
    assert (policy.acts.text, policy.lineage.settings["act"]) == ("argmax", None)
    assert run("evaluate", "p.safetensors", "--logs", "log.parquet").code == 0
    table, _ = read_scores([str(tmp_path / "scores.parquet")])
    values = {row["metric"]: row["value"] for row in table.to_pylist() if row["policy"] == "p.safetensors"}
    assert values["accuracy"] == values["argmax-accuracy"] != values["sampled-accuracy"]
    assert train(tmp_path / "log.parquet", method=method, act="temperature=0.1").acts == parse_act("temperature=0.1")
