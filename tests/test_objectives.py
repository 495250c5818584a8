"""Risks, regularisers, their sum and their names: by hand, by brute force, and by their closed-form optima."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from s2bl_cli.models.network import PolicyNetwork, build_network
from s2bl_cli.objectives.batches import AnyBatch, Knobs, KnownBatch
from s2bl_cli.objectives.methods import DEFAULT_LAM, DEFAULT_METHOD, METHODS, method_name
from s2bl_cli.objectives.objective import Objective, objective_of
from s2bl_cli.registry import EXACT_FORMS, REGULARISERS, RISKS
from s2bl_cli.training.groups import Group, TrainRows
from s2bl_cli.training.log_facts import count_log
from s2bl_cli.training.rows import Filling, Rows, rows_on_device

NU = 0.01
EVERY = [f"risk:{name}" for name in RISKS.names] + [f"reg:{name}" for name in REGULARISERS.names]
WITH_TERM = [name for name in EVERY if not name.endswith(":none")]


def _value(name: str, log_pi: Tensor, p: Tensor, third: Tensor, nu: float) -> Tensor:
    """Any risk or regulariser on a batch; `third` is the batch's third field, the cost negated or the weight."""
    kind, entry = name.split(":")
    value: Tensor
    if kind == "risk":
        value = RISKS.load(entry)(KnownBatch(log_pi, p, -third), _knobs(entry, nu))
    else:
        batch = AnyBatch(log_pi, p, third, merit=third, distance=log_pi.square().sum(-1))
        value = REGULARISERS.load(entry)(batch, _knobs(entry, nu))
    return value


def _knobs(risk: str, nu: float = NU) -> Knobs:
    """A smoothing that the risk can be worked out with."""
    return Knobs(nu=nu, translation=-0.3, smoothing={"lse": -0.1, "os": 20.0}.get(risk, 0.1))


