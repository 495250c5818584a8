"""Our Adam takes the same steps as torch's."""

import pytest
import torch
from torch import nn

from s2bl_cli.models.adam import Adam


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("decoupled", [True, False])
def test_steps_equal_torchs_own(fused, weight_decay, decoupled):
    """Taken in one operation or by the formula."""
    torch.manual_seed(0)
    start = [torch.randn(3, 4), torch.randn(4)]
    ours, theirs = ([nn.Parameter(value.clone()) for value in start] for _ in range(2))
    our_adam = Adam(ours, 0.03, weight_decay, decoupled=decoupled, fused=fused)
    assert (our_adam._fused is not None) == fused
    torchs = torch.optim.AdamW if decoupled else torch.optim.Adam
    their_adam = torchs(theirs, lr=0.03, weight_decay=weight_decay)
    for step in range(50):
        gradients = [torch.randn_like(value) * 10 ** (step % 5 - 3) for value in start]
        for parameters, adam in ((ours, our_adam), (theirs, their_adam)):
            adam.zero_grad()
            assert all(parameter.grad is None for parameter in parameters)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            adam.step()
        for mine, reference in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, reference, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("fused", [True, False])
def test_a_parameter_without_a_gradient_stays(fused):
    still, moved = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    moved.grad = torch.ones(2)
    Adam([still, moved], lr=0.1, fused=fused).step()
    assert still.tolist() == [1, 1]
    torch.testing.assert_close(moved.detach(), torch.full((2,), 0.9))
