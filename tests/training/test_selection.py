"""Choosing among policies by held-out known rows: the estimates, what is held out, and what is kept."""

import math
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning_fixtures import blobs, train, train_all, train_settings, write_arrays

from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.contract.policies import Policy, read_policy, write_policy
from s2bl_cli.errors import ContractError, SettingError
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.objectives.risks.banditnet import AUTO_TRANSLATIONS
from s2bl_cli.policies.network import network_from
from s2bl_cli.registry import SELECTORS
from s2bl_cli.row_hash import uniform_hash
from s2bl_cli.training.candidates import Candidate, Fold, folds_of
from s2bl_cli.training.cost_scale import RAW
from s2bl_cli.training.validation import HeldOut, Tracker

ACTIONS = 3
FEW = {"epochs": 4, "lr": 0.05}
# Without auto, which holds rows out by itself: test_auto.py
LEARN_FROM_FEEDBACK = [name for name in METHODS if name not in ("auto", "match-only", "wce-only", "kl-only")]


@pytest.fixture(scope="module")
def rows() -> LogArrays:
    return blobs(rows=500, known=0.5)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, rows: LogArrays) -> Path:
    return write_arrays(tmp_path_factory.mktemp("choosing") / "log.parquet", rows, ACTIONS)


def _far(one: Policy, other: Policy) -> float:
    return max(float(np.abs(one.tensors[name] - other.tensors[name]).max()) for name in one.tensors)


# --- the estimates ---

# Weights 2, 1/2, 1; costs −1, −1/2, 0. Σcw = −9/4, Σw = 7/2.
HELD = HeldOut(
    np.array([2, 0.5, 1]),
    np.array([-1, -0.5, 0]),
    model_value=np.array([-0.5, -0.25, -0.25]),
    model_logged=np.array([-0.5, -0.5, 0.5]),
    o=np.ones(3),
)
BY_HAND = {
    "snips": 2.25 / 3.5,
    "ips": 0.75,
    # −mean(q̂(x,π) + w(c − q̂)) = −(−0.5 − 1 − 0.25 + 0 − 0.25 − 0.5)/3
    "dr": 2.5 / 3,
    # V = √3·mean ln(1 + wr/√3); ((mean of the logarithms, less ln 20/3, exponentiated) − 1)·√3
    "ls-bound": math.sqrt(3)
    * (math.exp((math.log(1 + 2 / math.sqrt(3)) + math.log(1 + 0.25 / math.sqrt(3)) - math.log(20)) / 3) - 1),
}


@pytest.mark.parametrize("name", SELECTORS.names)
def test_selector_by_hand(name: str) -> None:
    assert SELECTORS.load(name)(np.stack(HELD)) == pytest.approx(BY_HAND[name], rel=1e-12)


@pytest.mark.parametrize("name", SELECTORS.names)
def test_no_rows_are_the_worst(name: str) -> None:
    nothing = np.empty((len(HeldOut._fields), 0))
    assert SELECTORS.load(name)(nothing) == -math.inf
    assert SELECTORS.load(name)(None) == -math.inf


def test_policy_that_gives_held_out_actions_no_weight_is_the_worst() -> None:
    assert SELECTORS.load("snips")(np.stack(HELD._replace(weight=np.zeros(3)))) == -math.inf


def test_weight_that_is_lacking_counts_at_the_largest_cost() -> None:
    """Weights 1/4, 0, 0 and costs −1, −1/2, 0: Σcw = −1/4, and Σw lacks 5/4 of 3/2. Plain SNIPS would be 1."""
    avoids = np.stack(HELD._replace(weight=np.array([0.25, 0, 0])))
    assert SELECTORS.load("snips")(avoids) == pytest.approx(0.25 / 1.5, rel=1e-12)
    worse = np.stack(HELD._replace(weight=np.array([0.25, 0, 0]), cost=np.array([-1, -0.5, 1])))
    assert SELECTORS.load("snips")(worse) == pytest.approx((0.25 - 1.25) / 1.5, rel=1e-12)
    enough = np.stack(HELD._replace(weight=np.array([1.5, 0, 0])))
    assert SELECTORS.load("snips")(enough) == 1


