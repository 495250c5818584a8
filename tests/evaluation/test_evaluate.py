"""What evaluate finds in a log: divergences, bounds, health, policies of every kind, and what it warns of."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from learning_fixtures import CPU, arrays_of, blobs, default_device_elsewhere, one_hot, table_policy, write_arrays
from repository import ROOT

from s2bl_cli.contract.acts import parse_act
from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.lineage import Step, command_lines
from s2bl_cli.contract.logs.reading import LogArrays
from s2bl_cli.contract.policies import LoadedPolicy, NetworkSpec, Policy, read_policy
from s2bl_cli.contract.scores import BIN, LOGGING_POLICY, read_scores
from s2bl_cli.evaluation import row_pass
from s2bl_cli.evaluation.row_pass import PolicyBank
from s2bl_cli.evaluation.settings import EvaluateSettings
from s2bl_cli.metrics import gains
from s2bl_cli.metrics.divergences import divergence_limit, estimator_error_bound, risk_bound
from s2bl_cli.metrics.estimate import Estimate
from s2bl_cli.metrics.health import (
    CAUTION,
    RELIABLE,
    UNRELIABLE,
    WEIGHT_EDGES,
    carrying_rows,
    largest_share,
    verdict,
    weight_shares,
)
from s2bl_cli.metrics.sample import KL, PI, REVERSE_KL, UNSUPPORTED, LogBatch, LoggedSample, PolicyBatch, ScoredPolicy
from s2bl_cli.policies.acting import action_probabilities
from s2bl_cli.policies.network import build_network, network_from, network_tensors
from s2bl_cli.registry import ESTIMATORS, HEALTH, LABEL_METRICS, METRIC_GROUPS, METRICS

Run = Callable[..., Any]

# --- divergences and bounds ---


def _exact(pi: Any, pi0: Any) -> tuple[Any, Any]:
    """KL and reverse KL of each row, from whole distributions."""
    batch = LogBatch(np.zeros(len(pi), np.int32), pi0[:, 0], np.empty(0, np.int32), np.empty((0, 0)), pi0, np.empty(0))
    rows = PolicyBatch(pi, batch)
    return KL.values(rows), REVERSE_KL.values(rows)


def _on_log(pi: Any, p: Any, action: Any, actions: int, **changes: Any) -> ScoredPolicy:
    """Rows with feedback, of which a policy takes the logged action with probability `pi`."""
    action, p = np.asarray(action, np.int32), np.asarray(p)
    sample = LoggedSample(action, p, np.zeros(len(p)), np.ones(len(p), bool), None, actions)
    return ScoredPolicy(sample, {PI.name: np.asarray(pi)}, **changes)


def _measured(name: str, policy: ScoredPolicy) -> Estimate:
    (estimate,) = METRICS.load(name).compute(policy)
    assert isinstance(estimate, Estimate)
    return estimate


def test_a_policy_does_not_diverge_from_itself() -> None:
    rng = np.random.default_rng(0)
    pi = rng.dirichlet([1, 1, 1], size=20)
    assert _exact(pi, pi) == (pytest.approx(np.zeros(20)), pytest.approx(np.zeros(20)))
    policy = _on_log(pi[:, 0], pi[:, 0], rng.integers(0, 3, 20), 3)
    assert {_measured(name, policy).value for name in ("kl-sampled", "reverse-kl-paper")} == {0}


def test_divergences_by_hand() -> None:
    """π = (½, ½), π₀ = (¼, ¾): KL(π‖π₀) = ½ ln 2 + ½ ln ⅔, KL(π₀‖π) = ¼ ln ½ + ¾ ln 3/2."""
    forward, backward = _exact(np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]]))
    assert forward == pytest.approx([0.5 * math.log(2) + 0.5 * math.log(2 / 3)])
    assert backward == pytest.approx([0.25 * math.log(0.5) + 0.75 * math.log(1.5)])
    # Logged 0 once and 1 three times, as π₀ draws: the sampled figures are the exact ones. The paper's, whose terms do
    # not depend on the context here, are exact as well; action 2 has no rows and no term.
    policy = _on_log(np.full(4, 0.5), [0.25, 0.75, 0.75, 0.75], [0, 1, 1, 1], 3)
    for kind in ("sampled", "paper"):
        assert _measured(f"kl-{kind}", policy).value == pytest.approx(forward[0])
        assert _measured(f"reverse-kl-{kind}", policy).value == pytest.approx(backward[0])


def test_error_of_the_papers_divergence_is_that_of_means_by_action() -> None:
    """Σ_a mean_a over given m_a: the variance is Σ_a Var_a/m_a, here with Var_a over m_a rows."""
    rng = np.random.default_rng(0)
    pi, p, action = rng.uniform(0.1, 0.9, 600), rng.uniform(0.1, 0.9, 600), rng.integers(0, 2, 600)
    terms = pi * np.log(pi / p)
    variance = sum(terms[action == a].var() / (action == a).sum() for a in (0, 1))
    error = _measured("kl-paper", _on_log(pi, p, action, 2)).stderr
    assert error == pytest.approx(math.sqrt(variance), rel=0.002)


def test_probabilities_of_zero_make_divergences_large_not_infinite() -> None:
    sure = np.array([[1.0, 0.0]], np.float32)
    forward, backward = _exact(sure[:, ::-1], sure)
    assert 80 < forward[0] < 90
    assert 80 < backward[0] < 90


def test_the_papers_bounds_by_hand() -> None:
    """ν = ½, n = 100, δ = e⁻³, M = ½: R̂ + 6/150 + √((1/½ + 2)·3/100). Two actions, 4 and 1 rows, the largest term 3."""
    assert risk_bound(0.4, 0.5, 100, 0.5, math.exp(-3)) == pytest.approx(-0.4 + 0.04 + math.sqrt(0.12))
    assert risk_bound(0.4, -0.1, 100, 0.5, math.exp(-3)) == risk_bound(0.4, 0, 100, 0.5, math.exp(-3))
    sample = _on_log(np.ones(5), np.ones(5), [0, 0, 0, 0, 2], 3).sample
    bound = estimator_error_bound(np.array([1.0, -3, 0, 0, 0]), sample, 0.05)
    assert bound == pytest.approx(3 * math.sqrt(2 * math.log(3 / 0.05)) * (0.5 + 1))


def _pair(n: int, seed: int) -> ScoredPolicy:
    """π = (0.6, 0.4) on a log of π₀ = (½, ½), without its distribution."""
    action = np.random.default_rng(seed).integers(0, 2, n)
    return _on_log(np.where(action == 0, 0.6, 0.4), np.full(n, 0.5), action, 2, nu=0.1)


def test_divergence_limit_is_rarely_below_the_divergence() -> None:
    """KL = 0.0201, reverse KL = 0.0204, from 200 draws each: the smaller of the two estimates is too small in more than
    half of 400 logs, the smaller of the two limits in at most 5 %."""
    least = 0.6 * math.log(1.2) + 0.4 * math.log(0.8)
    policies = [_pair(200, seed) for seed in range(400)]
    estimates = [min(_measured(f"{kl}-sampled", one).value for kl in ("kl", "reverse-kl")) for one in policies]
    assert np.mean(np.array(estimates) < least) > 0.5
    assert np.mean([divergence_limit(one, 0.05)[0] < least for one in policies]) <= 0.05


def test_theorem_bound_is_of_the_declared_range() -> None:
    """Costs −1 and 0 with rewards declared in [0, 1]; 10 times that and 3 more for rewards in [−3, 7]; none if not
    declared, nor with a model of missingness."""
    policy = _pair(500, 0)
    reward = (policy.sample.action == 0).astype(float)
    plain = replace(policy, sample=replace(policy.sample, r=reward, declared_range=(0.0, 1.0)))
    limit, source = divergence_limit(plain, 0.025)
    estimate = _measured("theorem1-bound", plain)
    truncated = (plain.pi / 0.5 * reward).mean()
    assert estimate.value == pytest.approx(risk_bound(truncated, limit, 500, 0.1, 0.025))
    assert source == "sampled"
    assert estimate.note == (
        f"of the risk, with probability 0.95; M ≤ {limit:.4g} (sampled); rewards in [0, 1], as declared"
    )
    moved = replace(plain, sample=replace(plain.sample, r=10 * reward - 3, declared_range=(-3.0, 7.0)))
    assert _measured("theorem1-bound", moved).value == pytest.approx(10 * estimate.value + 3)
    for changes in ({"declared_range": None}, {"observed": np.full(500, 0.5)}):
        without = replace(plain, sample=replace(plain.sample, **changes))
        assert list(METRICS.load("theorem1-bound").compute(without)) == []


# --- health ---


def _verdict(
    ess: float = 500, mean: float = 1.01, error: float = 0.03, truncated: float = 0, unsupported: float = 0,
    concerns: tuple[str, ...] = (), carrying: float = 100, share: float = 0.1, heavy: float = 100,
) -> tuple[int, str]:  # fmt: skip
    """Of 1,000 known rows; `error` is made by two influence values."""
    mean_weight = Estimate(mean, 2, error * np.array([1.0, -1.0]))
    assert mean_weight.stderr == pytest.approx(error)
    return verdict(ess, 1000, heavy, carrying, share, mean_weight, truncated, unsupported, concerns)


def test_health_by_hand() -> None:
    """w = 1 1 2 and, of a row without feedback, 4: ess = 16/6, but the mean weight is 2; one of four propensities is
    below ν; a quarter of the choices are unsupported. Rewards 0 0 1: snips is ½, its influence values (−½ −½ 1)·¾, so
    the rows that carry it are 2²/(4·1.5) and the largest has 1/1.5 of the variance."""
    policy = _on_log([0.5, 0.5, 1.0, 0.04], [0.5, 0.5, 0.5, 0.01], np.zeros(4), 1, nu=0.1)
    known = replace(policy.sample, known=np.array([True, True, True, False]), r=np.array([0.0, 0, 1, 0]))
    policy = replace(policy, sample=known, columns={**policy.columns, UNSUPPORTED.name: np.array([0, 0.5, 0.5, 0])})
    wanted = {
        "ess": 16 / 6, "ess-share": 16 / 18, "carrying-rows": 4 / 6, "largest-share": 1 / 1.5, "mean-weight": 2,
        "weight-p50": 1, "weight-max": 2, "truncated-share": 0.25, "unsupported-share": 0.25,
    }  # fmt: skip
    measured = {name: _measured(name, policy) for name in wanted}
    assert {name: estimate.value for name, estimate in measured.items()} == pytest.approx(wanted)
    assert [estimate.rows for estimate in measured.values()] == [3, 3, 3, 3, 4, 3, 3, 4, 4]
    assert _measured("health", policy).value == UNRELIABLE
    assert _measured("ess", _on_log(np.zeros(3), np.ones(3), np.zeros(3), 1)).value == 0


def test_health_with_a_model_of_missingness_counts_weighted_rows() -> None:
    """w = 1 1 2, known with probability 1, 1 and ½: w·o is 1 1 4, ess = 36/18."""
    policy = _on_log([0.5, 0.5, 1.0], [0.5, 0.5, 0.5], np.zeros(3), 1)
    sample = replace(policy.sample, observed=np.array([1, 1, 0.5], np.float32))
    assert _measured("ess", replace(policy, sample=sample)).value == pytest.approx(2)


def test_health_counts_clusters() -> None:
    """w = 1 1 2 of two clusters: their sums are 2 and 2, so ess is 2 of 2."""
    policy = _on_log([0.5, 0.5, 1.0], [0.5, 0.5, 0.5], np.zeros(3), 1)
    policy = replace(policy, sample=replace(policy.sample, cluster=np.array([0, 0, 1])))
    assert _measured("ess", policy).value == pytest.approx(2)
    assert _measured("ess-share", policy).value == pytest.approx(1)
    assert "effective sample size only 2.0 of 2" in str(_measured("health", policy).note)


def test_rows_that_carry_an_estimate_by_hand() -> None:
    """14 clicks among 10,000 views are 14 rows, except for the share of clicks; ±1 counts a quarter. Equal rewards
    carry nothing, whatever rounding leaves."""
    clicks = np.r_[np.ones(14), np.zeros(9986)]
    influence = clicks - clicks.mean()
    assert carrying_rows(influence) == pytest.approx(14 * (1 - 0.0014))
    assert largest_share(influence) == pytest.approx((1 - 0.0014) / 14)
    assert carrying_rows(np.tile([1.0, -1.0], 50)) == pytest.approx(25)
    assert (carrying_rows(np.zeros(3)), largest_share(np.zeros(3))) == (0, 0)
    policy = _on_log(np.full(300, 0.1), np.full(300, 0.3), np.zeros(300), 1)
    policy = replace(policy, sample=replace(policy.sample, r=np.full(300, 0.1)))
    assert _measured("carrying-rows", policy).value == 0
    verdict_text = _measured("health", replace(policy, columns={PI.name: np.full(300, 0.3)})).note
    assert verdict_text == "caution: all known rows have the same reward"


def test_unsupported_share_is_per_context_if_the_log_stores_the_distribution() -> None:
    """π = (½, ½) in both rows. π₀ cannot take action 1 in the first: ½ there, although both actions were logged.
    Without π₀, what counts is whether an action was never logged."""
    pi0 = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
    pi, nothing = np.full((2, 2), 0.5, np.float32), np.empty((0, 0), np.float32)
    action, p, label = np.array([0, 1], np.int32), np.array([1.0, 0.5], np.float32), np.empty(0, np.int32)
    for stored, never, wanted in (
        (pi0, [False, False], [0.5, 0]),
        (pi0, [False, True], [0.5, 0]),
        (nothing, [False, False], [0, 0]),
        (nothing, [False, True], [0.5, 0.5]),
    ):
        batch = LogBatch(action, p, label, nothing, stored, np.array(never))
        values = UNSUPPORTED.values(PolicyBatch(pi, batch))
        assert values is not None
        assert values.tolist() == wanted


def test_weights_in_bins_by_hand() -> None:
    """Four rows: 0 is in the first bin, an edge in the bin that it begins, what is beyond the last edge in the last."""
    shares = weight_shares(np.array([0.0, 0.7, np.nextafter(0.7, 0), 1e9]))
    assert {i: share for i, share in enumerate(shares) if share} == {0: 0.25, 6: 0.25, 7: 0.25, 14: 0.25}
    assert (WEIGHT_EDGES[0], WEIGHT_EDGES[7], WEIGHT_EDGES[14], len(shares)) == (0, 0.7, 150, 15)
    drawn = np.random.default_rng(0).lognormal(0, 3, 1000)
    assert weight_shares(drawn) == pytest.approx(np.histogram(drawn, [*WEIGHT_EDGES, np.inf])[0] / 1000)
    assert weight_shares(drawn).sum() == pytest.approx(1)


def test_the_logging_policys_weights_are_in_one_bin() -> None:
    """π is kept in single precision: 1 is met only to seven digits."""
    p = np.random.default_rng(0).uniform(0.01, 1, 1000)
    assert weight_shares(p.astype(np.float32).astype(np.float64) / p).max() == 1


@pytest.mark.parametrize(
    ("changes", "level", "reason"),
    [
        ({}, RELIABLE, "reliable: effective sample size 500 of 1,000, mean weight 1.01"),
        ({"ess": 100}, RELIABLE, "reliable: effective sample size 100 of 1,000, mean weight 1.01"),
        ({"ess": 60}, CAUTION, "caution: effective sample size only 60 of 1,000"),
        ({"ess": 12}, UNRELIABLE, "unreliable: effective sample size only 12.0 of 1,000"),
        ({"heavy": 12}, CAUTION, "caution: 12 rows have nearly all of the squared weights"),
        ({"carrying": 14}, CAUTION, "caution: only 14 rows carry the estimate"),
        ({"carrying": 7}, UNRELIABLE, "unreliable: only 7 rows carry the estimate"),
        ({"carrying": 0}, CAUTION, "caution: all known rows have the same reward"),
        ({"share": 0.3}, CAUTION, "caution: one row has 30% of the variance of the estimate"),
        ({"share": 0.6}, UNRELIABLE, "unreliable: one row has 60% of the variance of the estimate"),
        (
            {"unsupported": 0.05},
            CAUTION,
            "caution: 5.0% of its choices are of actions that the logging policy does not take",
        ),
        ({"truncated": 0.2}, CAUTION, "caution: 20.0% of the propensities are below ν"),
        ({"mean": 1.1, "error": 0.048}, CAUTION, "caution: the mean weight is 1.100 where 1 is expected (2.1 standard"),
        ({"mean": 0.9, "error": 0.052}, RELIABLE, "reliable: effective sample size 500 of 1,000, mean weight 0.90"),
        ({"mean": 1.1, "error": 0.001}, UNRELIABLE, "unreliable: the mean weight is 1.100"),
        ({"mean": 1.01, "error": 1e-9}, RELIABLE, "reliable"),
        ({"concerns": ("it was trained on these rows",)}, CAUTION, "caution: it was trained on these rows"),
        ({"ess": 60, "unsupported": 0.5}, UNRELIABLE, "unreliable: 50.0% of its choices"),
    ],
)
def test_verdicts(changes: dict[str, Any], level: int, reason: str) -> None:
    value, text = _verdict(**changes)
    assert value == level
    assert text.startswith(reason)


# --- many policies at once ---


def _linear(name: str, seed: int, features: int = 5, shift: float = 0.0, model: str = "linear") -> LoadedPolicy:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    spec = NetworkSpec(model, ContextSpec("float32", (features,)), 3, (4,) if model == "mlp" else ())
    tensors = network_tensors(build_network(spec))
    if model == "linear":
        tensors["body.1.weight"] = rng.standard_normal((3, features)).astype(np.float32)
        tensors["body.1.bias"] = rng.standard_normal(3).astype(np.float32)
    tensors["shift"] = (shift + rng.standard_normal(features)).astype(np.float32)
    tensors["scale"] = rng.uniform(0.5, 2, features).astype(np.float32)
    policy = Policy(spec, 1, 1, Step("train", {}, "0"), tensors)
    return LoadedPolicy(name, policy, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("at_once", [1, 1 << 20], ids=["one at a time", "all at once"])
@pytest.mark.parametrize("shift", [0.0, 1e5], ids=["near 0", "far from 0"])
def test_stacked_policies_are_each_alone(shift: float, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear ones in one product, another model among them; features around 1e5 keep their digits."""
    monkeypatch.setattr(row_pass, "_STACKED_NUMBERS_AT_ONCE", at_once)
    policies = [_linear("a", 0, shift=shift), _linear("m", 1, shift=shift, model="mlp"), _linear("b", 2, shift=shift)]
    context = (shift + np.random.default_rng(3).standard_normal((7, 5))).astype(np.float32)
    bank = PolicyBank(dict(enumerate(policies)), CPU)
    found = dict(bank.logits(torch.from_numpy(context)))
    assert sorted(found) == [0, 1, 2]
    for i, one in enumerate(policies):
        network = network_from(one.policy.network, one.policy.tensors, one.name).eval()
        wanted = torch.softmax(network(torch.from_numpy(context)), dim=1).detach().numpy()
        assert torch.softmax(found[i], dim=0).T.numpy() == pytest.approx(wanted, abs=2e-4 if shift else 1e-6)


