"""Slopes of risks and regularisers: by dual numbers where they are means over rows, and as autograd finds them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, Knobs, KnownBatch
from s2bl_cli.objectives.dual_numbers import Dual, NotRowByRowError
from s2bl_cli.objectives.slopes import Sloped
from s2bl_cli.registry import EXACT_FORMS, REGULARISERS, RISKS

POLICIES, BATCH, ACTIONS = 3, 6, 4
DOUBLE = torch.float64


def _tensor(*shape: int, low: float = 0.05, high: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=DOUBLE)


LOG_PI = _tensor(1, POLICIES, BATCH, seed=1).log()
P = _tensor(1, 1, BATCH, seed=2)
C = -_tensor(1, 1, BATCH, seed=3)
FEEDBACK_WEIGHT = torch.tensor([2.0, 0.0, 2.0, 0.0, 2.0, 0.0], dtype=DOUBLE)
LOG_POLICY = torch.log_softmax(_tensor(1, POLICIES, BATCH, ACTIONS, seed=4), -1)
PI0 = torch.softmax(_tensor(1, 1, BATCH, ACTIONS, seed=5), -1)

ROWS = AnyBatch(LOG_PI, P, _tensor(1, 1, BATCH, seed=6), merit=_tensor(1, 1, BATCH, seed=7))
KNOBS = Knobs(nu=torch.tensor([[[0.01], [0.2], [0.5]]], dtype=DOUBLE), translation=-0.3, smoothing=0.3)
LAM = torch.tensor([[0.5, 1.0, 4.0]], dtype=DOUBLE)


def _knobs(name: str) -> Knobs:
    return Knobs(nu=KNOBS.nu, translation=-0.3, smoothing=-0.3 if name == "lse" else 0.3)


def _check(term: Any, batch: KnownBatch | AnyBatch, knobs: Knobs, *, by_rows: bool) -> None:
    """Value and slopes against autograd on the formula itself, a factor a policy."""
    for factor in (1.0, 0.25, LAM):
        sloped = Sloped(term, knobs, factor)
        found = sloped(batch)
        assert sloped.by_rows == by_rows
        seen = {name: getattr(batch, name, None) for name in ("log_pi", "log_policy", "distance")}
        leaves = {name: value.clone().requires_grad_() for name, value in seen.items() if value is not None}
        value = term(batch._replace(**leaves), knobs)
        torch.testing.assert_close(found.terms.mean(-1), value.detach())
        (factor * value).sum().backward()
        for name, leaf in leaves.items():
            slope = getattr(found, name)
            assert (slope is None) == (leaf.grad is None)
            if slope is not None:
                torch.testing.assert_close(slope, leaf.grad)


@pytest.mark.parametrize("weight", [None, FEEDBACK_WEIGHT], ids=["known rows", "weighted rows"])
@pytest.mark.parametrize("name", RISKS.names)
def test_slopes_of_a_risk(name: str, weight: Tensor | None) -> None:
    """Only the log-sum-exponential is no mean of row-by-row terms."""
    _check(RISKS.load(name), KnownBatch(LOG_PI, P, C, weight), _knobs(name), by_rows=name != "lse")


@pytest.mark.parametrize("name", [name for name in REGULARISERS.names if name != "lpr"])
def test_slopes_of_a_regulariser(name: str) -> None:
    _check(REGULARISERS.load(name), ROWS, _knobs(name), by_rows=True)


@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_slopes_of_sharpened_weights(beta: float) -> None:
    _check(REGULARISERS.load("wce"), ROWS, Knobs(sharpen=beta, cap=0.5, sharpen_unit=0.3), by_rows=True)


@pytest.mark.parametrize("name", EXACT_FORMS.names)
def test_slopes_of_an_exact_form(name: str) -> None:
    _check(EXACT_FORMS.load(name), ROWS._replace(log_policy=LOG_POLICY, pi0=PI0), _knobs(name), by_rows=False)


def test_slope_of_the_distance() -> None:
    nothing = torch.zeros(())
    batch = AnyBatch(nothing, nothing, nothing, distance=_tensor(1, POLICIES))
    _check(REGULARISERS.load("lpr"), batch, KNOBS, by_rows=False)


def test_duals_follow_the_rules() -> None:
    """Sum, difference, product, quotient, exponential and logarithm, a number or a tensor on either side."""
    x = _tensor(5, seed=8).requires_grad_()
    k = _tensor(5, seed=9)

    def formula(x: Any) -> Any:
        w = (x * 2).exp()
        return (k - x) * w / (1 + w * (x / k)) - (k * x + w * 3 + x - w).log1p() + (2 - -x) * (w - x * 0.5) / (x + 2)

    found = formula(Dual(x.detach()))
    value = formula(x)
    value.sum().backward()
    torch.testing.assert_close(found.value, value.detach())
    torch.testing.assert_close(found.slope, x.grad)


def test_what_is_not_row_by_row_is_told() -> None:
    with pytest.raises(NotRowByRowError):
        Dual(torch.ones(3)).amax(-1)
    with pytest.raises(NotRowByRowError):
        Dual(torch.ones(2, 3)).mean(0)
    with pytest.raises(NotRowByRowError):
        _ = Dual(torch.ones(3)) == 0
    with pytest.raises(NotRowByRowError):
        bool(Dual(torch.ones(3)))
    with pytest.raises(TypeError):
        torch.log1p(Dual(torch.ones(3)))  # type: ignore[arg-type]


def test_a_risk_that_knows_nothing_of_duals_has_its_slopes_by_autograd() -> None:
    """As a new one may be written."""

    def by_torch(batch: KnownBatch, knobs: Knobs) -> Tensor:
        return batch.mean(torch.where(batch.log_pi > -1, batch.c, 0.0) * torch.exp(batch.log_pi))

    _check(by_torch, KnownBatch(LOG_PI, P, C), KNOBS, by_rows=False)

    def of_a_mean(batch: KnownBatch, knobs: Knobs) -> Tensor:
        return batch.mean(batch.log_pi.exp()) ** 2

    _check(of_a_mean, KnownBatch(LOG_PI, P, C), KNOBS, by_rows=False)