@pytest.mark.parametrize("name", SELECTORS.names)
def test_higher_is_better(name: str) -> None:
    """Lower costs of the same actions are more reward."""
    better = HELD._replace(cost=HELD.cost - 0.25)
    assert SELECTORS.load(name)(np.stack(better)) > SELECTORS.load(name)(np.stack(HELD))


# --- what is held out ---


def test_hash_is_uniform_and_another_for_each_seed() -> None:
    """10,000 rows in 10 bins: χ² with 9 degrees of freedom exceeds 27.9 once in a thousand times."""
    numbers = np.arange(10_000)
    for seed in (0, 1, 2**32 - 1):
        counts = np.bincount((uniform_hash(numbers, seed) * 10).astype(int), minlength=10)
        assert ((counts - 1000) ** 2 / 1000).sum() < 27.9
    one, other = uniform_hash(numbers, 0), uniform_hash(numbers, 1)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.04
    assert np.array_equal(one[5000:], uniform_hash(numbers[5000:], 0))  # a row's place does not depend on the others


def test_every_row_is_in_one_fold_of_each_seed() -> None:
    numbers = np.arange(1000)
    for seed in (3, 4):
        folds = folds_of(train_settings(seed=seed, folds=7, lam="1,2", select="snips"))
        assert [fold.seed for fold in folds] == [seed] * 7
        assert (np.stack([fold.holds_out(numbers) for fold in folds]).sum(0) == 1).all()
    assert not Fold(3).holds_out(numbers).any()


@pytest.mark.parametrize("method", LEARN_FROM_FEEDBACK)
@pytest.mark.parametrize("sampling", ["paired", "mixed"])
def test_feedback_held_out_does_not_reach_the_policy(
    tmp_path: Path, rows: LogArrays, log: Path, method: str, sampling: str
) -> None:
    """Held-out costs turned round: the same policy, to the last bit. Others turned round: another."""
    held = Fold(0, 0.0, 0.3).holds_out(np.arange(rows.rows)) & rows.known & ~rows.is_test
    assert 20 < held.sum() < 100
    settings: dict[str, Any] = {"method": method, "sampling": sampling, "holdout": 0.3, **FEW}
    turned = [
        write_arrays(tmp_path / f"{i}.parquet", replace(rows, cost=np.where(own, -1 - rows.cost, rows.cost)), ACTIONS)
        for i, own in enumerate((held, rows.known & ~rows.is_test & ~held))
    ]
    policy = train(log, **settings)
    assert _far(policy, train(turned[0], **settings)) == 0
    assert _far(policy, train(turned[1], **settings)) > 1e-3


def test_held_out_rows_stay_with_the_regulariser(log: Path) -> None:
    """Without a risk that sees feedback, holding out changes nothing."""
    assert _far(train(log, method="wce-only", **FEW), train(log, method="wce-only", holdout=0.5, **FEW)) == 0


def test_few_known_rows_are_told(tmp_path: Path) -> None:
    few = blobs(known=0.02)  # eight
    path = write_arrays(tmp_path / "log.parquet", few, ACTIONS)
    known = int((few.known & ~few.is_test).sum())
    for settings in ({"lam": "0.1,1", "select": "snips"}, {"patience": 2}, {"holdout": 0.5}):
        with pytest.raises(ContractError) as raised:
            train_all(path, **settings)
        assert str(raised.value) == (
            f"{path}: {known} rows with feedback are too few to hold some out; drop --select, --patience, "
            "--folds and --act auto"
        )