def test_weights_that_cannot_be_folded_are_left_as_they_are() -> None:
    """scale · weight is beyond float32; scaled one after the other it is not."""
    policy = _linear("a", 0)
    policy.policy.tensors["scale"][:] = 1e38
    policy.policy.tensors["body.1.weight"][:] *= 100
    contexts = torch.from_numpy(np.tile(policy.policy.tensors["shift"], (2, 1)))
    ((_, logits),) = PolicyBank({0: policy}, CPU).logits(contexts)
    assert torch.isfinite(logits).all()


def test_a_bank_computes_on_the_device_that_is_given() -> None:
    bank = PolicyBank({0: _linear("a", 0), 1: _linear("m", 1, model="mlp")}, CPU)
    contexts = torch.zeros(2, 5)
    with default_device_elsewhere():
        for _, logits in bank.logits(contexts):
            assert action_probabilities(logits, parse_act("epsilon=0.1"), dim=0).shape == (3, 2)


# --- policies of every kind ---

TABLE = [[0.9, 0.1], [0.6, 0.4]]


def _small(**changes: Any) -> LogArrays:
    """Contexts 0 0 1 1 of the test split, one train row before and one after them."""
    rows = arrays_of(
        one_hot([0, 0, 0, 1, 1, 0], 2),
        [0, 0, 1, 1, 0, 0],
        [0.75, 0.75, 0.25, 0.5, 0.5, 0.75],
        [-1, -1, 0, -1, 0, -1],
        label=[0, 0, 0, 1, 1, 0],
        is_test=[False, True, True, True, True, False],
    )
    return replace(rows, **changes)


