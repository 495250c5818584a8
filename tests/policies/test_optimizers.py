"""Our optimizers take the same steps as torch's own."""

from typing import Any

import pytest
import torch
from torch import nn

from s2bl_cli.registry import OPTIMIZERS

THEIRS: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def _pair(name: str, start: list[torch.Tensor], lr: float, weight_decay: float) -> tuple[Any, ...]:
    ours, theirs = ([nn.Parameter(value.clone()) for value in start] for _ in range(2))
    return (
        ours,
        theirs,
        OPTIMIZERS.load(name)(ours, weight_decay),
        THEIRS[name](theirs, lr=lr, weight_decay=weight_decay),
    )


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("name", OPTIMIZERS.names)
def test_steps_equal_torchs_own(name: str, weight_decay: float) -> None:
    """With learning rates that change from step to step, as a schedule has it."""
    torch.manual_seed(0)
    start = [torch.randn(3, 4), torch.randn(4)]
    ours, theirs, our_steps, their_steps = _pair(name, start, 0.03, weight_decay)
    for step in range(50):
        gradients = [torch.randn_like(value) * 10 ** (step % 5 - 3) for value in start]
        lr = their_steps.param_groups[0]["lr"] = 0.03 / (1 + step % 3)
        for parameters in (ours, theirs):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
        our_steps.step(lr)
        their_steps.step()
        assert all(parameter.grad is None for parameter in ours)  # used up
        for mine, reference in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS.names)
def test_weight_decay_draws_towards_zero(name: str) -> None:
    """With no gradient of its own, a parameter shrinks; without decay it stays."""
    for weight_decay in (0.0, 0.5):
        parameter = nn.Parameter(torch.tensor([2.0, -2.0]))
        optimizer = OPTIMIZERS.load(name)([parameter], weight_decay)
        parameter.grad = torch.zeros(2)
        optimizer.step(0.1)
        assert (parameter.abs() < 2).all() == (weight_decay > 0)
        assert (parameter.sign() == torch.tensor([1.0, -1.0])).all()


@pytest.mark.parametrize("name", OPTIMIZERS.names)
def test_state_goes_on_where_it_was(name: str) -> None:
    """An optimizer into whose state another's is copied takes the same steps, to the last bit."""
    torch.manual_seed(0)
    one = nn.Parameter(torch.randn(5))
    first = OPTIMIZERS.load(name)([one], 0.01)
    for _ in range(3):
        one.grad = torch.randn(5)
        first.step(0.1)
    other = nn.Parameter(one.detach().clone())
    second = OPTIMIZERS.load(name)([other], 0.01)
    for key, value in second.state().items():
        value.copy_(first.state()[key])
    for _ in range(3):
        one.grad = torch.randn(5)
        other.grad = one.grad.clone()
        first.step(0.1)
        second.step(0.1)
    assert torch.equal(one, other)


@pytest.mark.parametrize("name", OPTIMIZERS.names)
def test_a_parameter_without_a_gradient_stays(name: str) -> None:
    """Whatever the weight decay."""
    still, moved = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    moved.grad = torch.ones(2)
    OPTIMIZERS.load(name)([still, moved], 0.0).step(0.1)
    assert still.tolist() == [1, 1]
    torch.testing.assert_close(moved.detach(), torch.full((2,), 0.9))
    moved.grad = torch.ones(2)
    OPTIMIZERS.load(name)([still, moved], 0.5).step(0.1)
    assert still.tolist() == [1, 1]


@pytest.mark.parametrize("name", OPTIMIZERS.names)
def test_each_step_has_its_own_learning_rate(name: str) -> None:
    """The first steps of both are a learning rate long, for a gradient of 1."""
    for lr in (0.1, 0.001):
        parameter = nn.Parameter(torch.zeros(1))
        optimizer = OPTIMIZERS.load(name)([parameter], 0.0)
        parameter.grad = torch.ones(1)
        optimizer.step(lr)
        assert parameter.item() == pytest.approx(-lr, rel=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS.names)
def test_plain_tensors_take_steps_too(name: str) -> None:
    """Those of stacked policies are no nn.Parameters and have no autograd."""
    value = torch.ones(2)
    value.grad = torch.ones(2)
    OPTIMIZERS.load(name)([value], 0.0).step(0.1)
    torch.testing.assert_close(value, torch.full((2,), 0.9))
