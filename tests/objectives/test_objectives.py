"""Risks, regularisers and their sum: by hand, by brute force, and by their closed-form optima."""

import itertools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch
from learning_fixtures import CPU, arrays_of, default_device_elsewhere, one_hot
from torch import Tensor

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.logs.reading import LogArrays
from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.objectives.terms import (
    LOG_PI,
    LOG_POLICY,
    NOTHING,
    AnyBatch,
    KnownBatch,
    Numbers,
    Objective,
    Regulariser,
    Risk,
    Term,
)
from s2bl_cli.policies.network import PolicyNetwork, build_network
from s2bl_cli.registry import REGULARISERS, RISKS
from s2bl_cli.training.batches import Rows, rows_on_device
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import TrainRows, count_rows

NU = 0.01
EVERY = [f"risk:{name}" for name in RISKS.names] + [f"reg:{name}" for name in REGULARISERS.names]
WITH_TERM = [name for name in EVERY if not name.endswith(":none")]
EXACT_FORMS: dict[str, Regulariser] = {
    name: REGULARISERS.load(name).exact for name in REGULARISERS.names if REGULARISERS.load(name).exact is not None
}
NOT_SEEN: Any = None


def _declared(name: str) -> Risk | Regulariser:
    """`risk:tips`, `reg:wce`."""
    kind, entry = name.split(":")
    declared: Risk | Regulariser = (RISKS if kind == "risk" else REGULARISERS).load(entry)
    return declared


def _numbers(**given: Any) -> Numbers:
    """Hyperparameters that every formula can be worked out with."""
    return SimpleNamespace(
        **{
            "nu": NU,
            "translation": -0.3,
            "smoothing": 0.1,
            "sharpen": None,
            "cap": 1.0,
            "sharpen_unit": 1.0,
            "balance": 0.5,
            "balance_unit": 1.5,
            **given,
        }
    )


def _of(name: str, nu: float = NU) -> Numbers:
    """A smoothing that the risk can be worked out with."""
    return _numbers(nu=nu, smoothing={"risk:lse": -0.1, "risk:os": 20.0}.get(name, 0.1))


def _value(term: Term) -> float:
    return float(_mean(term))


def _mean(term: Term) -> Tensor:
    return torch.zeros(()) if term.terms is None else term.terms.mean(-1)


def _risk(name: str, batch: KnownBatch, **numbers: Any) -> float:
    return _value(RISKS.load(name).formula(batch, _numbers(**numbers)))


def _reg(name: str, batch: AnyBatch, **numbers: Any) -> float:
    return _value(REGULARISERS.load(name).formula(batch, _numbers(**numbers)))


def _exact(name: str, batch: AnyBatch, **numbers: Any) -> float:
    return _value(EXACT_FORMS[name].formula(batch, _numbers(**numbers)))


def _any_batch(log_pi: Tensor, p: Tensor, weight: Tensor, **fields: Any) -> AnyBatch:
    whole = {"reward_weight": weight, "log_policy": NOT_SEEN, "pi0": NOT_SEEN, "distance": NOT_SEEN, **fields}
    return AnyBatch(log_pi, p, weight, **whole)


def _term(name: str, log_pi: Tensor, p: Tensor, third: Tensor, nu: float) -> Term:
    """Any risk or regulariser on a batch; `third` is the batch's third field, the cost negated or the weight."""
    batch: Any = KnownBatch(log_pi, p, -third)
    if name.startswith("reg:"):
        batch = _any_batch(log_pi, p, third, distance=log_pi.square().sum(-1))
    return _declared(name).formula(batch, _of(name, nu))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", WITH_TERM)
def test_value_and_slope_are_of_the_batch_device_and_dtype(name: str, dtype: torch.dtype) -> None:
    log_pi = torch.tensor([-0.5, -2.0, -4.0], dtype=dtype)
    p = torch.tensor([0.5, 0.1, 0.01], dtype=dtype)
    third = torch.tensor([1.0, 0.0, 0.5], dtype=dtype)
    with default_device_elsewhere():
        term = _term(name, log_pi, p, third, NU)
    assert (_mean(term).shape, _mean(term).dtype, _mean(term).device) == ((), dtype, CPU)
    assert {(slope.dtype, slope.device) for slope in term.slope.values()} == {(dtype, CPU)}


@pytest.mark.parametrize("name", [name for name in WITH_TERM if name != "reg:lpr"])  # it sees no probability
def test_value_and_slope_are_finite_at_tiny_probabilities(name: str) -> None:
    log_pi = torch.tensor([-1e-7, -100.0, -1e4, -1e30])
    # Without truncation a weight is as large as 1/p: those risks are asked for propensities that a log may have.
    bare = name.removeprefix("risk:") in ("ips", "es", "ls", "lse", "os")
    p = torch.tensor([1e-15, 1e-12, 1.0, 1e-9] if bare else [1e-30, 1e-38, 1.0, 1e-20])
    term = _term(name, log_pi, p, torch.ones(4), 0.001)
    assert math.isfinite(_value(term))
    assert torch.isfinite(term.slope[LOG_PI, 0]).all()