def _values(path: Path, policy: str) -> dict[str, float]:
    table, _ = read_scores([str(path)])
    return {
        row["metric"]: row["value"] for row in table.to_pylist() if row["policy"] == policy and row["label"] is None
    }


def test_histogram_of_weights_by_hand(run: Run, tmp_path: Path) -> None:
    """Uniform on the test rows: w = ½/p = ⅔ 2 1 1, in the bins from 0.3, 1.5 and 0.7. Of three known rows, thirds."""
    write_arrays(tmp_path / "log.parquet", _small(), 2)
    write_arrays(tmp_path / "masked.parquet", _small(known=np.array([True, True, False, True, True, True])), 2)
    words = ("--logs", "log.parquet", "--logs", "masked.parquet", "--metrics", "weight-share,mean-weight")
    assert run("evaluate", "uniform", *words).code == 0
    rows = read_scores([str(tmp_path / "scores.parquet")])[0].to_pylist()
    shares = [row for row in rows if row["metric"] == "weight-share"]
    for policy, log, wanted, known in (
        ("uniform", "log.parquet", {6: 1 / 4, 7: 1 / 2, 8: 1 / 4}, 4),
        ("uniform", "masked.parquet", {6: 1 / 3, 7: 2 / 3}, 3),
        (LOGGING_POLICY, "log.parquet", {7: 1}, 4),
    ):
        mine = [row for row in shares if (row["policy"], row["log"]) == (policy, log)]
        assert {row["label"]: row["value"] for row in mine if row["value"]} == pytest.approx(wanted)
        assert [row["label"] for row in mine] == list(range(len(WEIGHT_EDGES)))
        assert [row["low"] for row in mine] == list(WEIGHT_EDGES)
        assert [row["high"] for row in mine] == [*WEIGHT_EDGES[1:], None]
        assert {(row["interval"], row["level"], row["stderr"], row["rows"]) for row in mine} == {
            ("bin", None, None, known)
        }
    assert {row["level"] for row in rows if row["metric"] == "mean-weight"} == {0.95}