@pytest.mark.parametrize("name", WITH_TERM)
def test_gradient_is_the_derivative(name: str) -> None:
    log_pi = torch.tensor([-0.1, -1.0, -3.0, -8.0], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([0.6, 0.3, 0.05, 0.001], dtype=torch.float64)
    third = torch.tensor([1.0, 0.5, 0.25, 2.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: _value(name, x, p, third, NU), (log_pi,))
    (gradient,) = torch.autograd.grad(_value(name, log_pi, p, third, NU), log_pi)
    assert gradient.abs().min() > 0  # every row counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_value_is_a_scalar_of_the_batch_device_and_dtype(name: str, dtype: torch.dtype) -> None:
    log_pi = torch.tensor([-0.5, -2.0, -4.0], dtype=dtype)
    p = torch.tensor([0.5, 0.1, 0.01], dtype=dtype)
    third = torch.tensor([1.0, 0.0, 0.5], dtype=dtype)
    with default_device_elsewhere():
        value = _value(name, log_pi, p, third, NU)
    assert (value.shape, value.dtype, value.device) == ((), dtype, CPU)


@pytest.mark.parametrize("name", [name for name in WITH_TERM if name != "reg:lpr"])  # it sees no probability
def test_value_and_gradient_are_finite_at_tiny_probabilities(name: str) -> None:
    log_pi = torch.tensor([-1e-7, -100.0, -1e4, -1e30], requires_grad=True)
    # Without truncation a weight is as large as 1/p: those risks are asked for propensities that a log may have.
    bare = name.removeprefix("risk:") in ("ips", "es", "ls", "lse", "os")
    p = torch.tensor([1e-15, 1e-12, 1.0, 1e-9] if bare else [1e-30, 1e-38, 1.0, 1e-20])
    value = _value(name, log_pi, p, torch.ones(4), 0.001)
    (gradient,) = torch.autograd.grad(value, log_pi)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


def test_tips_by_hand() -> None:
    """c·π/max(ν, p) at ν = 0.1: −1·0.5/0.5 = −1; −0.5·0.2/0.1 = −1 (p = 0.05 counts as 0.1); 0. Mean −2/3."""
    batch = KnownBatch(
        torch.tensor([0.5, 0.2, 0.9], dtype=torch.float64).log(),
        torch.tensor([0.5, 0.05, 0.3], dtype=torch.float64),
        torch.tensor([-1.0, -0.5, 0.0], dtype=torch.float64),
    )
    assert RISKS.load("tips")(batch, Knobs(nu=0.1)).item() == pytest.approx(-2 / 3, abs=1e-12)


def test_wce_by_hand() -> None:
    """Actions 0, 0, 1; π = 1/2, 1/4, 1/8; p = 1/2, 1/4, 1/4. The terms −p·log π are 1/2, 1/2 and 3/4 of ln 2.
    Σ_a (1/m_a) Σ = (1/2)(1/2 + 1/2) + 3/4 = 5/4 of ln 2."""
    batch = _three_rows(pi=[0.5, 0.25, 0.125], p=[0.5, 0.25, 0.25])
    assert REGULARISERS.load("wce")(batch, Knobs(nu=0.3)).item() == pytest.approx(1.25 * math.log(2), abs=1e-12)


def test_kl_by_hand() -> None:
    """Actions 0, 0, 1; π = 1/4, 1/2, 1/2; p = 1/2, 1/4, 1/16; ν = 1/4. The terms π·log(π/max(ν, p)) are −1/4, 1/2
    and 1/2 of ln 2 (the last p counts as 1/4). Σ_a (1/m_a) Σ = (1/2)(−1/4 + 1/2) + 1/2 = 5/8 of ln 2."""
    batch = _three_rows(pi=[0.25, 0.5, 0.5], p=[0.5, 0.25, 0.0625])
    assert REGULARISERS.load("kl")(batch, Knobs(nu=0.25)).item() == pytest.approx(0.625 * math.log(2), abs=1e-12)


def _three_rows(pi: list[float], p: list[float]) -> AnyBatch:
    """Two rows of action 0 and one of action 1: N/m_a is 3/2 and 3."""
    weight = torch.tensor([1.5, 1.5, 3.0], dtype=torch.float64)
    return AnyBatch(torch.tensor(pi, dtype=torch.float64).log(), torch.tensor(p, dtype=torch.float64), weight)


LN2 = math.log(2)

# π = 1/2, 1/4, 1/8; p = 1/4, 1/2, 1/8; c = −1, −1/2, 0: weights π/p = 2, 1/2, 1, and rewards times them 2, 1/4, 0.
RISKS_BY_HAND: dict[str, tuple[Knobs, float]] = {
    "ips": (Knobs(), (-2 - 0.25) / 3),
    # π/max(1/4, p) = 2, 1/2, 1/2
    "tips": (Knobs(nu=0.25), (-2 - 0.25) / 3),
    "pseudo": (Knobs(nu=0.25), (-2 - 0.25) / 3),
    # c + 1/2 = −1/2, 0, 1/2
    "banditnet": (Knobs(nu=0.25, translation=-0.5), (-1 + 0.25) / 3),
    # −1·(−1)/(1/4) = 4 and −1/2·(−2)/(1/2) = 2 of ln 2
    "wnll": (Knobs(nu=0.25), (4 + 2) * LN2 / 3),
    # π/(p + 1/4) = 1, 1/3
    "ix": (Knobs(smoothing=0.25), (-1 - 1 / 6) / 3),
    # π/√p = 1, √2/4
    "es": (Knobs(smoothing=0.5), (-1 - math.sqrt(2) / 8) / 3),
    "ls": (Knobs(smoothing=2.0), -(math.log(5) + math.log(1.5)) / 2 / 3),
    "lse": (Knobs(smoothing=-2.0), math.log((math.exp(-4) + math.exp(-0.5) + 1) / 3) / 2),
    # 2·2/(4 + 2) = 2/3; 2·½/(¼ + 2) = 4/9
    "os": (Knobs(smoothing=2.0), (-2 / 3 - 2 / 9) / 3),
    "none": (Knobs(), 0.0),
}


@pytest.mark.parametrize("name", RISKS.names)
def test_risk_by_hand(name: str) -> None:
    knobs, expected = RISKS_BY_HAND[name]
    assert RISKS.load(name)(_hand_batch(), knobs).item() == pytest.approx(expected, abs=1e-12)


def _hand_batch() -> KnownBatch:
    pi, p, c = torch.tensor([[0.5, 0.25, 0.125], [0.25, 0.5, 0.125], [-1, -0.5, 0]], dtype=torch.float64)
    return KnownBatch(pi.log(), p, c)


@pytest.mark.parametrize(
    ("name", "knobs", "limit", "limit_knobs"),
    [
        ("tips", Knobs(nu=1e-12), "ips", Knobs()),
        ("banditnet", Knobs(nu=0.3, translation=0.0), "tips", Knobs(nu=0.3)),
        ("pseudo", Knobs(nu=0.3), "tips", Knobs(nu=0.3)),
        ("ix", Knobs(smoothing=0.0), "ips", Knobs()),
        ("es", Knobs(smoothing=1.0), "ips", Knobs()),
        ("ls", Knobs(smoothing=1e-9), "ips", Knobs()),
        ("lse", Knobs(smoothing=-1e-7), "ips", Knobs()),
        ("os", Knobs(smoothing=1e12), "ips", Knobs()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_risk_has_its_limit(name: str, knobs: Knobs, limit: str, limit_knobs: Knobs) -> None:
    """Value and gradient."""
    pi = torch.tensor([0.9, 0.3, 0.02], dtype=torch.float64)
    found = []
    for risk, own in ((name, knobs), (limit, limit_knobs)):
        log_pi = pi.log().requires_grad_()
        value = RISKS.load(risk)(_hand_batch()._replace(log_pi=log_pi), own)
        (gradient,) = torch.autograd.grad(value, log_pi)
        found.append([value.item(), *gradient.tolist()])
    assert found[0] == pytest.approx(found[1], rel=1e-5, abs=1e-7)
    assert found[0][0] < -0.01


def test_smoothing_moves_the_risk_towards_zero() -> None:
    """Costs are ≤ 0: every smoothing takes something off what ips promises."""
    plain = RISKS.load("ips")(_hand_batch(), Knobs()).item()
    for name, smoothing in {"ix": 0.1, "es": 0.5, "ls": 1.0, "lse": -1.0, "os": 10.0}.items():
        assert plain < RISKS.load(name)(_hand_batch(), Knobs(smoothing=smoothing)).item() < 0


@pytest.mark.parametrize("tiny", [False, True], ids=["", "tiny propensities"])
def test_lse_of_a_mixed_batch_looks_at_known_rows_only(tiny: bool) -> None:
    """And a batch without any has no say. With tiny propensities all exponentials would underflow beside that of a
    row without feedback."""
    batch = _hand_batch()
    if tiny:
        batch = batch._replace(p=batch.p * 1e-6, c=torch.tensor([-1.0, -0.5, -0.5], dtype=torch.float64))
    knobs = Knobs(smoothing=-2.0)
    alone = RISKS.load("lse")(KnownBatch(*(value[:2] for value in batch[:3])), knobs)
    weight = torch.tensor([1.5, 1.5, 0], dtype=torch.float64)
    without_feedback = batch._replace(c=batch.c * (weight > 0), weight=weight)
    assert RISKS.load("lse")(without_feedback, knobs).item() == pytest.approx(alone.item(), rel=1e-12)
    log_pi = batch.log_pi.clone().requires_grad_()
    nothing = RISKS.load("lse")(without_feedback._replace(log_pi=log_pi, weight=torch.zeros(3)), knobs)
    (gradient,) = torch.autograd.grad(nothing, log_pi)
    assert (nothing.item(), gradient.tolist()) == (0, [0, 0, 0])


def test_sharpened_wce_by_hand() -> None:
    """p = 1/2, 1/4, 1/4, cap 0.4, β = 2: weights 0.16, 0.0625, 0.0625 of sum 0.285; −log π = 1, 2, 3 of ln 2."""
    batch = _three_rows(pi=[0.5, 0.25, 0.125], p=[0.5, 0.25, 0.25])
    value = REGULARISERS.load("wce")(batch, Knobs(sharpen=2.0, cap=0.4, sharpen_unit=math.sqrt(0.285 / 3))).item()
    assert value == pytest.approx((0.16 + 2 * 0.0625 + 3 * 0.0625) / 0.285 * LN2, abs=1e-12)


def test_sharpened_by_one_is_the_papers_where_actions_are_equally_frequent() -> None:
    """Two rows of each of two actions: N/m_a = 2 for all; p has the mean 0.3, so wce is 2·0.3 times as large."""
    p = torch.tensor([0.5, 0.25, 0.25, 0.2], dtype=torch.float64)
    batch = AnyBatch(torch.tensor([0.5, 0.1, 0.3, 0.7]).double().log(), p, torch.full((4,), 2.0).double())
    sharpened = REGULARISERS.load("wce")(batch, Knobs(sharpen=1.0, sharpen_unit=0.3))
    assert REGULARISERS.load("wce")(batch, Knobs()).item() == pytest.approx(2 * 0.3 * sharpened.item(), rel=1e-12)


def test_sharpened_by_zero_is_plain_cross_entropy() -> None:
    batch = _three_rows(pi=[0.5, 0.25, 0.125], p=[0.9, 0.25, 0.001])
    assert REGULARISERS.load("wce")(batch, Knobs(sharpen=0.0)).item() == pytest.approx(2 * LN2, abs=1e-12)


def test_cce_by_hand() -> None:
    """Merits 2, 0, 1/2; −log π = 1, 2, 3 of ln 2: (2 + 0 + 1.5)/3."""
    batch = _three_rows(pi=[0.5, 0.25, 0.125], p=[0.9, 0.25, 0.001])
    merit = torch.tensor([2.0, 0.0, 0.5], dtype=torch.float64)
    assert REGULARISERS.load("cce")(batch._replace(merit=merit), Knobs()).item() == pytest.approx(3.5 / 3 * LN2)


def _exact_batch(pi: list[list[float]], pi0: list[list[float]]) -> AnyBatch:
    nothing = torch.zeros(len(pi), dtype=torch.float64)
    log_policy = torch.tensor(pi, dtype=torch.float64).log()
    return AnyBatch(nothing, nothing, nothing, log_policy=log_policy, pi0=torch.tensor(pi0, dtype=torch.float64))


def test_exact_forms_by_hand() -> None:
    """π₀ = (1/4, 3/4) and (1/8, 7/8), π = (1/2, 1/2) and (1/4, 3/4), ν = 1/4 counts for kl alone.
    wce: row 1 is ln 2, row 2 is (1/8)·ln 4 + (7/8)·ln(4/3).
    kl: row 1 is (1/2)(ln 2 + ln(2/3)), row 2 is (1/4)·ln 1 + (3/4)·ln(6/7)."""
    batch = _exact_batch([[0.5, 0.5], [0.25, 0.75]], [[0.25, 0.75], [0.125, 0.875]])
    wce = (LN2 + math.log(4) / 8 + 7 / 8 * math.log(4 / 3)) / 2
    kl = ((LN2 + math.log(2 / 3)) / 2 + 3 / 4 * math.log(6 / 7)) / 2
    assert EXACT_FORMS.load("wce")(batch, Knobs(nu=0.25)).item() == pytest.approx(wce, abs=1e-12)
    assert EXACT_FORMS.load("kl")(batch, Knobs(nu=0.25)).item() == pytest.approx(kl, abs=1e-12)


def test_exact_kl_is_zero_at_the_logging_policy_and_nowhere_else() -> None:
    pi0 = [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]
    assert EXACT_FORMS.load("kl")(_exact_batch(pi0, pi0), Knobs(nu=0.05)).item() == pytest.approx(0, abs=1e-15)
    assert EXACT_FORMS.load("kl")(_exact_batch(pi0[::-1], pi0), Knobs(nu=0.05)).item() > 0.1


@pytest.mark.parametrize("name", EXACT_FORMS.names)
def test_gradient_of_the_exact_form_is_the_derivative(name: str) -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)  # two policies, three rows, four actions
    pi0 = torch.softmax(torch.randn(3, 4, dtype=torch.float64), dim=-1)
    nothing = torch.zeros(3, dtype=torch.float64)
    nu = torch.tensor([[0.0], [0.2]], dtype=torch.float64)

    def value(x: Tensor) -> Tensor:
        log_policy = torch.log_softmax(x, dim=-1)
        found: Tensor = EXACT_FORMS.load(name)(
            AnyBatch(nothing, nothing, nothing, log_policy=log_policy, pi0=pi0), Knobs(nu=nu)
        )
        return found

    assert value(logits).shape == (2,)
    assert torch.autograd.gradcheck(value, (logits,))


def test_tips_without_truncation_is_plain_ips() -> None:
    rng = np.random.default_rng(0)
    pi, p, c = rng.random(50), rng.random(50) ** 4, -rng.random(50)
    batch = KnownBatch(torch.tensor(pi).log(), torch.tensor(p), torch.tensor(c))
    plain = float(np.mean(c * pi / p))
    assert RISKS.load("tips")(batch, Knobs(nu=0.0)).item() == pytest.approx(plain, rel=1e-12)
    assert RISKS.load("tips")(batch, Knobs(nu=1e-12)).item() == pytest.approx(plain, rel=1e-12)
    assert abs(RISKS.load("tips")(batch, Knobs(nu=0.1)).item()) < abs(plain)


def test_kl_is_zero_where_the_policy_is_the_truncated_logging_policy() -> None:
    p = torch.tensor([0.5, 0.2, 0.01], dtype=torch.float64)
    weight = torch.tensor([1.0, 7.0, 3.0], dtype=torch.float64)
    assert REGULARISERS.load("kl")(AnyBatch(p.clamp(min=0.1).log(), p, weight), Knobs(nu=0.1)).item() == 0
    assert REGULARISERS.load("kl")(AnyBatch(p.log(), p, weight), Knobs(nu=0.1)).item() != 0


def test_wce_does_not_depend_on_nu() -> None:
    batch = _three_rows(pi=[0.5, 0.25, 0.125], p=[0.5, 0.001, 0.25])
    values = {REGULARISERS.load("wce")(batch, Knobs(nu=nu)).item() for nu in (0.0, 0.1, 1.0)}
    assert len(values) == 1


def test_none_is_zero_on_both_sides() -> None:
    row = torch.tensor([0.5])
    assert RISKS.load("none")(KnownBatch(row, row, row), Knobs(nu=NU)).item() == 0
    assert REGULARISERS.load("none")(AnyBatch(row, row, row), Knobs(nu=NU)).item() == 0


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
        weight, merit = self.rows.action_weight[0, own].double(), torch.tensor(own).double() / 4
        return AnyBatch(log_pi, self.rows.p[own].double(), weight, merit, distance=distance)

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
    facts = count_log([train_rows], [Group(0)], actions, reg_on_known=reg_on_known)
    nothing = Filling(None, None)
    rows = rows_on_device(train_rows, [Group(0)], facts, nothing, reg_on_known=reg_on_known, device=CPU)
    return rows, facts.action_weight[0].tolist()


@pytest.mark.parametrize("rows", ["all", "known"])
@pytest.mark.parametrize("name", ROW_TERMS)
def test_regulariser_is_the_sum_over_actions_of_means_over_their_rows(name: str, rows: str) -> None:
    log = _small_log(reg_on_known=rows == "known")
    with torch.no_grad():
        pi = torch.softmax(log.network(log.rows.context), dim=1).numpy()
        value = REGULARISERS.load(name)(log.any_batch(log.regularised), Knobs(nu=NU)).item()
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
        return pi, RISKS.load(name)(log.known_batch(log.known), _knobs(name)).item()


@pytest.mark.parametrize("name", EVERY)
def test_minibatch_estimates_average_to_the_full_value(name: str) -> None:
    """Over the batches of an equal partition, and over all batches of two rows. Counting actions inside the
    batch instead of over the log would fail here. Of lse it is the exponential that averages."""
    log = _small_log()
    kind, entry = name.split(":")
    numbers = log.known if kind == "risk" else log.regularised

    def value(index: Sequence[int]) -> float:
        if kind == "risk":
            found = RISKS.load(entry)(log.known_batch(index), _knobs(entry)).item()
            return math.exp(0.1 * found) if entry == "lse" else float(found)
        return float(REGULARISERS.load(entry)(log.any_batch(index), _knobs(entry)).item())

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
    whole = RISKS.load(name)(weighted, _knobs(name)).item()
    assert whole == pytest.approx(_on_known_rows(log, name)[1], rel=1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_policies_side_by_side_have_their_own_numbers(name: str) -> None:
    """Two policies with two values of every knob: as each alone."""
    log = _small_log()
    kind, entry = name.split(":")
    load = RISKS.load if kind == "risk" else REGULARISERS.load
    batch = log.known_batch(log.known) if kind == "risk" else log.any_batch(log.regularised)
    one, other = _knobs(entry), replace(_knobs(entry), nu=0.2, translation=0.1)
    both = Knobs(
        nu=torch.tensor([[one.nu], [other.nu]]), translation=torch.tensor([[-0.3], [0.1]], dtype=torch.float64),
        smoothing=torch.full((2, 1), float(one.smoothing), dtype=torch.float64),
    )  # fmt: skip
    stacked = batch._replace(log_pi=torch.stack([batch.log_pi, 2 * batch.log_pi]))
    values = load(entry)(stacked, both)
    if entry != "lpr":
        assert values.shape == (2,)
        alone = [load(entry)(batch, one), load(entry)(batch._replace(log_pi=2 * batch.log_pi), other)]
        assert values.tolist() == pytest.approx([value.item() for value in alone], rel=1e-6)


def test_action_weights_are_counted_over_the_regularised_rows() -> None:
    """Six rows of actions 0 0 0 1 2 2: N/m_a = 2, 6, 3. Known are four of actions 0 0 2 2: 2, –, 2."""
    assert _small_log().action_weight == [2, 6, 3, 0]
    assert _small_log(reg_on_known=True).action_weight == [2, 0, 2, 0]


# --- the sum ---


def _total(objective: Objective, known: KnownBatch | None, rows: AnyBatch) -> Tensor:
    """The objective on a batch of known rows and a batch of rows."""
    risk = None if objective.risk is None or known is None else objective.risk(known, objective.knobs)
    regulariser = None if objective.regulariser is None else objective.regulariser(rows, objective.knobs)
    return objective.total(risk, regulariser)


LEARNABLE = [pair for pair in itertools.product(RISKS.names, REGULARISERS.names) if pair != ("none", "none")]


@pytest.mark.parametrize(("risk", "reg"), LEARNABLE)
def test_objective_is_risk_plus_lam_times_regulariser(risk: str, reg: str) -> None:
    log, knobs = _small_log(), _knobs(risk)
    known, rows = log.known_batch(log.known), log.any_batch(log.regularised)
    expected = RISKS.load(risk)(known, knobs).item() + 3 * REGULARISERS.load(reg)(rows, knobs).item()
    assert _total(objective_of(risk, reg, 3, knobs), known, rows).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("reg", REGULARISERS.names)
def test_lam_zero_is_the_plain_risk(reg: str) -> None:
    log, knobs = _small_log(), Knobs(nu=NU)
    known, rows = log.known_batch(log.known), log.any_batch(log.regularised)
    assert torch.equal(_total(objective_of("tips", reg, 0, knobs), known, rows), RISKS.load("tips")(known, knobs))
    assert objective_of("tips", reg, 0, knobs).regulariser is None


# --- optima, on a population that is enumerated ---

PI0_COUNTS = np.array([[10, 6, 4], [2, 12, 6], [5, 5, 10]])  # rows of context x with action a: π₀ is exact
PI0 = PI0_COUNTS / 20
MARGINAL = PI0.mean(axis=0)  # the contexts are equally frequent


ROW_COSTS = -np.array([[1.0, 0.2, 0.0], [0.0, 1.0, 0.4], [0.3, 0.0, 1.0]])  # c(x, a)


def _optimum(risk: str, reg: str, lam: float = 1.0, *, exact: bool = False, **knobs: Any) -> npt.NDArray[np.float64]:
    """π(a|x) of the linear policy that minimises the objective over all rows of the population."""
    pairs = [(x, a) for x in range(3) for a in range(3) for _ in range(PI0_COUNTS[x, a])]
    contexts, action = [x for x, _ in pairs], [a for _, a in pairs]
    known = risk != "none"
    cost = ROW_COSTS[contexts, action] if known else np.full(len(pairs), np.nan)
    arrays = arrays_of(one_hot(contexts, 3), action, PI0[contexts, action], cost, pi0=PI0[contexts])
    rows, _ = _rows(arrays, 3, reg_on_known=False)
    network = build_network(NetworkSpec("linear", ContextSpec("float32", (3,)), 3)).double()
    objective = objective_of(risk, reg, lam, Knobs(**{"nu": 0.0, **knobs}), exact=exact)
    optimizer = torch.optim.LBFGS(
        network.parameters(), max_iter=500, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        log_policy = torch.log_softmax(network(rows.context), dim=1)
        log_pi = log_policy.gather(1, rows.action[:, None]).squeeze(1)
        p, pi0 = torch.tensor(PI0[contexts, action]), torch.tensor(PI0[contexts])
        any_batch = AnyBatch(log_pi, p, rows.action_weight[0].double(), log_policy=log_policy, pi0=pi0)
        known_batch = KnownBatch(log_pi, p, torch.tensor(cost)) if known else None
        loss = _total(objective, known_batch, any_batch)
        torch.autograd.backward(loss)
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
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


# --- methods ---


def test_methods_are_different_combinations_with_different_titles() -> None:
    assert len({(m.risk, m.reg, m.reg_rows) for m in METHODS.values()}) == len(METHODS)
    assert len({m.title for m in METHODS.values()}) == len(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_method_name_inverts_the_table(name: str) -> None:
    method = METHODS[name]
    assert method_name(method.risk, method.reg, method.reg_rows) == name
    deep = method.risk_of(True)
    assert method_name(deep, method.reg, method.reg_rows, deep=True) == name
    assert {method.risk, deep} <= set(RISKS.names)
    assert method.reg in REGULARISERS.names
    assert method.reg_rows in ("all", "known")


def test_combinations_without_a_name_are_spelled_out() -> None:
    assert method_name("none", "wce", "known") == "none+wce-known"
    assert method_name("tips", "lpr", "all") == "tips+lpr"  # b-crm fits its prior to known rows
    assert method_name("tips", "none", "known") == "tips"  # without a regulariser its rows mean nothing


def test_every_regulariser_has_a_default_weight() -> None:
    assert set(DEFAULT_LAM) == set(REGULARISERS.names)
    assert DEFAULT_METHOD in METHODS