@pytest.mark.parametrize("name", EXACT_FORMS)
def test_exact_form_is_finite_at_tiny_probabilities(name: str) -> None:
    log_policy = torch.tensor([[-1e-7, -100.0, -1e4, -1e30]])
    pi0 = torch.tensor([[1.0, 0.0, 1e-38, 1e-20]])
    batch = _any_batch(NOT_SEEN, NOT_SEEN, NOT_SEEN, log_policy=log_policy, pi0=pi0)
    term = EXACT_FORMS[name].formula(batch, _numbers(nu=0.001))
    assert math.isfinite(_value(term))
    assert torch.isfinite(term.slope[LOG_POLICY, 0]).all()


def test_tips_by_hand() -> None:
    """c·π/max(ν, p) at ν = 0.1: −1·0.5/0.5 = −1; −0.5·0.2/0.1 = −1 (p = 0.05 counts as 0.1); 0. Mean −2/3."""
    batch = KnownBatch(
        torch.tensor([0.5, 0.2, 0.9], dtype=torch.float64).log(),
        torch.tensor([0.5, 0.05, 0.3], dtype=torch.float64),
        torch.tensor([-1.0, -0.5, 0.0], dtype=torch.float64),
    )
    assert _risk("tips", batch, nu=0.1) == pytest.approx(-2 / 3, abs=1e-12)


def test_wce_by_hand() -> None:
    """Actions 0, 0, 1; π = 1/2, 1/4, 1/8; p = 1/2, 1/4, 1/4. The terms −p·log π are 1/2, 1/2 and 3/4 of ln 2.
    Σ_a (1/m_a) Σ = (1/2)(1/2 + 1/2) + 3/4 = 5/4 of ln 2."""
    batch = _three_rows(pi=[0.5, 0.25, 0.125], p=[0.5, 0.25, 0.25])
    assert _reg("wce", batch, nu=0.3) == pytest.approx(1.25 * math.log(2), abs=1e-12)


def test_kl_by_hand() -> None:
    """Actions 0, 0, 1; π = 1/4, 1/2, 1/2; p = 1/2, 1/4, 1/16; ν = 1/4. The terms π·log(π/max(ν, p)) are −1/4, 1/2
    and 1/2 of ln 2 (the last p counts as 1/4). Σ_a (1/m_a) Σ = (1/2)(−1/4 + 1/2) + 1/2 = 5/8 of ln 2."""
    batch = _three_rows(pi=[0.25, 0.5, 0.5], p=[0.5, 0.25, 0.0625])
    assert _reg("kl", batch, nu=0.25) == pytest.approx(0.625 * math.log(2), abs=1e-12)


def _three_rows(pi: list[float], p: list[float]) -> AnyBatch:
    """Two rows of action 0 and one of action 1: N/m_a is 3/2 and 3."""
    weight = torch.tensor([1.5, 1.5, 3.0], dtype=torch.float64)
    return _any_batch(torch.tensor(pi, dtype=torch.float64).log(), torch.tensor(p, dtype=torch.float64), weight)


LN2 = math.log(2)

# π = 1/2, 1/4, 1/8; p = 1/4, 1/2, 1/8; c = −1, −1/2, 0: weights π/p = 2, 1/2, 1, and rewards times them 2, 1/4, 0.
RISKS_BY_HAND: dict[str, tuple[dict[str, float], float]] = {
    "ips": ({}, (-2 - 0.25) / 3),
    # π/max(1/4, p) = 2, 1/2, 1/2
    "tips": ({"nu": 0.25}, (-2 - 0.25) / 3),
    "pseudo": ({"nu": 0.25}, (-2 - 0.25) / 3),
    # c + 1/2 = −1/2, 0, 1/2
    "banditnet": ({"nu": 0.25, "translation": -0.5}, (-1 + 0.25) / 3),
    # −1·(−1)/(1/4) = 4 and −1/2·(−2)/(1/2) = 2 of ln 2
    "wnll": ({"nu": 0.25}, (4 + 2) * LN2 / 3),
    # π/(p + 1/4) = 1, 1/3
    "ix": ({"smoothing": 0.25}, (-1 - 1 / 6) / 3),
    # π/√p = 1, √2/4
    "es": ({"smoothing": 0.5}, (-1 - math.sqrt(2) / 8) / 3),
    "ls": ({"smoothing": 2.0}, -(math.log(5) + math.log(1.5)) / 2 / 3),
    "lse": ({"smoothing": -2.0}, math.log((math.exp(-4) + math.exp(-0.5) + 1) / 3) / 2),
    # 2·2/(4 + 2) = 2/3; 2·½/(¼ + 2) = 4/9
    "os": ({"smoothing": 2.0}, (-2 / 3 - 2 / 9) / 3),
    "none": ({}, 0.0),
}


@pytest.mark.parametrize("name", RISKS.names)
def test_risk_by_hand(name: str) -> None:
    numbers, expected = RISKS_BY_HAND[name]
    assert _risk(name, _hand_batch(), **numbers) == pytest.approx(expected, abs=1e-12)


def _hand_batch() -> KnownBatch:
    pi, p, c = torch.tensor([[0.5, 0.25, 0.125], [0.25, 0.5, 0.125], [-1, -0.5, 0]], dtype=torch.float64)
    return KnownBatch(pi.log(), p, c)


