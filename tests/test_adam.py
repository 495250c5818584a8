"""Our Adam takes the same steps as torch's."""

import torch
from torch import nn

from s2bl_cli.models.adam import Adam


def test_steps_equal_torchs_own():
    torch.manual_seed(0)
    start = [torch.randn(3, 4), torch.randn(4)]
    ours, theirs = ([nn.Parameter(value.clone()) for value in start] for _ in range(2))
    our_adam, their_adam = Adam(ours, lr=0.03), torch.optim.Adam(theirs, lr=0.03)
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


def test_a_parameter_without_a_gradient_stays():
    still, moved = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    moved.grad = torch.ones(2)
    Adam([still, moved], lr=0.1).step()
    assert still.tolist() == [1, 1]
    torch.testing.assert_close(moved.detach(), torch.full((2,), 0.9))