def test_seed_that_holds_out_all_or_none_is_told(tmp_path: Path) -> None:
    few = blobs(known=0.03)
    path = write_arrays(tmp_path / "log.parquet", few, ACTIONS)
    numbers = np.flatnonzero(few.known & ~few.is_test)
    count = len(numbers)
    assert count >= 10
    held = {seed: Fold(seed, 0, 0.85).holds_out(numbers).sum() for seed in range(200)}
    every = next(seed for seed, found in held.items() if found == count)
    with pytest.raises(SettingError) as raised:
        train_all(path, patience=2, holdout=0.85, seeds=f"{next(s for s, n in held.items() if n < count)},{every}")
    assert str(raised.value) == (
        f"--seed {every} holds out all {count} rows with feedback and leaves none to learn from: lower --holdout, "
        "or take another seed"
    )
    none = next(seed for seed in range(200) if not Fold(seed, 0, 0.1).holds_out(numbers).any())
    with pytest.raises(SettingError) as raised:
        train_all(path, patience=2, seed=none)
    assert str(raised.value) == (
        f"--seed {none} holds out none of the {count} rows with feedback: raise --holdout, or select by --folds"
    )


# --- what is kept ---


def _snips(policy: Policy, rows: LogArrays, held: Any, nu: float = 0.001) -> float:
    own = rows.take(held)
    with torch.no_grad():
        logits = network_from(policy.network, policy.tensors, "policy")(torch.from_numpy(own.context))
    pi = torch.softmax(logits, dim=1).numpy()[np.arange(own.rows), own.action]
    weight = pi / np.maximum(own.propensity, nu)
    return -float((own.cost * weight).sum() / weight.sum())


def test_best_on_held_out_rows_is_kept(rows: LogArrays, log: Path) -> None:
    lams = "0.001,1,30"
    (kept,) = train_all(log, lam=lams, select="snips", holdout=0.3, **FEW)
    every = train_all(log, lam=lams, holdout=0.3, **FEW)
    held = Fold(0, 0.0, 0.3).holds_out(np.arange(rows.rows)) & rows.known & ~rows.is_test
    values = [_snips(one.policy, rows, held) for one in every]
    assert kept.estimate == pytest.approx(max(values), rel=1e-5)
    assert kept.candidate == every[int(np.argmax(values))].candidate
    assert _far(kept.policy, every[int(np.argmax(values))].policy) == 0