@pytest.mark.parametrize(
    ("name", "numbers", "limit"),
    [
        ("tips", {"nu": 1e-12}, "ips"),
        ("banditnet", {"nu": 0.3, "translation": 0.0}, "tips"),
        ("pseudo", {"nu": 0.3}, "tips"),
        ("ix", {"smoothing": 0.0}, "ips"),
        ("es", {"smoothing": 1.0}, "ips"),
        ("ls", {"smoothing": 1e-9}, "ips"),
        ("lse", {"smoothing": -1e-7}, "ips"),
        ("os", {"smoothing": 1e12}, "ips"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_risk_has_its_limit(name: str, numbers: dict[str, float], limit: str) -> None:
    """Value and slope."""
    batch = _hand_batch()._replace(log_pi=torch.tensor([0.9, 0.3, 0.02], dtype=torch.float64).log())
    terms = [RISKS.load(risk).formula(batch, _numbers(**numbers)) for risk in (name, limit)]
    found, expected = ([_value(term), *term.slope[LOG_PI, 0].tolist()] for term in terms)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert found[0] < -0.01


def test_smoothing_moves_the_risk_towards_zero() -> None:
    """Costs are ≤ 0: every smoothing takes something off what ips promises."""
    plain = _risk("ips", _hand_batch())
    for name, smoothing in {"ix": 0.1, "es": 0.5, "ls": 1.0, "lse": -1.0, "os": 10.0}.items():
        assert plain < _risk(name, _hand_batch(), smoothing=smoothing) < 0


def test_os_of_a_weight_whose_square_is_beyond_float32() -> None:
    """w = 1e20, λ = 1e12, c = −1: −λw/(w² + λ) = −1e-8, and it falls as w grows: the slope is 1e-8."""
    batch = KnownBatch(torch.zeros(1), torch.tensor([1e-20]), torch.tensor([-1.0]))
    term = RISKS.load("os").formula(batch, _numbers(smoothing=1e12))
    assert _value(term) == pytest.approx(-1e-8, rel=1e-5)
    assert term.slope[LOG_PI, 0].tolist() == pytest.approx([1e-8], rel=1e-5)


@pytest.mark.parametrize("tiny", [False, True], ids=["", "tiny propensities"])
def test_lse_of_a_mixed_batch_looks_at_known_rows_only(tiny: bool) -> None:
    """And a batch without any has no say. With tiny propensities all exponentials would underflow beside that of a
    row without feedback."""
    batch = _hand_batch()
    if tiny:
        batch = batch._replace(p=batch.p * 1e-6, c=torch.tensor([-1.0, -0.5, -0.5], dtype=torch.float64))
    alone = _risk("lse", KnownBatch(*(value[:2] for value in batch[:3])), smoothing=-2.0)
    weight = torch.tensor([1.5, 1.5, 0], dtype=torch.float64)
    without_feedback = batch._replace(c=batch.c * (weight > 0), weight=weight)
    assert _risk("lse", without_feedback, smoothing=-2.0) == pytest.approx(alone, rel=1e-12)
    nothing = RISKS.load("lse").formula(
        without_feedback._replace(weight=torch.zeros(3, dtype=torch.float64)), _numbers(smoothing=-2.0)
    )
    assert (_value(nothing), nothing.slope[LOG_PI, 0].tolist()) == (0, [0, 0, 0])


def test_sharpened_wce_by_hand() -> None:
    """p = 1/2, 1/4, 1/4, cap 0.4, β = 2: weights 0.16, 0.0625, 0.0625 of sum 0.285; −log π = 1, 2, 3 of ln 2."""
    batch = _three_rows(pi=[0.5, 0.25, 0.125], p=[0.5, 0.25, 0.25])
    value = _reg("wce", batch, sharpen=2.0, cap=0.4, sharpen_unit=math.sqrt(0.285 / 3))
    assert value == pytest.approx((0.16 + 2 * 0.0625 + 3 * 0.0625) / 0.285 * LN2, abs=1e-12)


def test_sharpened_by_one_is_the_papers_where_actions_are_equally_frequent() -> None:
    """Two rows of each of two actions: N/m_a = 2 for all; p has the mean 0.3, so wce is 2·0.3 times as large."""
    p = torch.tensor([0.5, 0.25, 0.25, 0.2], dtype=torch.float64)
    batch = _any_batch(torch.tensor([0.5, 0.1, 0.3, 0.7]).double().log(), p, torch.full((4,), 2.0).double())
    sharpened = _reg("wce", batch, sharpen=1.0, sharpen_unit=0.3)
    assert _reg("wce", batch) == pytest.approx(2 * 0.3 * sharpened, rel=1e-12)


def test_sharpened_by_zero_is_plain_cross_entropy() -> None:
    batch = _three_rows(pi=[0.5, 0.25, 0.125], p=[0.9, 0.25, 0.001])
    assert _reg("wce", batch, sharpen=0.0) == pytest.approx(2 * LN2, abs=1e-12)


@pytest.mark.parametrize("beta", [0.5, 1.0, 40.0])
@pytest.mark.parametrize("cap", [0.3, 1.0])
def test_sharpened_weights_have_mean_one(beta: float, cap: float) -> None:
    """Over the rows that the unit was derived from, in float32: 0.02^40 alone would be beyond it."""
    p = np.array([0.5, 0.25, 0.1, 0.02])
    derive = REGULARISERS.load("wce").derive
    unit = derive({"sharpen": beta, "cap": cap}, lambda function: float(np.mean(function(p))))
    batch = _any_batch(torch.full((4,), -1.0), torch.tensor(p).float(), torch.ones(4))
    assert _reg("wce", batch, sharpen=beta, cap=cap, **unit) == pytest.approx(1, rel=1e-4)
    assert derive({"sharpen": None, "cap": 1.0}, _not_called) == derive({"sharpen": 0.0, "cap": cap}, _not_called)


def _not_called(function: Any) -> float:
    raise AssertionError("a pass over the log that nothing needs")


def test_cce_by_hand() -> None:
    """Reward weights 2, 0, 1/2; −log π = 1, 2, 3 of ln 2: (2 + 0 + 1.5)/3."""
    batch = _three_rows(pi=[0.5, 0.25, 0.125], p=[0.9, 0.25, 0.001])
    batch = batch._replace(reward_weight=torch.tensor([2.0, 0.0, 0.5], dtype=torch.float64))
    assert _reg("cce", batch) == pytest.approx(3.5 / 3 * LN2)


def _exact_batch(pi: list[list[float]], pi0: list[list[float]]) -> AnyBatch:
    nothing = torch.zeros(len(pi), dtype=torch.float64)
    log_policy = torch.tensor(pi, dtype=torch.float64).log()
    return _any_batch(nothing, nothing, nothing, log_policy=log_policy, pi0=torch.tensor(pi0, dtype=torch.float64))


def test_exact_forms_by_hand() -> None:
    """π₀ = (1/4, 3/4) and (1/8, 7/8), π = (1/2, 1/2) and (1/4, 3/4), ν = 1/4 counts for kl alone.
    wce: row 1 is ln 2, row 2 is (1/8)·ln 4 + (7/8)·ln(4/3).
    kl: row 1 is (1/2)(ln 2 + ln(2/3)), row 2 is (1/4)·ln 1 + (3/4)·ln(6/7)."""
    batch = _exact_batch([[0.5, 0.5], [0.25, 0.75]], [[0.25, 0.75], [0.125, 0.875]])
    wce = (LN2 + math.log(4) / 8 + 7 / 8 * math.log(4 / 3)) / 2
    kl = ((LN2 + math.log(2 / 3)) / 2 + 3 / 4 * math.log(6 / 7)) / 2
    assert _exact("wce", batch, nu=0.25) == pytest.approx(wce, abs=1e-12)
    assert _exact("kl", batch, nu=0.25) == pytest.approx(kl, abs=1e-12)


def test_exact_match_is_the_expectation_over_the_logged_actions() -> None:
    """π₀ = (1/4, 3/4) and (1/8, 7/8): each action of a row is logged with that probability."""
    pi, pi0 = [[0.5, 0.5], [0.25, 0.75]], [[0.25, 0.75], [0.125, 0.875]]
    h = {"balance": 0.5, "balance_unit": 1.5}
    expected = 0.0
    for row in range(2):
        for action in range(2):
            log_pi = torch.tensor([pi[row][action]], dtype=torch.float64).log()
            p = torch.tensor([pi0[row][action]], dtype=torch.float64)
            expected += pi0[row][action] * _reg("match", _any_batch(log_pi, p, p), **h) / 2
    assert _exact("match", _exact_batch(pi, pi0), **h) == pytest.approx(expected, abs=1e-12)


def test_exact_kl_is_zero_at_the_logging_policy_and_nowhere_else() -> None:
    pi0 = [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]
    assert _exact("kl", _exact_batch(pi0, pi0), nu=0.05) == pytest.approx(0, abs=1e-15)
    assert _exact("kl", _exact_batch(pi0[::-1], pi0), nu=0.05) > 0.1


def test_tips_without_truncation_is_plain_ips() -> None:
    rng = np.random.default_rng(0)
    pi, p, c = rng.random(50), rng.random(50) ** 4, -rng.random(50)
    batch = KnownBatch(torch.tensor(pi).log(), torch.tensor(p), torch.tensor(c))
    plain = float(np.mean(c * pi / p))
    assert _risk("tips", batch, nu=0.0) == pytest.approx(plain, rel=1e-12)
    assert _risk("tips", batch, nu=1e-12) == pytest.approx(plain, rel=1e-12)
    assert abs(_risk("tips", batch, nu=0.1)) < abs(plain)


def test_kl_is_zero_where_the_policy_is_the_truncated_logging_policy() -> None:
    p = torch.tensor([0.5, 0.2, 0.01], dtype=torch.float64)
    weight = torch.tensor([1.0, 7.0, 3.0], dtype=torch.float64)
    assert _reg("kl", _any_batch(p.clamp(min=0.1).log(), p, weight), nu=0.1) == 0
    assert _reg("kl", _any_batch(p.log(), p, weight), nu=0.1) != 0


def test_wce_does_not_depend_on_nu() -> None:
    batch = _three_rows(pi=[0.5, 0.25, 0.125], p=[0.5, 0.001, 0.25])
    values = {_reg("wce", batch, nu=nu) for nu in (0.0, 0.1, 1.0)}
    assert len(values) == 1


def test_none_is_zero_on_both_sides() -> None:
    row = torch.tensor([0.5])
    assert _risk("none", KnownBatch(row, row, row), nu=NU) == 0
    assert _reg("none", _any_batch(row, row, row), nu=NU) == 0
    assert RISKS.load("none").formula(KnownBatch(row, row, row), _numbers()).slope == {}
    assert REGULARISERS.load("none").formula(_any_batch(row, row, row), _numbers()).slope == {}


# --- the log, its counts and its batches ---

ROW_TERMS: dict[str, Callable[[float, float, float], float]] = {
    "wce": lambda pi, p, nu: -p * math.log(pi),
    "kl": lambda pi, p, nu: pi * (math.log(pi) - math.log(max(nu, p))),
}


class _SmallLog(NamedTuple):
    """A network and a log's rows for it, in float64: the batches that the loop would make of them."""

    network: PolicyNetwork
    rows: Rows
    action_weight: list[float]

    @property
    def known(self) -> list[int]:
        return self.rows.known[0].tolist()

    @property
    def regularised(self) -> list[int]:
        return self.rows.regularised[0].tolist()

    def known_batch(self, index: Sequence[int]) -> KnownBatch:
        own = list(index)
        return KnownBatch(self._log_pi(own), self.rows.p[own].double(), self.rows.c[0, own].double())

    def any_batch(self, index: Sequence[int]) -> AnyBatch:
        own = list(index)
        log_pi, distance = self._log_pi(own), torch.tensor(2.0, dtype=torch.float64)
        action_weight, reward_weight = self.rows.action_weight[0, own].double(), torch.tensor(own).double() / 4
        p = self.rows.p[own].double()
        first = len(self.rows.action)  # after all known rows, as where they are batches of their own
        return _any_batch(log_pi, p, action_weight, reward_weight=reward_weight, distance=distance, first=first)

    @torch.no_grad()
    def _log_pi(self, index: list[int]) -> Tensor:
        log_pi = torch.log_softmax(self.network(self.rows.context[index]), dim=1)
        return log_pi.gather(1, self.rows.action[index, None]).squeeze(1)


def _small_log(*, reg_on_known: bool = False) -> _SmallLog:
    """Six rows, four actions of which action 3 was never logged, and a policy that is not uniform; float64."""
    rng = np.random.default_rng(3)
    arrays = arrays_of(
        context=rng.standard_normal((6, 2)).astype(np.float32),
        action=[0, 0, 0, 1, 2, 2],
        propensity=[0.5, 0.25, 0.005, 0.125, 0.75, 1.0],
        cost=[-1, np.nan, 0, np.nan, -0.5, -1],
    )
    torch.manual_seed(0)
    network = build_network(NetworkSpec("mlp", ContextSpec("float32", (2,)), 4, (5,))).double()
    return _SmallLog(network, *_rows(arrays, 4, reg_on_known=reg_on_known))


def _rows(arrays: LogArrays, actions: int, *, reg_on_known: bool) -> tuple[Rows, list[float]]:
    train_rows = TrainRows(arrays, np.arange(arrays.rows))
    statistics = count_rows([train_rows], actions)
    rows = rows_on_device(train_rows, [Fold(0)], statistics, reg_on_known=reg_on_known, device=CPU)
    return rows, statistics.action_weight(Fold(0), on_known=reg_on_known).tolist()


@pytest.mark.parametrize("rows", ["all", "known"])
@pytest.mark.parametrize("name", ROW_TERMS)
def test_regulariser_is_the_sum_over_actions_of_means_over_their_rows(name: str, rows: str) -> None:
    log = _small_log(reg_on_known=rows == "known")
    with torch.no_grad():
        pi = torch.softmax(log.network(log.rows.context), dim=1).numpy()
        value = _reg(name, log.any_batch(log.regularised), nu=NU)
    expected = 0.0
    for action in range(4):
        of_action = [i for i in log.regularised if log.rows.action[i] == action]
        if of_action:
            terms = [ROW_TERMS[name](pi[i, action], log.rows.p[i].item(), NU) for i in of_action]
            expected += sum(terms) / len(of_action)
    assert value == pytest.approx(expected, rel=1e-6)  # the counts are kept as float32


RISK_TERMS: dict[str, Callable[[float, float, float], float]] = {
    "ips": lambda pi, p, c: c * pi / p,
    "tips": lambda pi, p, c: c * pi / max(NU, p),
    "pseudo": lambda pi, p, c: c * pi / max(NU, p),
    "banditnet": lambda pi, p, c: (c + 0.3) * pi / max(NU, p),
    "wnll": lambda pi, p, c: c * math.log(pi) / max(NU, p),
    "ix": lambda pi, p, c: c * pi / (p + 0.1),
    "es": lambda pi, p, c: c * pi / p**0.1,
    "ls": lambda pi, p, c: -math.log(1 - 0.1 * c * pi / p) / 0.1,
    "os": lambda pi, p, c: c * 20 * (pi / p) / ((pi / p) ** 2 + 20),
    "none": lambda pi, p, c: 0.0,
}


@pytest.mark.parametrize("name", [name for name in RISKS.names if name != "lse"])
def test_risk_is_the_mean_over_known_rows(name: str) -> None:
    log = _small_log()
    assert log.known == [0, 2, 4, 5]
    pi, value = _on_known_rows(log, name)
    terms = [RISK_TERMS[name](pi[i], log.rows.p[i].item(), c) for i, c in zip(log.known, COSTS, strict=True)]
    assert value == pytest.approx(sum(terms) / 4, rel=1e-7, abs=1e-15)


def test_lse_is_the_log_mean_exp_over_known_rows() -> None:
    log = _small_log()
    pi, value = _on_known_rows(log, "lse")
    terms = [math.exp(-0.1 * -c * pi[i] / log.rows.p[i].item()) for i, c in zip(log.known, COSTS, strict=True)]
    assert value == pytest.approx(math.log(sum(terms) / 4) / 0.1, rel=1e-7)


COSTS = (-1.0, 0.0, -0.5, -1.0)  # of the known rows


def _on_known_rows(log: _SmallLog, name: str) -> tuple[npt.NDArray[np.float64], float]:
    with torch.no_grad():
        pi = torch.softmax(log.network(log.rows.context), dim=1)[torch.arange(6), log.rows.action].numpy()
        term = RISKS.load(name).formula(log.known_batch(log.known), _of(f"risk:{name}"))
        return pi, _value(term)


@pytest.mark.parametrize("name", EVERY)
def test_minibatch_estimates_average_to_the_full_value(name: str) -> None:
    """Over the batches of an equal partition, and over all batches of two rows. Counting actions inside the
    batch instead of over the log would fail here. Of lse it is the exponential that averages."""
    log = _small_log()
    numbers = log.known if name.startswith("risk:") else log.regularised

    def value(index: Sequence[int]) -> float:
        batch: Any = log.known_batch(index) if name.startswith("risk:") else log.any_batch(index)
        estimate = _value(_declared(name).formula(batch, _of(name)))
        return math.exp(0.1 * estimate) if name == "risk:lse" else estimate

    full = value(numbers)
    partition = [value((a, b)) for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
    pairs = [value(pair) for pair in itertools.combinations(numbers, 2)]
    assert np.mean(partition) == pytest.approx(full, rel=1e-12, abs=1e-15)
    assert np.mean(pairs) == pytest.approx(full, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", [name for name in RISKS.names if name != "none"])
def test_weighted_rows_stand_for_the_known_ones(name: str) -> None:
    """A batch of all rows, the missing ones weighted 0 and the known ones N/n, is the mean over the known."""
    log = _small_log()
    everything = log.known_batch(range(6))
    weighted = everything._replace(weight=log.rows.feedback_weight[0].double())
    whole = _value(RISKS.load(name).formula(weighted, _of(f"risk:{name}")))
    assert whole == pytest.approx(_on_known_rows(log, name)[1], rel=1e-6)


@pytest.mark.parametrize("name", WITH_TERM)
def test_policies_side_by_side_have_their_own_numbers(name: str) -> None:
    """Two policies with two values of every hyperparameter: as each alone."""
    log = _small_log()
    batch: Any = log.known_batch(log.known) if name.startswith("risk:") else log.any_batch(log.regularised)
    first = vars(_of(name)) | {"sharpen": 2.0, "cap": 0.3}
    second = first | {
        "nu": 0.2, "translation": 0.1, "smoothing": 2 * first["smoothing"], "sharpen": 0.5, "cap": 0.6,
        "sharpen_unit": 0.7, "balance": 1.0, "balance_unit": 3.0,
    }  # fmt: skip
    both = {key: torch.tensor([[first[key]], [second[key]]], dtype=torch.float64) for key in first}
    formula = _declared(name).formula
    distance = torch.tensor([2.0, 5.0], dtype=torch.float64)
    batches = [
        batch._replace(log_pi=factor * batch.log_pi, **({"distance": distance[c]} if "reg:" in name else {}))
        for c, factor in enumerate((1, 2))
    ]
    stacked = batch._replace(
        log_pi=torch.stack([one.log_pi for one in batches]), **({"distance": distance} if "reg:" in name else {})
    )
    term = formula(stacked, SimpleNamespace(**both))
    assert _mean(term).shape == (2,)
    for c, numbers in enumerate((first, second)):
        alone = formula(batches[c], SimpleNamespace(**numbers))
        torch.testing.assert_close(_mean(term)[c], _mean(alone))
        for seen, slope in alone.slope.items():
            torch.testing.assert_close(term.slope[seen][c], slope)


def test_action_weights_are_counted_over_the_regularised_rows() -> None:
    """Six rows of actions 0 0 0 1 2 2: N/m_a = 2, 6, 3. Known are four of actions 0 0 2 2: 2, –, 2."""
    assert _small_log().action_weight == [2, 6, 3, 0]
    assert _small_log(reg_on_known=True).action_weight == [2, 0, 2, 0]


# --- the sum ---


def _objective(risk: str, reg: str, lam: Any, h: Numbers, *, exact: bool = False) -> Objective:
    return Objective(RISKS.load(risk), EXACT_FORMS[reg] if exact else REGULARISERS.load(reg), lam, h)


def _total(objective: Objective, known: KnownBatch, rows: AnyBatch) -> Term:
    """As the loop has it."""
    return objective.risk(known) + objective.lam * objective.regulariser(rows)


@pytest.mark.parametrize(("risk", "reg"), list(itertools.product(RISKS.names, REGULARISERS.names)))
def test_objective_is_risk_plus_lam_times_regulariser(risk: str, reg: str) -> None:
    log, h = _small_log(), _of(f"risk:{risk}")
    known, rows = log.known_batch(log.known), log.any_batch(log.regularised)
    total = _total(_objective(risk, reg, 3.0, h), known, rows)
    of_risk, of_regulariser = RISKS.load(risk).formula(known, h).slope, REGULARISERS.load(reg).formula(rows, h).slope
    assert total.slope.keys() == of_risk.keys() | of_regulariser.keys()
    for seen, slope in total.slope.items():
        torch.testing.assert_close(slope, of_risk.get(seen, 0) + 3 * of_regulariser.get(seen, torch.zeros(())))


@pytest.mark.parametrize("reg", REGULARISERS.names)
def test_lam_zero_is_the_plain_risk(reg: str) -> None:
    log, h = _small_log(), _numbers()
    known, rows = log.known_batch(log.known), log.any_batch(log.regularised)
    total, plain = _total(_objective("tips", reg, 0.0, h), known, rows), RISKS.load("tips").formula(known, h)
    assert torch.equal(total.slope[LOG_PI, 0], plain.slope[LOG_PI, 0])
    assert not any(slope.any() for seen, slope in total.slope.items() if seen != (LOG_PI, 0))


@pytest.mark.parametrize("name", EVERY)
def test_batch_without_rows_has_no_say(name: str) -> None:
    """Of a streamed log, a part may have no feedback. Only lpr sees no rows and has a say all the same."""
    log, entry = _small_log(), name.split(":")[1]
    if name.startswith("risk:"):
        term = _objective(entry, "none", 1.0, _of(name)).risk(log.known_batch([]))
        assert term is NOTHING
        return
    objective = _objective("none", entry, 1.0, _of(name))
    assert objective.regulariser(log.any_batch([])._replace(distance=NOT_SEEN)) is NOTHING
    if entry == "lpr":
        assert _value(objective.regulariser(log.any_batch([]))) == 2


# --- optima, on a population that is enumerated ---

PI0_COUNTS = np.array([[10, 6, 4], [2, 12, 6], [5, 5, 10]])  # rows of context x with action a: π₀ is exact
PI0 = PI0_COUNTS / 20
MARGINAL = PI0.mean(axis=0)  # the contexts are equally frequent


ROW_COSTS = -np.array([[1.0, 0.2, 0.0], [0.0, 1.0, 0.4], [0.3, 0.0, 1.0]])  # c(x, a)


def _optimum(risk: str, reg: str, lam: float = 1.0, *, exact: bool = False, **numbers: Any) -> npt.NDArray[np.float64]:
    """π(a|x) of the linear policy that minimises the objective over all rows of the population."""
    pairs = [(x, a) for x in range(3) for a in range(3) for _ in range(PI0_COUNTS[x, a])]
    contexts, action = [x for x, _ in pairs], [a for _, a in pairs]
    known = risk != "none"
    cost = ROW_COSTS[contexts, action] if known else np.full(len(pairs), np.nan)
    arrays = arrays_of(one_hot(contexts, 3), action, PI0[contexts, action], cost, pi0=PI0[contexts])
    rows, _ = _rows(arrays, 3, reg_on_known=False)
    network = build_network(NetworkSpec("linear", ContextSpec("float32", (3,)), 3)).double()
    h = _numbers(**{"nu": 0.0, **numbers})
    p, pi0 = torch.tensor(PI0[contexts, action]), torch.tensor(PI0[contexts])
    if h.sharpen is not None:
        h = _numbers(**(vars(h) | REGULARISERS.load("wce").derive(vars(h), lambda f: float(f(p.numpy()).mean()))))
    objective = _objective(risk, reg, lam, h, exact=exact)
    optimizer = torch.optim.LBFGS(
        network.parameters(), max_iter=500, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimizer.zero_grad()
        log_policy = torch.log_softmax(network(rows.context), dim=1)
        log_pi = log_policy.gather(1, rows.action[:, None]).squeeze(1)
        seen = {(LOG_PI, 0): log_pi, (LOG_POLICY, 0): log_policy}
        any_batch = _any_batch(log_pi.detach(), p, rows.action_weight[0].double())
        any_batch = any_batch._replace(log_policy=log_policy.detach(), pi0=pi0)
        known_rows = len(pairs) if known else 0
        known_batch = KnownBatch(log_pi.detach()[:known_rows], p[:known_rows], torch.tensor(cost)[:known_rows])
        loss = _total(objective, known_batch, any_batch)
        torch.autograd.backward([seen[name] for name in loss.slope], list(loss.slope.values()))
        return _value(objective.risk(known_batch)) + lam * _value(objective.regulariser(any_batch))

    optimizer.step(closure)
    with torch.no_grad():
        pi: npt.NDArray[np.float64] = torch.softmax(network(torch.eye(3, dtype=torch.float64)), dim=1).numpy()
    return pi


def _normalised(table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return table / table.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.5])
def test_sharpened_wce_optimum_is_a_power_of_the_logging_policy(beta: float) -> None:
    """Σ_x Σ_a π₀·π₀^β·(−log π) is least at π ∝ π₀^{1+β}."""
    assert np.abs(_optimum("none", "wce", sharpen=beta) - _normalised(PI0 ** (1 + beta))).max() < 1e-6


def test_cap_levels_the_weights_above_it() -> None:
    """Weights min(π₀, 0.3)^2: the optimum is π ∝ π₀·min(π₀, 0.3)²."""
    expected = _normalised(PI0 * np.minimum(PI0, 0.3) ** 2)
    assert np.abs(_optimum("none", "wce", sharpen=2.0, cap=0.3) - expected).max() < 1e-6


@pytest.mark.parametrize("lam", [0.2, 1.0])
def test_tips_with_exact_kl_reaches_the_tilted_logging_policy(lam: float) -> None:
    """E[c(x, π)] + λ·KL(π‖π₀) is least at π ∝ π₀·exp(−c/λ)."""
    expected = _normalised(PI0 * np.exp(-ROW_COSTS / lam))
    assert np.abs(_optimum("tips", "kl", lam, exact=True) - expected).max() < 1e-6


def test_exact_wce_alone_reaches_the_logging_policy() -> None:
    assert np.abs(_optimum("none", "wce", exact=True) - PI0).max() < 1e-6


def test_tips_with_sampled_kl_reaches_its_own_optimum() -> None:
    """c·π + λ·w·π·log(π/π₀), w = π₀/M_a: on the simplex c + λw(log(π/π₀) + 1) = μ, so
    π = π₀·exp((μ − c)/(λw) − 1) with the μ that makes it sum to 1."""
    lam, weight = 0.7, PI0 / MARGINAL
    expected = np.stack([_kl_row(PI0[x], lam * weight[x], ROW_COSTS[x]) for x in range(3)])
    assert np.abs(_optimum("tips", "kl", lam) - expected).max() < 1e-6
    assert np.abs(_optimum("tips", "kl", lam, exact=True) - expected).max() > 0.02


def test_wce_optimum_sharpens_the_logging_policy() -> None:
    """Σ_x q(x) Σ_a (π₀²/M_a)·(−log π) is least at π ∝ π₀²/M_a, M_a the marginal of the action."""
    expected = PI0**2 / MARGINAL
    expected /= expected.sum(axis=1, keepdims=True)
    assert np.abs(_optimum("none", "wce") - expected).max() < 1e-6
    assert np.abs(PI0 - expected).max() > 0.05  # far from π₀ itself: the test can tell them apart


def test_kl_optimum_of_the_sampled_form() -> None:
    """Σ_a w_a·π log(π/π₀) with w_a = π₀/M_a on the simplex: w_a(log(π/π₀) + 1) = μ for every a, so
    π = π₀·exp(μ/w_a − 1) with the μ that makes it sum to 1. Not π₀: the per-action form is not the divergence."""
    weight = PI0 / MARGINAL
    expected = np.stack([_kl_row(PI0[x], weight[x]) for x in range(3)])
    assert np.abs(_optimum("none", "kl") - expected).max() < 1e-6
    assert np.abs(PI0 - expected).max() > 0.02


def _kl_row(
    pi0: npt.NDArray[np.float64], weight: npt.NDArray[np.float64], cost: npt.NDArray[np.float64] | float = 0.0
) -> npt.NDArray[np.float64]:
    low, high = -50.0, 50.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (pi0 * np.exp((middle - cost) / weight - 1)).sum() < 1 else (low, middle)
    row: npt.NDArray[np.float64] = pi0 * np.exp((low - cost) / weight - 1)
    return row


def test_match_by_hand() -> None:
    """π = (0.5, 0.2), p = (0.25, 0.5), β = 1: p^−β = (4, 2), their mean u = 3, m = (4/3, 2/3). The errors are ln 2 and
    ln 0.4, so (4/3·0.4805 + 2/3·0.8396)/2 = 0.6002. With β = 0: (0.4805 + 0.8396)/2 = 0.6600."""
    log_pi, p = (torch.tensor(values, dtype=torch.float64) for values in ([0.5, 0.2], [0.25, 0.5]))
    batch = _small_log().any_batch(range(2))._replace(log_pi=log_pi.log(), p=p)
    assert _reg("match", batch, balance=1.0, balance_unit=3.0) == pytest.approx(0.6002, abs=1e-4)
    assert _reg("match", batch, balance=0.0, balance_unit=1.0) == pytest.approx(0.6600, abs=1e-4)
    derive = REGULARISERS.load("match").derive
    assert derive({"balance": 1.0}, lambda function: float(function(p.numpy()).mean())) == {"balance_unit": 3.0}