def test_uniform_and_logging_policy_by_hand(run: Run, tmp_path: Path) -> None:
    """Test rows: p = ¾ ¼ ½ ½, rewards 1 0 1 0. Uniform: (½/¾ + ½/½)/4. Logging: the mean reward ½, named or not."""
    write_arrays(tmp_path / "log.parquet", _small(), 2)
    assert run("evaluate", "uniform", "logging", "--logs", "log.parquet", "--metrics", "value,labels").code == 0
    uniform, logging = (_values(tmp_path / "scores.parquet", name) for name in ("uniform", LOGGING_POLICY))
    assert uniform["ips"] == pytest.approx((2 / 3 + 1) / 4)
    assert uniform["sampled-accuracy"] == pytest.approx(0.5)
    assert uniform["true-risk"] == pytest.approx(-0.5)
    assert logging["ips"] == logging["snips"] == pytest.approx(0.5)
    assert "dr" in uniform
    # Its whole distribution is not in the log: q̂ of the logged actions stands for q̂(x, π₀).
    assert logging["dr"] == logging["sndr"] == logging["ppi-dr"] == pytest.approx(0.5)
    table, lineage = read_scores([str(tmp_path / "scores.parquet")])
    assert set(table["method"].to_pylist()) == {"uniform", LOGGING_POLICY}
    assert [(source.role, source.name) for source in lineage[0].inputs] == [("policy", "uniform"), ("logs", None)]


@pytest.mark.parametrize(
    ("policies", "told"),
    [
        (("uniform", "logging"), "uniform"),
        (("logging",), "logging"),
        (("p.safetensors", "uniform"), "p.safetensors uniform"),
    ],
)
def test_the_lineage_tells_the_command_again(run: Run, tmp_path: Path, policies: tuple[str, ...], told: str) -> None:
    columns = {
        "context": pa.array([[0.0, 1.0]] * 4),
        "action": [0, 1, 0, 1],
        "propensity": [0.5] * 4,
        "cost": [-1.0, 0, 0, -1],
    }
    pq.write_table(pa.table(columns), "plain.parquet")
    table_policy(tmp_path / "p.safetensors", TABLE)
    assert run("evaluate", *policies, "--logs", "plain.parquet", "--metrics", "ips").code == 0
    _, lineage = read_scores([str(tmp_path / "scores.parquet")])
    line = command_lines(lineage[0])[-1]
    if "p.safetensors" in policies:
        told = told.replace("p.safetensors", "1-train.safetensors")
    assert f" {told} --logs plain.parquet " in line


def _probabilities(form: str, pi: Any) -> pa.Table:
    pi = np.asarray(pi, np.float32)
    if form == "binary":
        return pa.table({"pi": pa.array([row.tobytes() for row in pi], pa.binary(4 * pi.shape[1]))})
    if form == "columns":
        return pa.table({"id": np.arange(len(pi)), **{f"p{a}": pi[:, a] for a in range(pi.shape[1])}})
    kind = pa.list_(pa.float64()) if form == "lists" else pa.list_(pa.float32(), pi.shape[1])
    return pa.table({"pi": pa.array(pi.tolist(), kind)})


@pytest.mark.parametrize("form", ["binary", "columns", "lists", "fixed-size lists"])
@pytest.mark.parametrize("which", ["whole log", "scored rows"])
def test_probabilities_of_another_tool_are_scored_as_the_policy_that_made_them(
    run: Run, tmp_path: Path, form: str, which: str
) -> None:
    write_arrays(tmp_path / "log.parquet", _small(), 2)
    table_policy(tmp_path / "p.safetensors", TABLE)
    pi = np.asarray(TABLE)[[0, 0, 0, 1, 1, 0]]
    pq.write_table(_probabilities(form, pi if which == "whole log" else pi[1:5]), "other.parquet", row_group_size=3)
    ran = run("evaluate", "p.safetensors", "other.parquet", "--logs", "log.parquet")
    assert ran.code == 0, ran.stderr
    own, other = (_values(tmp_path / "scores.parquet", name) for name in ("p.safetensors", "other.parquet"))
    assert own.keys() == other.keys()
    assert own == pytest.approx(other, rel=1e-5, abs=1e-6)
    table, lineage = read_scores([str(tmp_path / "scores.parquet")])
    assert {row["method"] for row in table.to_pylist()} == {"wce-s2bl", "other", LOGGING_POLICY}
    assert [source.name for source in lineage[0].inputs] == [None, "other.parquet", None]