@pytest.mark.parametrize("select", SELECTORS.names)
def test_held_out_rows_may_be_looked_at_in_pieces(log: Path, select: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups that hold out different numbers of rows; three rows at a time, the last piece shorter."""
    words: dict[str, Any] = {"lam": "0.1,1", "seeds": "0,1", "select": select, "holdout": 0.3, **FEW}
    whole = [one.estimate for one in train_all(log, **words)]
    monkeypatch.setattr("s2bl_cli.training.validation._CELLS_AT_ONCE", 3 * 2 * 2 * ACTIONS)
    assert [one.estimate for one in train_all(log, **words)] == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("select", SELECTORS.names)
@pytest.mark.parametrize("select_on", ["sampled", "argmax"])
def test_a_bad_policy_is_not_chosen(log: Path, select: str, select_on: str) -> None:
    """Taken 50 off every cost, all logged actions are bad ones: the policy flees them. The other is sensible."""
    grid = {"risk": "banditnet", "reg": "none", "translation": "-50,-0.2"}
    (kept,) = train_all(log, **grid, select=select, select_on=select_on, holdout=0.3, **FEW)
    assert kept.candidate.hyperparameters["translation"] == -0.2


def test_folds_choose_then_train_on_all_known_rows(log: Path) -> None:
    kept = train_all(log, lam="0.01,1,30", select="snips", folds=3, seeds="0,1", **FEW)
    assert [one.seed for one in kept] == [0, 1]
    for one in kept:
        assert _far(one.policy, train(log, lam=one.candidate.hyperparameters["lam"], seed=one.seed, **FEW)) < 2e-4
        assert one.estimate is not None
    networks = train_all(log, model="mlp", hidden="4", lam="0.01,30", select="snips", folds=2, **FEW)
    alone = train(log, model="mlp", hidden="4", lam=networks[0].candidate.hyperparameters["lam"], **FEW)
    assert _far(networks[0].policy, alone) == 0


@pytest.mark.parametrize(
    "flags", [{"folds": 2}, {"holdout": 0.3, "select_on": "argmax"}, {"holdout": 0.3, "patience": 2}]
)
def test_methods_with_a_fitted_prior_are_selected_too(log: Path, flags: dict[str, Any]) -> None:
    """The prior itself is no candidate: it is fitted once per fold, to its last epoch."""
    (kept,) = train_all(log, method="b-crm", lam="0.01,1", select="snips", **flags, **FEW)
    assert kept.candidate.hyperparameters["lam"] in (0.01, 1.0)


def test_estimate_of_folds_is_of_every_known_row_held_out_once(rows: LogArrays, log: Path) -> None:
    """By hand: each fold's rows weighed by the policy that has not seen them."""
    (kept,) = train_all(log, lam="0.001,1", select="ips", folds=2, **FEW)
    known = rows.known & ~rows.is_test
    first = Fold(0, 0.0, 0.5).holds_out(np.arange(rows.rows))
    by_lam = {}
    for lam in (0.001, 1):
        total = 0.0
        for own in (first, ~first):
            costs = write_arrays(log.with_name("part.parquet"), replace(rows, known=rows.known & ~own), ACTIONS)
            policy = train(costs, lam=lam, **FEW)
            held = rows.take(known & own)
            with torch.no_grad():
                logits = network_from(policy.network, policy.tensors, "policy")(torch.from_numpy(held.context))
            pi = torch.softmax(logits, dim=1).numpy()[np.arange(held.rows), held.action]
            total -= float((held.cost * pi / np.maximum(held.propensity, 0.001)).sum())
        by_lam[lam] = total / known.sum()
    assert kept.estimate == pytest.approx(max(by_lam.values()), rel=1e-3)
    assert by_lam[kept.candidate.hyperparameters["lam"]] == max(by_lam.values())


def test_translations_come_from_the_costs_that_may_be_seen(rows: LogArrays, log: Path) -> None:
    known = rows.known & ~rows.is_test
    held = Fold(0, 0.0, 0.3).holds_out(np.arange(rows.rows))
    (mean,) = train_all(log, method="banditnet", **FEW)
    assert mean.candidate.hyperparameters["translation"] == pytest.approx(float(rows.cost[known].mean()), rel=1e-6)
    assert _far(mean.policy, train(log, method="banditnet", translation="mean", **FEW)) == 0
    (other,) = train_all(log, method="banditnet", holdout=0.3, **FEW)
    assert other.candidate.hyperparameters["translation"] == pytest.approx(
        float(rows.cost[known & ~held].mean()), rel=1e-6
    )
    (auto,) = train_all(log, method="banditnet", translation="auto", select="snips", holdout=0.3, **FEW)
    assert auto.candidate.hyperparameters["translation"] in [
        part - 1 for part in AUTO_TRANSLATIONS
    ]  # costs are in [−1, 0]


# --- patience ---


class _Script:
    """Policies of one fold whose snips on held-out rows is written down, epoch by epoch. Their one tensor is the
    epoch's number."""

    def __init__(self, *values: list[float]) -> None:
        self.values, self.epoch = values, 0
        self.shape = 1, len(values)

    def state(self) -> dict[str, Any]:
        return {}

    def policy_tensors(self, state: Any, group: int, place: int) -> dict[str, Any]:
        return {"epoch": np.array(self.epoch)}

    def predictions(self, policies: Any) -> list[Any]:
        now = [of_policy[self.epoch - 1] for of_policy in self.values]
        return [np.stack([HeldOut(np.ones(1), np.array([-value]), *np.ones((3, 1))) for value in now])]

    def tracker(self, patience: int | None) -> Tracker:
        script: Any = self
        candidates = [[Candidate(Fold(0), number, {}) for number in range(len(self.values))]]
        return Tracker(candidates, script.predictions, "snips", patience, [RAW])

    def run(self, tracker: Tracker) -> list[Any]:
        script: Any = self
        while self.epoch < len(self.values[0]) and tracker.in_patience(self.epoch):
            self.epoch += 1
            tracker.epoch_done(self.epoch, {"loss": torch.zeros(1, len(self.values))}, script)
        return [result for _, result in tracker.finished(self.epoch, script)]


def test_patience_keeps_the_best_epoch_and_its_estimate() -> None:
    script = _Script([0.1, 0.5, 0.3, 0.4, 0.9])
    (result,) = script.run(script.tracker(2))
    assert script.epoch == 4
    assert (result.best_epoch, int(result.tensors["epoch"])) == (2, 2)
    assert result.held_out is not None
    assert HeldOut(*result.held_out).cost.tolist() == [-0.5]  # not the last epoch's
    assert [value for _, quantity, value in result.curve if quantity == "snips"] == [0.1, 0.5, 0.3, 0.4]


def test_each_policy_runs_out_of_patience_by_itself() -> None:
    """The first would have stopped after its third epoch; the second goes on to the sixth."""
    one, other = [0.5, 0.1, 0.1, 0.9, 0.9, 0.9], [0.1, 0.2, 0.3, 0.4, 0.3, 0.3]
    script = _Script(one, other)
    results = script.run(script.tracker(2))
    assert [result.best_epoch for result in results] == [1, 4]
    alone = [(own := _Script(values)).run(own.tracker(2))[0] for values in (one, other)]
    assert [result.curve for result in results] == [result.curve for result in alone]


def test_without_patience_the_last_epoch_is_kept() -> None:
    script = _Script([0.5, 0.1, 0.2])
    (result,) = script.run(script.tracker(None))
    assert (result.best_epoch, int(result.tensors["epoch"])) == (3, 3)


def test_trackers_content_is_all_it_needs() -> None:
    values = [0.1, 0.5, 0.3, 0.4, 0.9]
    first = _Script(values[:3])
    tracker = first.tracker(2)
    first.run(tracker)
    second, third = _Script(values), _Script(values)
    resumed_tracker = second.tracker(2)
    resumed_tracker.results = {key: result.model_copy(deep=True) for key, result in tracker.results.items()}
    second.epoch = 3
    (resumed,), (whole,) = second.run(resumed_tracker), third.run(third.tracker(2))
    assert resumed.curve == whole.curve
    assert (resumed.best_epoch, resumed.held_out.tolist()) == (whole.best_epoch, whole.held_out.tolist())
    assert resumed.tensors == whole.tensors


def test_patience_in_training(log: Path) -> None:
    """The policy is that of the epoch with the best estimate: a run of just so many epochs makes it too."""
    steps = {"lr": 0.3, "schedule": "constant"}  # which knows no end
    (kept,) = train_all(log, method="tips", patience=3, epochs=12, holdout=0.3, **steps)
    snips = [(value, epoch) for epoch, quantity, value in kept.curve if quantity == "snips"]
    best = max(snips)[1]
    assert len(snips) == min(best + 3, 12)
    assert _far(kept.policy, train(log, method="tips", holdout=0.3, epochs=best, **steps)) == 0


# --- made again ---

REPLAYED: dict[str, list[Any]] = {
    "one": ["--method", "kl-s2bl"],
    "select": ["--reg", "wce", "--lam", "0.01,1,30", "--select", "snips", "--holdout", 0.3],
    "select, seeds": ["--reg", "wce", "--lam", "0.01,30", "--select", "ips", "--seeds", "3,4"],
    "folds": [
        "--reg",
        "wce",
        "--lam",
        "0.01,1,30",
        "--nu",
        "0,0.5",
        "--select",
        "dr",
        "--folds",
        3,
        "--select-on",
        "argmax",
    ],
    "folds, auto": ["--method", "banditnet", "--translation", "auto", "--select", "snips", "--folds", 2],
    "mean": ["--method", "banditnet", "--holdout", 0.2],
    "patience": ["--reg", "wce", "--lam", "0.01,1", "--select", "snips", "--patience", 1, "--select-on", "argmax"],
    "patience alone": ["--reg", "wce", "--patience", 1, "--sharpen", "0.5,2", "--cap", 0.7],
    "lpr": ["--reg", "lpr", "--lam", "0.1,0.2"],
    "cce": ["--reg", "cce", "--lam", "0.3,3", "--select", "ls-bound"],
    "smoothing": ["--risk", "lse", "--smoothing", -0.3, "--reg", "none"],
    "paper": ["--preset", "paper", "--epochs", 2, "--risk", "ix", "--holdout", 0.4],
    "exact": ["--reg", "kl", "--reg-form", "exact", "--lam", "0.1,1", "--select", "snips"],
    "mlp": ["--reg", "wce", "--model", "mlp", "--hidden", "4", "--lam", "0.1,1", "--select", "snips"],
}


@pytest.mark.parametrize("flags", REPLAYED.values(), ids=REPLAYED.keys())
def test_lineage_tells_how_to_make_each_policy_again(
    run: Callable[..., Any], tmp_path: Path, log: Path, flags: list[Any]
) -> None:
    flags = flags if "--epochs" in flags else [*flags, "--epochs", 4]
    ran = run("train", log, *flags, "--batch-size", 32, "--lr", 0.05, "--quiet", "-o", "made/")
    assert (ran.code, ran.stderr) == (0, "")
    for path in (tmp_path / "made").iterdir():
        _check_remade(run, tmp_path, read_policy(str(path)).policy, {"1-make-logs.parquet": log})


def test_lineage_with_a_prior_tells_so(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    assert run("train", log, "--method", "wce-only", "--epochs", 2, "-o", "prior.safetensors").code == 0
    words = ("--prior", "prior.safetensors", "--lam", 0.1, "--batch-size", 32, "--epochs", 3)
    assert run("train", log, "--reg", "lpr", *words, "-o", "p.safetensors").code == 0
    policy = read_policy(str(tmp_path / "p.safetensors")).policy
    files = {"1-make-logs.parquet": log, "2-train.safetensors": tmp_path / "prior.safetensors"}
    _check_remade(run, tmp_path, policy, files)


def _check_remade(run: Callable[..., Any], folder: Path, policy: Policy, files: dict[str, Path]) -> None:
    *_, line = command_lines(policy.lineage, "policy")
    for name, source in files.items():
        shutil.copy(source, folder / name)
    assert set(files) <= set(shlex.split(line))
    ran = run(*shlex.split(line)[1:], "--force", "--quiet")
    assert (ran.code, ran.stderr) == (0, ""), line
    again = read_policy(str(folder / "policy.safetensors")).policy
    assert _far(policy, again) < 2e-4
    assert np.abs(policy.tensors["scale"]).min() > 0
    assert again.lineage == policy.lineage


def test_prior_is_kept_near(tmp_path: Path, log: Path, run: Callable[..., Any]) -> None:
    """The larger λ, the nearer; the standardisation is the prior's, so that parameters mean the same."""
    assert run("train", log, "--method", "wce-only", "--epochs", 20, "-o", "prior.safetensors").code == 0
    prior = str(tmp_path / "prior.safetensors")
    start = read_policy(prior).policy
    distances = [_far(train(log, reg="lpr", prior=prior, lam=lam, epochs=30, lr=0.02), start) for lam in (0, 0.1, 10)]
    assert distances[0] > 3 * distances[2]
    assert distances[0] > distances[1] > distances[2]
    with open_logs([str(log)]) as opened:
        assert opened.spec.actions == ACTIONS


def test_prior_of_another_shape_is_refused(tmp_path: Path, log: Path) -> None:
    other = write_arrays(tmp_path / "other.parquet", blobs(actions=4), 4)
    write_policy(train(other), str(tmp_path / "p.safetensors"), force=True)
    with pytest.raises(ContractError, match=r"p\.safetensors is no prior for .*log\.parquet: "):
        train(log, reg="lpr", prior=str(tmp_path / "p.safetensors"))
    write_policy(train(log, model="mlp", hidden="4"), str(tmp_path / "mlp.safetensors"), force=True)
    with pytest.raises(ContractError) as raised:
        train(log, reg="lpr", prior=str(tmp_path / "mlp.safetensors"))
    assert str(raised.value) == f"mlp.safetensors is no prior for {log}: its model is mlp 4, not linear"


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({"lam": "1"}, {}),
        ({"lam": "0.1,1"}, {}),  # two policies, each as it was asked for
        ({"risk": "banditnet", "reg": "none", "translation": "mean"}, {"translation": "mean"}),
        (
            {"lam": "0.1,1", "select": "snips", "folds": 2},
            {"lam": "0.1,1", "nu": "0.001", "select": "snips", "select-on": "sampled", "folds": 2},
        ),
    ],
)
def test_policy_says_what_was_asked_where_its_lineage_has_the_outcome(
    log: Path, tmp_path: Path, settings: dict[str, Any], asked: dict[str, Any]
) -> None:
    policy = train_all(log, **settings, **FEW)[0].policy
    write_policy(policy, str(tmp_path / "p.safetensors"), force=False)
    kept = dict(read_policy(str(tmp_path / "p.safetensors")).policy.asked)
    assert kept.pop("reward-range") == "known"
    assert {name: value for name, value in kept.items() if name in asked} == asked
    assert bool(kept) == bool(asked)


