"""Many policies at once: each is what it would be alone."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning_fixtures import arrays_of, blobs, train, train_all, write_arrays

from s2bl_cli.contract.policies import Policy
from s2bl_cli.objectives.methods import METHODS

ACTIONS = 3
LONG = {"epochs": 4, "lr": 0.05}  # far enough for a mistake to show


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arrays(tmp_path_factory.mktemp("grid") / "log.parquet", blobs(known=0.5), ACTIONS)


def _far(one: Policy, other: Policy) -> float:
    return max(float(np.abs(one.tensors[name] - other.tensors[name]).max()) for name in one.tensors)


def _check_each_alone(log: Path, grid: dict[str, Any], **settings: Any) -> None:
    """Every policy of the grid against a run of its own, made from what the policy's lineage says of it."""
    found = train_all(log, **LONG, **grid, **settings)
    for one in found:
        given = {name: value for name, value in one.candidate.hyperparameters.items() if name in grid}
        alone = train(log, **LONG, **settings, **given, seed=one.seed)
        assert _far(one.policy, alone) < 2e-4
    pairs = [_far(one.policy, other.policy) for i, one in enumerate(found) for other in found[:i]]
    assert min(pairs) > 1e-3  # they differ among themselves by more than from their like


GRIDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lam": ({"lam": "0,0.3,3"}, {}),
    "lam, seeds": ({"lam": "0.1,1", "seeds": "0,7"}, {}),
    "lam, nu": ({"lam": "0.1,1", "nu": "0,0.5,0.9"}, {}),
    "sharpen": ({"sharpen": "0,1,3"}, {"cap": 0.5}),
    "translation": ({"translation": "-1,-0.5,0"}, {"risk": "banditnet", "reg": "none"}),
    "mixed": ({"lam": "0,1", "seeds": "0,1"}, {"sampling": "mixed"}),
    "known rows": ({"lam": "0,1", "seeds": "0,1"}, {"reg_rows": "known"}),
    "kl": ({"lam": "0.01,0.3", "nu": "0.001,0.6"}, {"reg": "kl"}),
    "exact kl": ({"lam": "0.1,1", "nu": "0.001,0.6"}, {"reg": "kl", "reg_form": "exact"}),
    "exact wce": ({"lam": "0,0.1,1"}, {"reg_form": "exact", "reg_rows": "known"}),
    "cce": ({"lam": "0,1", "seeds": "0,1"}, {"reg": "cce"}),
    "lpr": ({"lam": "0,0.01,0.1", "seeds": "0,1"}, {"reg": "lpr"}),
    "lse": ({"lam": "0.1,1", "seeds": "0,1"}, {"risk": "lse", "sampling": "mixed"}),
    "pseudo": ({"lam": "0.1,1"}, {"risk": "pseudo"}),
    "sgd": ({"lam": "0.1,1"}, {"optimizer": "sgd", "schedule": "cosine", "weight_decay": 0.1}),
    "holdout": ({"lam": "0.1,1", "seeds": "0,1"}, {"holdout": 0.3}),
    "holdout, patience": ({"lam": "0.1,1", "seeds": "0,1"}, {"holdout": 0.3, "patience": 1}),
    "mlp, sharpen": ({"sharpen": "0.5,4"}, {"model": "mlp", "hidden": "4"}),
    "mlp": ({"lam": "0.1,1", "seeds": "0,1"}, {"model": "mlp", "hidden": "4"}),
}


@pytest.mark.parametrize(("grid", "settings"), GRIDS.values(), ids=GRIDS.keys())
def test_each_policy_of_a_grid_is_what_it_is_alone(log: Path, grid: dict[str, Any], settings: dict[str, Any]) -> None:
    _check_each_alone(log, grid, **settings)


def test_images_too(tmp_path: Path) -> None:
    """Bytes, few columns and many: with and without the scale folded into the weights."""
    rows = blobs(known=0.5)
    as_bytes = np.clip(40 * rows.context + 100, 0, 255).astype(np.uint8)
    log = write_arrays(tmp_path / "log.parquet", replace(rows, context=as_bytes), ACTIONS)
    _check_each_alone(log, {"lam": "0.1,1"})
    _check_each_alone(log, {"lam": ",".join(str(round(0.05 * 1.3**i, 4)) for i in range(24))})


def test_small_groups_do_not_shrink_each_others_batches(tmp_path: Path) -> None:
    """Twenty known rows and batches of 32: how many a seed holds out is chance, and a batch is what it has left."""
    log = write_arrays(tmp_path / "log.parquet", blobs(known=0.05), ACTIONS)
    _check_each_alone(log, {"seeds": "0,1,2,3"}, holdout=0.4, method="tips")


def test_lam_zero_in_a_grid_is_the_plain_risk(log: Path) -> None:
    for settings in ({}, {"sampling": "mixed"}, {"risk": "ix"}):
        both = train_all(log, **LONG, **settings, reg="wce", lam="0,1")
        assert _far(both[0].policy, train(log, **LONG, **settings, reg="none")) < 2e-4
        assert _far(both[1].policy, both[0].policy) > 1e-2