@pytest.mark.parametrize("which", ["whole log", "scored rows"])
def test_pieces_of_log_and_probabilities_need_not_end_together(
    run: Run, tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 rows, of which a random half is scored, in batches of 64 rows of the log and row groups of 37 of the file."""
    monkeypatch.setattr(row_pass, "_NUMBERS_AT_ONCE", 1)
    is_test = np.random.default_rng(0).random(400) < 0.5
    rows = replace(blobs(), is_test=is_test, known=np.ones(400, bool))
    write_arrays(tmp_path / "log.parquet", rows, 3)
    pi = np.random.default_rng(1).dirichlet([1, 1, 1], size=400).astype(np.float32)
    pq.write_table(
        _probabilities("lists", pi if which == "whole log" else pi[is_test]), "other.parquet", row_group_size=37
    )
    assert run("evaluate", "other.parquet", "--logs", "log.parquet", "--metrics", "ips,sampled-accuracy").code == 0
    scores = _values(tmp_path / "scores.parquet", "other.parquet")
    pi, rows, index = pi[is_test], rows.take(is_test), np.arange(is_test.sum())
    w = pi[index, rows.action] / rows.propensity
    assert scores["ips"] == pytest.approx(-(w * rows.cost).mean(), rel=1e-6)
    assert rows.label is not None
    assert scores["sampled-accuracy"] == pytest.approx(pi[index, rows.label].mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (
            _probabilities("lists", np.full((5, 2), 0.5)),
            "other.parquet does not fit log.parquet: it has 5 rows, but 4 are scored (split test) of 6; give one "
            "row of probabilities per row of the log, in its order",
        ),
        (_probabilities("lists", np.full((4, 3), 1 / 3)), "other.parquet: its number of actions is 3, the log's is 2"),
        (
            _probabilities("columns", np.full((4, 3), 1 / 3)),
            "other.parquet: its number of actions is 3, the log's is 2",
        ),
        (_probabilities("binary", np.full((4, 3), 1 / 3)), "other.parquet: its number of actions is 3, the log's is 2"),
        (
            _probabilities("lists", [[0.5, 0.5], [0.5, 0.5], [0.9, 0.9], [1.5, -0.5]]),
            "other.parquet: each row must contain probabilities that sum to 1: 2 of 4 rows do not, the first is row 2 "
            "with a sum of 1.8; normalise them",
        ),
        (
            _probabilities("columns", [[0.5, 0.5], [np.nan, 0.5], [0.5, 0.5], [0.5, 0.5]]),
            "other.parquet: each row must contain probabilities that sum to 1: 1 of 4 rows do not, the first is row 1 "
            "with a sum of nan; normalise them",
        ),
        (
            pa.table({"pi": pa.array([[0.5, 0.5], None, [0.5, 0.5], [0.5, 0.5]])}),
            "other.parquet: probabilities must not be null, found null in row 1",
        ),
        (
            pa.table({"score": [0.1, 0.2]}),
            "other.parquet: a Parquet file of action probabilities must have one column of lists (or float32 binary) "
            "with one value per action, or columns p0, p1, …; found score",
        ),
    ],
    ids=["rows", "actions in lists", "in columns", "in binary", "sums", "nan", "null", "no such column"],
)
def test_probabilities_that_are_none_are_refused(run: Run, tmp_path: Path, table: pa.Table, line: str) -> None:
    write_arrays(tmp_path / "log.parquet", _small(), 2)
    pq.write_table(table, "other.parquet")
    ran = run("evaluate", "other.parquet", "--logs", "log.parquet", "--quiet", "--metrics", "ips")
    assert (ran.code, ran.stderr) == (2, f"s2bl: {line}\n")
    assert not (tmp_path / "scores.parquet").exists()


def test_a_log_is_no_policy(run: Run, tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", _small(), 2)
    ran = run("evaluate", "log.parquet", "--logs", "log.parquet", "--quiet")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: log.parquet is a logs file, but a policy is needed here: a file from s2bl train, logging, "
        "uniform, or a Parquet file of action probabilities\n",
    )


# --- which metrics ---


def test_columns_of_all_metrics_are_as_small_as_the_docs_say() -> None:
    metrics = [METRICS.load(name) for name in METRICS.names]
    columns = {column.name: column for metric in metrics for column in (*metric.needs, *metric.uses)}
    sizes = {name: np.dtype(column.dtype).itemsize for name, column in columns.items()}
    assert sum(sizes.values()) == 29
    assert sum(sizes[name] for name, column in columns.items() if column.needs in (None, "q")) == 12
    told = " ".join((ROOT / "docs" / "evaluate.md").read_text().split())
    assert "That is at most 29 bytes, and 12 for a log without labels and without `pi0`." in told


def test_metrics_are_chosen_by_name_and_group() -> None:
    assert EvaluateSettings().chosen == METRICS.names
    assert EvaluateSettings(metrics="snips, labels,ips").chosen == (*LABEL_METRICS.names, "ips", "snips")
    assert EvaluateSettings(metrics="health").chosen == HEALTH.names  # the group, not its verdict alone
    assert [name for table in METRIC_GROUPS.values() for name in table.names] == list(METRICS.names)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("accuracies", "; did you mean accuracy?"),
        ("snisp", "; did you mean snips?"),
        ("devergence", "; did you mean divergence?"),
        ("foo", ""),
    ],
)
def test_unknown_metric_lists_all_choices_and_suggests_the_nearest(run: Run, word: str, hint: str) -> None:
    ran = run("evaluate", "uniform", "--logs", "log.parquet", "--metrics", f"ips,{word}")
    choices = ", ".join(dict.fromkeys(("all", *METRIC_GROUPS, *METRICS.names)))
    assert (ran.code, ran.stderr) == (2, f"s2bl: --metrics must be of {choices}, found {word!r}{hint}\n")


def test_a_log_with_everything_gives_every_metric(run: Run, tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", blobs(known=0.5), 3)
    words = ("--split", "all", "--reward-range", "0,1")
    assert run("evaluate", "uniform", "--logs", "log.parquet", *words).code == 0
    table, _ = read_scores([str(tmp_path / "scores.parquet")])
    rows = [row for row in table.to_pylist() if row["policy"] == "uniform"]
    assert {row["metric"] for row in rows} == {*METRICS.names, *gains.NAMES}
    assert all(math.isfinite(row["value"]) for row in rows)
    for row in rows:
        assert (row["interval"] in (None, BIN)) == (row["level"] is None)
        assert (row["interval"] == BIN) == (row["metric"] == "weight-share")
        if row["interval"] != BIN:
            assert row["low"] is None or row["low"] <= row["value"]
            assert row["high"] is None or row["value"] <= row["high"]
    powered = next(row for row in rows if row["metric"] == "ppi-dr")
    assert powered["rows"] == 400
    assert "152 rows without feedback, taken as missing at random" in powered["note"]


@pytest.mark.parametrize("interval", ["normal", "bernstein", "bootstrap"])
def test_intervals_are_chosen_and_said(run: Run, tmp_path: Path, interval: str) -> None:
    write_arrays(tmp_path / "log.parquet", blobs(), 3)
    words = ("--metrics", "ips,snips,ix", "--interval", interval, "--level", 0.9, "--bootstrap-samples", 100)
    words = (*words, "--compare-to", "none", "--reward-range", "0,1")
    assert run("evaluate", "uniform", "--logs", "log.parquet", *words).code == 0
    table, _ = read_scores([str(tmp_path / "scores.parquet")])
    made = {row["metric"]: row["interval"] for row in table.to_pylist()}
    ratio = "normal" if interval == "bernstein" else interval  # Bernstein's inequality is for means
    assert made == {"ips": interval, "snips": ratio, "ix": "lower-bound"}
    assert set(table["level"].to_pylist()) == {0.9}


def test_the_same_command_gives_the_same_bytes_and_order_of_policies_does_not_matter(run: Run, tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", blobs(known=0.3), 3)
    for output in ("a.parquet", "b.parquet"):
        assert run("evaluate", "uniform", "--logs", "log.parquet", "--split", "all", "-o", output).code == 0
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_values_come_near_the_truth_that_labels_tell(run: Run, tmp_path: Path) -> None:
    """4,000 rows, a fifth known: every estimator that promises to is within 4 standard errors of −true risk."""
    write_arrays(tmp_path / "log.parquet", blobs(4000, known=0.2, test_rows=0), 3)
    assert run("train", "log.parquet", "--epochs", 1, "--method", "wce-only", "-o", "p.safetensors").code == 0
    assert run("evaluate", "p.safetensors", "--logs", "log.parquet", "--reward-range", "0,1").code == 0
    table, _ = read_scores([str(tmp_path / "scores.parquet")])
    rows = {
        row["metric"]: row for row in table.to_pylist() if row["policy"] == "p.safetensors" and row["label"] is None
    }
    truth = -rows["true-risk"]["value"]
    for name in ("ips", "tips", "snips", "dr", "sndr", "switch-dr", "beta-ips", "ppi-dr", "lse", "os"):
        assert abs(rows[name]["value"] - truth) < 4 * rows[name]["stderr"], name
        assert rows[name]["stderr"] < 0.05
    assert rows["ix"]["low"] < truth
    assert rows["ls"]["low"] < truth
    assert rows["ppi-dr"]["stderr"] <= 1.01 * rows["dr"]["stderr"]
    assert rows["kl-sampled"]["value"] == pytest.approx(rows["kl-exact"]["value"], abs=5 * rows["kl-sampled"]["stderr"])
    assert -rows["theorem1-bound"]["value"] < truth


def test_true_risk_is_told_only_where_labels_tell_costs(run: Run, tmp_path: Path) -> None:
    """Costs 2 and 5 for right and wrong: 2·½ + 5·½. Costs that vary among the wrong: none."""
    right = _small().action == _small().label
    write_arrays(tmp_path / "two.parquet", _small(cost=np.where(right, 2, 5).astype(np.float32)), 2)
    varied = np.where(right, 2, np.arange(6)).astype(np.float32)
    write_arrays(tmp_path / "many.parquet", _small(cost=varied), 2)
    for name, value in (("two", 3.5), ("many", None)):
        words = ("--metrics", "labels", "-o", f"{name}-scores.parquet")
        assert run("evaluate", "uniform", "--logs", f"{name}.parquet", *words).code == 0
        assert _values(tmp_path / f"{name}-scores.parquet", "uniform").get("true-risk") == value


# --- warnings ---


def test_scoring_on_rows_that_were_learned_from_is_warned_of(run: Run, tmp_path: Path) -> None:
    """On the train rows of the log itself, of its parent and of a sibling; not on test rows, nor on another log."""
    for name, seed in (("log", 0), ("other", 1)):
        step = Step("make-logs", {"dataset": name}, "0.1.0")
        write_arrays(tmp_path / f"{name}.parquet", blobs(seed=seed), 3, step)
    for name, seed in (("masked", 1), ("sibling", 2)):
        assert run("mask", "--rho", 0.5, "--seed", seed, "log.parquet", "-o", f"{name}.parquet", "--quiet").code == 0
    assert (
        run("train", "masked.parquet", "--method", "wce-s2bl", "--epochs", 1, "-o", "p.safetensors", "--quiet").code
        == 0
    )
    for log, split, warned in (
        ("masked", "train", True),
        ("log", "all", True),
        ("sibling", "train", True),
        ("masked", "test", False),
        ("other", "train", False),
    ):
        words = ("--split", split, "--metrics", "ips,health", "--quiet", "--force")
        ran = run("evaluate", "p.safetensors", "uniform", "--logs", f"{log}.parquet", *words)
        line = (
            f"warning: p.safetensors was trained on rows of {log}.parquet that are scored here; its scores are biased "
            f"upward: score it on the test rows, with --split test\n"
        )
        assert (ran.code, ran.stderr) == (0, line if warned else ""), (log, split)
        table, _ = read_scores([str(tmp_path / "scores.parquet")])
        notes = {row["policy"]: row["note"] for row in table.to_pylist() if row["metric"] == "health"}
        assert ("it was trained on these rows" in notes["p.safetensors"]) == warned
        assert "trained on" not in notes["uniform"]


def test_without_test_rows_no_split_is_advised_for_rows_that_were_learned_from(run: Run, tmp_path: Path) -> None:
    """Neither of a log without splits nor of one whose split column has train rows alone: there is no such split."""
    write_arrays(tmp_path / "train.parquet", blobs(test_rows=0), 3)
    plain = pq.read_table("train.parquet").drop_columns(["split"]).replace_schema_metadata(None)
    pq.write_table(plain, "plain.parquet")
    for log in ("train", "plain"):
        words = (f"{log}.parquet", "--method", "wce-s2bl", "--epochs", 1, "-o", f"{log}.safetensors", "--quiet")
        assert run("train", *words).code == 0
        ran = run("evaluate", f"{log}.safetensors", "--logs", f"{log}.parquet", "--quiet", "--force")
        assert (ran.code, ran.stderr) == (
            0,
            f"warning: {log}.safetensors was trained on rows of {log}.parquet that are scored here; its scores are "
            f"biased upward: score it on a log that it has not seen"
            + (", or train it with --test-share 0.2\n" if log == "plain" else "\n"),
        )


def _answered(rows: int, by: Callable[[Any, Any], Any], seed: int = 0) -> LogArrays:
    """Two contexts, reward likelier in the second, logged uniformly; who answers is decided by context and action."""
    rng = np.random.default_rng(seed)
    x, a = rng.integers(0, 2, rows), rng.integers(0, 2, rows)
    reward = rng.random(rows) < np.where(x == 1, 0.8, 0.2)
    known = rng.random(rows) < by(x, a)
    cost = np.where(known, -reward.astype(float), np.nan)
    return arrays_of(one_hot(x.tolist(), 2), a, np.full(rows, 0.5), cost)


def test_missingness_that_depends_on_the_context_is_warned_of_and_repaired(run: Run, tmp_path: Path) -> None:
    """The value is ½. Context 1, where rewards are, answers four times as often: 0.68 of the known rows have one."""
    write_arrays(tmp_path / "log.parquet", _answered(8000, lambda x, a: np.where(x == 1, 0.8, 0.2)), 2)
    words = ("evaluate", "uniform", "--logs", "log.parquet", "--metrics", "ips,dr,lse,ppi-dr,health", "--quiet")
    ran = run(*words, "-o", "off.parquet")
    assert ran.code == 0
    assert ran.stderr.startswith(
        "warning: log.parquet: which rows have feedback depends on context or action (test statistic "
    )
    assert ran.stderr.endswith("estimates from the known rows may be biased; use --missing-model\n")
    off = _values(tmp_path / "off.parquet", "uniform")
    assert off["health"] == CAUTION
    assert off["ips"] == pytest.approx(0.68, abs=0.04)
    ran = run(*words, "--missing-model", "-o", "mended.parquet")
    assert (ran.code, ran.stderr) == (0, "")
    mended = _values(tmp_path / "mended.parquet", "uniform")
    assert mended["health"] == RELIABLE
    rows = read_scores([str(tmp_path / "mended.parquet")])[0].to_pylist()
    notes = [row["note"] for row in rows if row["metric"] in ESTIMATORS.names]
    assert all(note.endswith("known rows weighted by the model of missingness") for note in notes)
    for name in ("ips", "dr", "lse", "ppi-dr"):
        assert mended[name] == pytest.approx(0.5, abs=0.03), name
    # One λ for known rows and predictions: with two, predictions would explain less of the terms.
    errors = {row["metric"]: row["stderr"] for row in rows if row["policy"] == "uniform"}
    assert errors["lse"] == pytest.approx(errors["ips"], rel=0.002)


def test_missingness_that_no_linear_model_predicts_is_warned_of_and_repaired(run: Run, tmp_path: Path) -> None:
    """Rewards and answers are both more probable for a large |x₀|, 0.1 to 0.9. The value is 0.53, the mean of these
    probabilities, and 0.66 among the known rows."""
    rng = np.random.default_rng(0)
    x, a = rng.standard_normal((8000, 4)).astype(np.float32), rng.integers(0, 2, 8000)
    chance = np.clip(0.1 + 0.6 * np.abs(x[:, 0]), 0, 0.9)
    cost = np.where(rng.random(8000) < chance, -(rng.random(8000) < chance).astype(float), np.nan)
    write_arrays(tmp_path / "log.parquet", arrays_of(x, a, np.full(8000, 0.5), cost), 2)
    words = ("evaluate", "uniform", "--logs", "log.parquet", "--metrics", "dr,health", "--quiet", "--force")
    ran = run(*words)
    assert "which rows have feedback depends on context or action" in ran.stderr
    off = _values(tmp_path / "scores.parquet", "uniform")
    assert (off["dr"], off["health"]) == (pytest.approx(0.66, abs=0.02), CAUTION)
    ran = run(*words, "--missing-model")
    assert (ran.code, ran.stderr) == (0, "")
    mended = _values(tmp_path / "scores.parquet", "uniform")
    assert (mended["dr"], mended["health"]) == (pytest.approx(chance.mean(), abs=0.02), RELIABLE)


def _by_step(is_favoured: Any, a: Any, rng: np.random.Generator, x: Any) -> Any:
    """Rewards and answers are more probable where `is_favoured`, which is half of the rows: 0.8 against 0.2 and 0.45
    against 0.05. The value is ½, and 0.74 among the known rows."""
    reward = rng.random(len(x)) < np.where(is_favoured, 0.8, 0.2)
    known = rng.random(len(x)) < np.where(is_favoured, 0.45, 0.05)
    return arrays_of(x, a, np.full(len(x), 0.5), np.where(known, -reward.astype(float), np.nan))


def test_missingness_with_a_step_in_the_context_is_repaired(run: Run, tmp_path: Path) -> None:
    """The step is at |x₀| = 0.67. The standard error is 0.012: in the rows without the favour, 5 % are known."""
    rng = np.random.default_rng(0)
    x, a = rng.standard_normal((20_000, 4)).astype(np.float32), rng.integers(0, 2, 20_000)
    write_arrays(tmp_path / "log.parquet", _by_step(np.abs(x[:, 0]) > 0.6745, a, rng, x), 2)
    words = ("evaluate", "uniform", "--logs", "log.parquet", "--metrics", "ips,dr,health", "--quiet")
    ran = run(*words, "--missing-model")
    assert (ran.code, ran.stderr) == (0, "")
    scores = _values(tmp_path / "scores.parquet", "uniform")
    assert scores["dr"] == pytest.approx(0.5, abs=0.036)
    assert scores["ips"] == pytest.approx(0.5, abs=0.036)
    assert scores["health"] == RELIABLE


def test_missingness_that_no_model_follows_is_warned_of(run: Run, tmp_path: Path) -> None:
    """By the sign of x₀·x₁: neither steps in one feature nor 64 random features can follow it."""
    rng = np.random.default_rng(0)
    x, a = rng.standard_normal((12_000, 4)).astype(np.float32), rng.integers(0, 2, 12_000)
    write_arrays(tmp_path / "log.parquet", _by_step(x[:, 0] * x[:, 1] > 0, a, rng, x), 2)
    words = ("evaluate", "uniform", "--logs", "log.parquet", "--metrics", "dr,health", "--quiet")
    ran = run(*words, "--missing-model")
    assert ran.code == 0
    assert "the model of missingness does not" in ran.stderr
    scores = read_scores([str(tmp_path / "scores.parquet")])[0].to_pylist()
    (note,) = [row["note"] for row in scores if row["metric"] == "health" and row["policy"] == "uniform"]
    assert note.startswith("caution: the model of missingness does not fit")


def test_a_model_of_missingness_that_does_not_fit_is_warned_of(run: Run, tmp_path: Path) -> None:
    """Who answers, and what is logged, change 40 times along the context: no model here follows that."""
    rng = np.random.default_rng(0)
    x = rng.random(4000)
    is_odd = (40 * x).astype(int) % 2 == 1
    first = np.where(is_odd, 0.8, 0.2)
    a = (rng.random(4000) > first).astype(int)
    known = rng.random(4000) < first
    cost = np.where(known, -(rng.random(4000) < 0.5).astype(float), np.nan)
    rows = arrays_of(x[:, None].astype(np.float32), a, np.where(a == 0, first, 1 - first), cost)
    write_arrays(tmp_path / "log.parquet", rows, 2)
    ran = run("evaluate", "uniform", "--logs", "log.parquet", "--metrics", "ips,health", "--missing-model", "--quiet")
    assert ran.code == 0
    assert ran.stderr.startswith(
        "warning: uniform on log.parquet: the model of missingness does not fit: weighted by it"
    )
    assert ran.stderr.endswith("standard errors off; its intervals are too narrow\n")
    assert _values(tmp_path / "scores.parquet", "uniform")["health"] < RELIABLE


def test_feedback_by_the_weight_is_warned_of_without_a_model(run: Run, tmp_path: Path) -> None:
    """Known rows have other weights than all rows. With the health figures alone, no model of missingness is fitted."""
    write_arrays(tmp_path / "log.parquet", _answered(8000, lambda x, a: np.where(a == 1, 0.4, 0.1)), 2)
    table_policy(tmp_path / "p.safetensors", [[0.05, 0.95], [0.05, 0.95]])
    ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", "--metrics", "health", "--quiet")
    assert ran.code == 0
    assert ran.stderr.startswith("warning: p.safetensors on log.parquet: the mean weight of the known rows is ")
    assert ran.stderr.endswith(" standard errors from that of all rows; use --missing-model\n")
    assert _values(tmp_path / "scores.parquet", "p.safetensors")["health"] < RELIABLE


def test_accuracies_are_computed_without_weights_if_feedback_is_missing(run: Run, tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", blobs(known=0.5), 3)
    ran = run(
        "evaluate", "uniform", "--logs", "log.parquet", "--metrics", "argmax-accuracy", "--split", "all", "--quiet"
    )
    assert (ran.code, ran.stderr) == (0, "")


def test_rewards_that_are_known_only_if_they_are_positive_are_warned_of(run: Run, tmp_path: Path) -> None:
    """Only purchases were reported: never reliable. Written as 0, or ruled out by a declared range: no warning."""
    rng = np.random.default_rng(0)
    bought = rng.random(4000) < 0.3
    price = rng.uniform(5, 9, 4000)
    action, p = rng.integers(0, 2, 4000), np.full(4000, 0.5)
    context = rng.standard_normal((4000, 2)).astype(np.float32)
    for name, cost in (("reported", np.where(bought, -price, np.nan)), ("whole", np.where(bought, -price, 0.0))):
        write_arrays(tmp_path / f"{name}.parquet", arrays_of(context, action, p, cost), 2)
    words = ("--metrics", "snips,health", "--quiet", "--force")
    ran = run("evaluate", "uniform", "--logs", "reported.parquet", *words)
    assert (ran.code, ran.stderr) == (
        0,
        f"warning: reported.parquet: all {bought.sum():,} known rewards are above 0, and {4000 - bought.sum():,} are "
        f"missing: if a missing reward means 0, estimates from the known rows are wrong; write 0 where nothing "
        f"happened, or declare by --reward-range that 0 is impossible\n",
    )
    assert _values(tmp_path / "scores.parquet", "uniform")["health"] == CAUTION
    ran = run("evaluate", "uniform", "--logs", "reported.parquet", "--metrics", "kl-sampled", "--quiet", "--force")
    assert (ran.code, ran.stderr) == (0, "")  # divergences need no feedback
    for log, more in (("whole", ()), ("reported", ("--reward-range", "5,9"))):
        ran = run("evaluate", "uniform", "--logs", f"{log}.parquet", *words, *more)
        assert (ran.code, ran.stderr) == (0, "")
        assert _values(tmp_path / "scores.parquet", "uniform")["health"] == RELIABLE


def test_gamma_is_printed_with_the_verdict_if_feedback_is_missing(run: Run, tmp_path: Path) -> None:
    """A policy that prefers the action with more rewards is better than the logging policy. Half of them are known."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, 4000)
    cost = np.where(rng.random(4000) < 0.5, -(rng.random(4000) < np.where(action == 1, 0.7, 0.2)).astype(float), np.nan)
    write_arrays(tmp_path / "log.parquet", arrays_of(one_hot([0] * 4000, 2), action, np.full(4000, 0.5), cost), 2)
    table_policy(tmp_path / "p.safetensors", [[0.1, 0.9], [0.1, 0.9]])
    ran = run("evaluate", "p.safetensors", "--logs", "log.parquet")
    gamma = _values(tmp_path / "scores.parquet", "p.safetensors")["gamma"]
    assert 1.5 < gamma < 3
    line = next(line for line in ran.stderr.splitlines() if line.startswith("p.safetensors on"))
    assert "; reliable: " in line
    assert line.endswith(f"; better than the logging policy up to Γ = {gamma:.2f}")
    assert "gamma" not in _values(tmp_path / "scores.parquet", LOGGING_POLICY)


def test_mean_weight_is_reliable_where_feedback_depends_on_the_action(run: Run, tmp_path: Path) -> None:
    """The policy prefers the action whose feedback is known four times as often: the weights of the known rows have a
    mean of 1.5, those of all rows of 1. With a model of missingness the verdict is good."""
    write_arrays(tmp_path / "log.parquet", _answered(8000, lambda x, a: np.where(a == 1, 0.4, 0.1)), 2)
    table_policy(tmp_path / "p.safetensors", [[0.05, 0.95], [0.05, 0.95]])
    words = ("--metrics", "dr,health", "--missing-model", "--quiet")
    assert run("evaluate", "p.safetensors", "--logs", "log.parquet", *words).code == 0
    measured = _values(tmp_path / "scores.parquet", "p.safetensors")
    assert measured["mean-weight"] == pytest.approx(1, abs=0.05)
    assert measured["health"] == RELIABLE
    assert measured["dr"] == pytest.approx(0.5, abs=0.04)


# --- the range of the rewards ---


def test_scores_of_a_log_in_another_unit_are_in_that_unit(run: Run, tmp_path: Path) -> None:
    """Rewards in euros, and in cents less 500, half of them missing: through the reward model too. The verdict and Γ
    are the same. Only IPS does not follow an offset."""
    rng = np.random.default_rng(0)
    x, action = rng.standard_normal((1000, 3)), rng.integers(0, 3, 1000)
    reward = np.where(rng.random(1000) < 0.3, np.exp(x[:, 0] + rng.standard_normal(1000)), 0) * (action + 1)
    known = rng.random(1000) < 0.5
    for name, unit in (("euros", reward), ("cents", 100 * reward - 500)):
        rows = arrays_of(x.astype(np.float32), action, np.full(1000, 1 / 3), np.where(known, -unit, np.nan))
        write_arrays(tmp_path / f"{name}.parquet", rows, 3)
    table = rng.dirichlet(np.ones(3), 1000)
    pq.write_table(pa.table({f"p{a}": table[:, a] for a in range(3)}), tmp_path / "policy.parquet")
    scores = {}
    for name in ("euros", "cents"):
        words = ("--logs", f"{name}.parquet", "--metrics", "value,health", "--quiet", "-o", f"{name}-scores.parquet")
        assert run("evaluate", "policy.parquet", *words).code == 0
        rows = read_scores([str(tmp_path / f"{name}-scores.parquet")])[0].to_pylist()
        scores[name] = {
            row["metric"]: row for row in rows if row["policy"] == "policy.parquet" and row["label"] is None
        }
    for name, euros in scores["euros"].items():
        cents = scores["cents"][name]
        if name in HEALTH.names:
            assert (cents["value"], cents["note"]) == (pytest.approx(euros["value"], rel=1e-3), euros["note"])
        elif name == "better":
            assert cents["value"] == euros["value"]
        elif not name.startswith(("ips", "tips", "empirical-ips")):
            offset = 0 if "-gain" in name else 500
            for end in ("value", "low", "high"):
                wanted = None if euros[end] is None else pytest.approx(100 * euros[end] - offset, rel=1e-3, abs=0.1)
                assert cents[end] == wanted, (name, end)
            assert cents["stderr"] == pytest.approx(100 * euros["stderr"], rel=1e-3)


@pytest.mark.parametrize("text", ["1", "0,1,2", "a,b", "1,0", "1,1", "0,inf", "nan,1", ""])
def test_reward_range_must_be_two_numbers(run: Run, text: str) -> None:
    ran = run("evaluate", "uniform", "--logs", "log.parquet", "--reward-range", text)
    line = f"--reward-range must be two numbers with the smaller first, such as 0,1, found {text!r}"
    assert (ran.code, ran.stderr) == (2, f"s2bl: {line}\n")


def test_reward_outside_the_declared_range_is_an_error(run: Run, tmp_path: Path) -> None:
    """Rows 1 and 4 have rewards of 2.5 and −0.5. The range is compared with float32, in which costs are stored."""
    cost = np.array([0, -2.5, -1, 0, 0.5, 0], np.float32)
    write_arrays(tmp_path / "log.parquet", _small(cost=cost), 2)
    words = ("evaluate", "uniform", "--logs", "log.parquet", "--metrics", "ips", "--quiet")
    ran = run(*words, "--reward-range", "0,1")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: log.parquet: a reward must be in [0, 1] (--reward-range): 2 of the scored rows, the first is row 1 with "
        "2.5 (rows count from 0); fix these rows, or declare a range that contains all possible rewards\n",
    )
    assert not (tmp_path / "scores.parquet").exists()
    assert run(*words, "--reward-range", "-0.5,2.5").code == 0
    write_arrays(tmp_path / "log.parquet", _small(cost=np.full(6, -0.1, np.float32)), 2)
    assert run(*words, "--reward-range", "0,0.1", "--force").code == 0