@pytest.mark.parametrize("how", [{"holdout": 0.3}, {"folds": 3}])
def test_policy_keeps_every_candidates_estimate(log: Path, tmp_path: Path, how: dict[str, Any]) -> None:
    trained = train_all(log, **FEW, lam="0.1,1,10", select="snips", seeds="0,1", **how)
    for one in trained:
        by_lam = {values["lam"]: estimate for values, estimate in one.policy.searched}
        assert list(by_lam) == [0.1, 1, 10]
        assert one.estimate == max(e for e in by_lam.values() if e is not None)
        assert one.hyperparameters["lam"] == max(by_lam, key=lambda lam: by_lam[lam] or 0)
        write_policy(one.policy, str(tmp_path / "p.safetensors"), force=True)
        assert read_policy(str(tmp_path / "p.safetensors")).policy.searched == one.policy.searched
    assert trained[0].policy.searched != trained[1].policy.searched
    (alone,) = train_all(log, **FEW)
    assert alone.policy.searched == ()


def test_strangers_candidates_are_refused(log: Path, tmp_path: Path) -> None:
    for number, wrong in enumerate([(({"lam": "x"}, 1.0),), (({}, "best"),), (({"lam": [1]}, None),)]):
        crafted: Any = replace(train(log, **FEW), searched=wrong)  # type: ignore[arg-type]
        write_policy(crafted, str(tmp_path / f"{number}.safetensors"), force=False)
        with pytest.raises(ContractError, match="searched in its document must be candidates with estimates"):
            read_policy(str(tmp_path / f"{number}.safetensors"))


def test_strangers_words_for_what_was_asked_are_refused(log: Path, tmp_path: Path) -> None:
    crafted = replace(train(log, **FEW), asked={"lam": {"a": 1}})
    write_policy(crafted, str(tmp_path / "p.safetensors"), force=False)
    with pytest.raises(ContractError, match="asked in its document must map option names to plain values"):
        read_policy(str(tmp_path / "p.safetensors"))