@pytest.mark.parametrize("risk", ["tips", "banditnet", "wnll", "ix", "es", "ls", "lse", "os"])
def test_with_all_feedback_filling_in_changes_nothing(tmp_path: Path, risk: str) -> None:
    """pseudo is tips, and the K variants are the others, whatever the risk."""
    log = write_arrays(tmp_path / "log.parquet", blobs(known=1.0), ACTIONS)
    if risk == "tips":
        assert _far(train(log, method="q-learning", **LONG), train(log, method="tips", **LONG)) < 1e-4
    for reg in ("wce", "kl", "cce"):
        on_all, on_known = (train(log, **LONG, risk=risk, reg=reg, reg_rows=rows) for rows in ("all", "known"))
        assert _far(on_all, on_known) == 0


def test_filling_in_changes_something_where_feedback_is_missing(log: Path) -> None:
    assert _far(train(log, method="q-learning", **LONG), train(log, method="tips", **LONG)) > 1e-2
    by_propensity = train(log, method="q-learning", cost_model="propensity", **LONG)
    assert _far(by_propensity, train(log, method="q-learning", **LONG)) > 1e-3


@pytest.mark.parametrize("sampling", ["paired", "mixed"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_with_both_samplings(log: Path, method: str, sampling: str) -> None:
    policy = train(log, method=method, sampling=sampling, **LONG)
    assert all(np.isfinite(value).all() for value in policy.tensors.values())
    assert np.abs(policy.tensors["body.1.weight"]).max() > 0.01


def test_mixed_and_paired_go_to_the_same_place(tmp_path: Path) -> None:
    """The same objective from other batches: long enough and in small steps, the policies meet."""
    log = write_arrays(tmp_path / "log.parquet", blobs(rows=300, test_rows=0, known=0.5), ACTIONS)
    settings: dict[str, Any] = {"epochs": 150, "batch_size": 150, "lr": 0.02, "schedule": "cosine", "lam": 1}
    paired, mixed = (train(log, **settings, sampling=sampling) for sampling in ("paired", "mixed"))
    weight = paired.tensors["body.1.weight"]
    assert _far(paired, mixed) < 0.1 * np.abs(weight).max()
    assert _far(paired, mixed) > 0


@pytest.mark.parametrize(
    "settings", [{"reg": "lpr"}, {"reg": "wce", "reg_rows": "all"}], ids=lambda given: given["reg"]
)
def test_mixed_batches_of_filled_in_costs_have_missing_rows(log: Path, settings: dict[str, Any]) -> None:
    """lpr sees no rows, so that --reg-rows known is no obstacle: the policies differ from those of the known rows."""
    mixed = {"sampling": "mixed", **LONG, **settings}
    assert _far(train(log, risk="pseudo", **mixed), train(log, risk="tips", **mixed)) > 1e-2


def test_mixed_lse_is_that_of_the_known_rows(tmp_path: Path) -> None:
    """A policy that stays uniform over two actions, logged by p = 0.8: w = 0.625, and r = 1 in every fifth known row.
    λ = −1: value −1/λ ln(0.8 + 0.2 e^{−0.625}) = −0.0974. Of 64 rows, 3 on average have feedback, in some batches none;
    the logarithm of their number would shift the value to −0.208."""
    row = np.arange(2000)
    cost = np.where(row % 20 == 0, -(row % 100 == 0).astype(float), np.nan)
    arrays = arrays_of(np.ones((2000, 2), np.float32), row % 2, np.full(2000, 0.8), cost)
    log = write_arrays(tmp_path / "log.parquet", arrays, 2)
    still: dict[str, Any] = {"risk": "lse", "reg": "none", "smoothing": -1, "lr": 1e-12, "batch_size": 64, "epochs": 30}
    expected = math.log(0.8 + 0.2 * math.exp(-0.625))
    for sampling, tolerance in (("paired", 0.002), ("mixed", 0.01)):
        (trained,) = train_all(log, **still, sampling=sampling)
        risk = [value for _, quantity, value in trained.curve if quantity == "risk"]
        assert np.mean(risk) == pytest.approx(expected, abs=tolerance)


def test_many_actions_train(tmp_path: Path) -> None:
    """10,000 actions of which 200 rows show few: no tensor of contexts × actions is made of the log."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, 10_000, 200)
    arrays = arrays_of(rng.standard_normal((200, 4)).astype(np.float32), action, np.full(200, 1e-4), -np.ones(200))
    policy = train(write_arrays(tmp_path / "log.parquet", arrays, 10_000), epochs=2, method="wce-s2bl", nu=0.0)
    assert policy.tensors["body.1.weight"].shape == (10_000, 4)
    assert policy.tensors["body.1.bias"][action].mean() > 0.005 + policy.tensors["body.1.bias"].min()


def test_sharp_weights_of_small_propensities_are_finite(tmp_path: Path) -> None:
    """All weights are the same whatever β, as a uniform policy logged: 0.01^50 would be 0, and its mean's inverse ∞."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, ACTIONS, 200)
    context = (np.eye(3)[action] + rng.standard_normal((200, 3))).astype(np.float32)
    arrays = arrays_of(context, action, np.full(200, 0.01), np.full(200, np.nan))
    log = write_arrays(tmp_path / "log.parquet", arrays, ACTIONS)
    flat, *sharp = train_all(log, method="wce-only", sharpen="0,1,7,50", **LONG)
    for one in sharp:
        assert _far(one.policy, flat.policy) < 1e-3
    assert np.abs(flat.policy.tensors["body.1.weight"]).max() > 0.1
