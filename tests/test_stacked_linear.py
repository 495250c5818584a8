"""Linear policies side by side: the gradient that is written out is the one that autograd finds."""

import pytest
import torch

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.models.network import build_network
from s2bl_cli.training.learners.stacked_linear import _MANY_ACTIONS, StackedLinear

GROUPS, POLICIES, BATCH, FEATURES = 2, 3, 5, 4


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("actions", [3, _MANY_ACTIONS - 1, _MANY_ACTIONS])
def test_logged_log_probabilities_and_their_gradient(actions, dtype):
    """Few and many actions are laid out differently. Beside it: log_policy, which autograd goes through."""
    generator = torch.Generator().manual_seed(0)
    network = build_network(NetworkSpec("linear", ContextSpec(dtype, (FEATURES,)), actions, (), 1))
    network.shift.copy_(torch.tensor([3.0, 0.0, -1.0, 10.0]))
    network.scale.copy_(torch.tensor([0.5, 1.0, 2.0, 0.1]))
    learner = StackedLinear(network, GROUPS, POLICIES)
    for parameter in learner.parameters:
        parameter.data.normal_(generator=generator)
    context = torch.randint(0, 20, (9, FEATURES), generator=generator).to(getattr(torch, dtype))
    kept = context.clone()
    index = torch.randint(0, 9, (GROUPS, BATCH), generator=generator)
    action = torch.randint(0, actions, (GROUPS, BATCH), generator=generator)
    of_rows = torch.randn(GROUPS, POLICIES, BATCH, generator=generator)

    chosen = action[:, None, :, None].expand(-1, POLICIES, -1, 1)
    plain = learner.log_policy(context, index).gather(3, chosen).squeeze(3)
    wanted = torch.autograd.grad(plain, learner.parameters, of_rows)
    log_pi = learner.log_pi(context, index, action)
    torch.testing.assert_close(log_pi, plain)
    learner.backward((log_pi * of_rows).sum(-1))
    found = tuple(parameter.grad for parameter in learner.parameters)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    learner.backward((learner.log_pi(context, index, action) * of_rows).sum(-1))  # gradients add up
    torch.testing.assert_close(learner.parameters[0].grad, 2 * wanted[0], rtol=1e-4, atol=1e-4)
    assert torch.equal(context, kept)


def test_a_batch_overwritten_before_its_gradient_is_an_error_not_a_wrong_gradient():
    network = build_network(NetworkSpec("linear", ContextSpec("uint8", (FEATURES,)), 3, (), 1))
    learner = StackedLinear(network, 1, 1)
    context, index = torch.zeros(9, FEATURES, dtype=torch.uint8), torch.zeros(1, BATCH, dtype=torch.int64)
    first = learner.log_pi(context, index, index)
    learner.log_pi(context, index + 1, index)
    with pytest.raises(RuntimeError, match="the loss is not made of the newest log π"):
        learner.backward(first.sum(-1))