@pytest.mark.parametrize("words", [("--interval", "bernstein"), ("--metrics", "theorem1-bound")])
def test_bounds_need_a_declared_range(run: Run, words: tuple[str, ...]) -> None:
    ran = run("evaluate", "uniform", "--logs", "log.parquet", *words)
    assert (ran.code, ran.stderr) == (
        2,
        f"s2bl: {' '.join(words)} needs --reward-range, because it holds only for rewards in a range that is known "
        f"beforehand; add, for example, --reward-range 0,1\n",
    )


def test_missingness_at_random_is_not_warned_of(run: Run, tmp_path: Path) -> None:
    for seed in range(3):
        write_arrays(tmp_path / "log.parquet", _answered(2000, lambda x, a: 0.3, seed), 2)
        ran = run("evaluate", "uniform", "--logs", "log.parquet", "--metrics", "ips", "--quiet", "--force")
        assert (ran.code, ran.stderr) == (0, "")


def test_summary_tells_accuracy_value_and_health(run: Run, tmp_path: Path) -> None:
    write_arrays(tmp_path / "log.parquet", blobs(known=0.5), 3)
    table_policy(tmp_path / "p.safetensors", np.full((3, 3), 1 / 3))
    ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", "--split", "train")
    first, rows, policy, logging = ran.stderr.splitlines()
    assert first.endswith(" of 1 policy and of the logging policy on 1 log")
    assert rows == "log.parquet: scored on the 300 train rows, 148 of them with feedback, labels"
    assert policy.startswith("p.safetensors on log.parquet: argmax-accuracy 0.")
    assert "; value (ppi-dr) 0." in policy
    assert "; caution: effective sample size only 77 of 148" in policy
    assert logging.startswith("logging-policy on log.parquet: ")


def test_read_policy_from_a_file_that_is_parquet_still_refuses(tmp_path: Path) -> None:
    """The policies' own reader knows policies only; evaluate asks the other one first."""
    write_arrays(tmp_path / "log.parquet", _small(), 2)
    with pytest.raises(Exception, match="is a Parquet file, but policies are safetensors files"):
        read_policy(str(tmp_path / "log.parquet"))
