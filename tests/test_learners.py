"""Policies in training: the stacked linear ones against torch's own network, layer and gradient."""

from typing import Any

import numpy as np
import pytest
import torch
from learning_fixtures import CPU
from torch import Tensor
from torch.nn.functional import cross_entropy

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.models.network import PolicyNetwork, build_network
from s2bl_cli.training.learners.network_learner import NetworkLearner
from s2bl_cli.training.learners.stacked_linear import StackedLinear

FEATURES, ROWS, GROUPS = 5, 30, 2


def _network(dtype: str, actions: int, seed: int = 0) -> PolicyNetwork:
    """A linear policy with parameters that are not zero, and a standardisation."""
    torch.manual_seed(seed)
    network = build_network(NetworkSpec("linear", ContextSpec(dtype, (FEATURES,)), actions))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter))
        network.shift.copy_(torch.randn(FEATURES) + (100 if dtype == "uint8" else 0))
        network.scale.copy_((torch.rand(FEATURES) + 0.5) / (60 if dtype == "uint8" else 1))
    return network


def _contexts(dtype: str) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(0, 256, (ROWS, FEATURES), dtype=torch.uint8) if dtype == "uint8" else torch.randn(ROWS, 5)


def _perturbed(learner: StackedLinear) -> StackedLinear:
    """Every policy its own parameters."""
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in learner.parameters:
            parameter.add_(torch.randn_like(parameter))
    return learner


def _alone(learner: StackedLinear, spec: NetworkSpec, group: int, place: int, precision: torch.dtype) -> PolicyNetwork:
    network = build_network(spec).to(precision)
    tensors = learner.policy_tensors(learner.state(), group, place)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    return network


# From 64 actions on, the softmax is laid out the other way.
CASES = [
    pytest.param("float32", 1, 3, id="float"),
    pytest.param("float32", 4, 3, id="float, several"),
    pytest.param("uint8", 4, 3, id="uint8"),
    pytest.param("uint8", 2, 70, id="uint8, many actions"),
]


@pytest.mark.parametrize("precision", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("dtype", "policies", "actions"), CASES)
def test_stacked_policies_are_the_plain_networks(
    dtype: str, policies: int, actions: int, precision: torch.dtype
) -> None:
    """Log-probabilities and gradients, each group on its own rows."""
    network, context = _network(dtype, actions).to(precision), _contexts(dtype)
    learner = _perturbed(StackedLinear(network, GROUPS, policies))
    generator = torch.Generator().manual_seed(3)
    index = torch.randint(0, ROWS, (GROUPS, 7), generator=generator)
    action = torch.randint(0, actions, (GROUPS, 7), generator=generator)
    slope = torch.randn(GROUPS, policies, 7, generator=generator, dtype=precision)

    x = context.to(precision) if dtype == "float32" else context
    log_pi = learner.log_pi(x, index, action)
    assert log_pi.shape == (GROUPS, policies, 7)
    learner.backward((log_pi * slope).sum(-1))
    whole = learner.log_policy(x, index)  # after the step: the contexts of a batch are kept in one place
    assert whole.shape == (GROUPS, policies, 7, actions)
    gradients = [parameter.grad for parameter in learner.parameters]
    assert all(gradient is not None for gradient in gradients)

    rtol, atol = (1e-4, 1e-5) if precision == torch.float32 else (1e-9, 1e-11)
    for g in range(GROUPS):
        for c in range(policies):
            alone = _alone(learner, NetworkSpec("linear", ContextSpec(dtype, (FEATURES,)), actions), g, c, precision)
            expected = torch.log_softmax(alone(x[index[g]]), dim=1)
            torch.testing.assert_close(whole[g, c], expected, rtol=rtol, atol=atol)
            logged = -cross_entropy(alone(x[index[g]]), action[g], reduction="none")
            torch.testing.assert_close(log_pi[g, c], logged, rtol=rtol, atol=atol)
            (logged * slope[g, c]).sum().backward()
            own = slice(c * actions, (c + 1) * actions)
            weight, bias = alone.parameters()
            torch.testing.assert_close(gradients[0][g, own], weight.grad, rtol=rtol, atol=atol)
            torch.testing.assert_close(gradients[1][g, own, 0], bias.grad, rtol=rtol, atol=atol)


def test_large_and_close_float_contexts_keep_their_digits() -> None:
    """Features near 1e6 that differ by 1: standardised first, they are whole numbers again."""
    network = _network("float32", 3)
    network.shift.fill_(1e6)
    network.scale.fill_(1.0)
    context = 1e6 + torch.arange(4 * FEATURES).view(4, FEATURES).float() % 7
    learner = StackedLinear(network, 1, 1)
    index = torch.arange(4)[None]
    exact = _network("float32", 3).double()
    exact.shift.fill_(1e6)
    exact.scale.fill_(1.0)
    expected = torch.log_softmax(exact(context.double()), dim=1)
    torch.testing.assert_close(learner.log_policy(context, index)[0, 0].double(), expected, rtol=1e-5, atol=1e-5)


def test_contexts_are_not_written_to() -> None:
    """They are standardised in place: in a copy, or the second step would see them standardised twice."""
    for dtype in ("float32", "uint8"):
        context = _contexts(dtype)
        before = context.clone()
        learner = StackedLinear(_network(dtype, 30), 1, 3)
        index = torch.arange(ROWS)[None]
        first = learner.log_policy(context, index)
        assert torch.equal(context, before)
        assert torch.equal(first, learner.log_policy(context, index))


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_distance_by_hand(model: str) -> None:
    """A policy d away from the prior in each of n parameters is n·d² away."""
    spec = NetworkSpec(model, ContextSpec("float32", (2,)), 3, (4,) * (model == "mlp"))
    torch.manual_seed(0)
    network = build_network(spec)
    count = sum(parameter.numel() for parameter in network.parameters())
    if model == "mlp":
        learner: Any = NetworkLearner(network, bf16=False, compiled=False)
        prior = learner.prior_of(0)
        with torch.no_grad():
            for parameter in learner.parameters:
                parameter.add_(0.5)
        assert learner.distance(prior).tolist() == [[pytest.approx(0.25 * count)]]
        return
    learner = StackedLinear(network, 2, 2)
    prior = [torch.cat(values) for values in zip(learner.prior_of(0), learner.prior_of(1), strict=True)]
    with torch.no_grad():
        for value in learner.parameters:  # policies 0 and 1 of group 1 are 0.5 and 2 away
            value[1, :3] += 0.5
            value[1, 3:] -= 2
    assert learner.distance(prior).tolist() == [[0, 0], [pytest.approx(0.25 * count), pytest.approx(4 * count)]]


def test_policy_tensors_are_copies() -> None:
    """A best epoch that goes on being trained would be none."""
    learner = StackedLinear(_network("float32", 3), 1, 2)
    kept = learner.policy_tensors(learner.state(), 0, 1)
    before = {name: value.copy() for name, value in kept.items()}
    with torch.no_grad():
        for parameter in learner.parameters:
            parameter.add_(1)
    assert all(np.array_equal(kept[name], before[name]) for name in kept)


def test_ten_thousand_actions() -> None:
    """A step makes the batch's logits and their gradient, and learns."""
    actions, rows = 10_000, 16
    network = build_network(NetworkSpec("linear", ContextSpec("float32", (FEATURES,)), actions))
    learner = StackedLinear(network, 1, 1)
    context = torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(0))
    index, action = torch.arange(rows)[None], (torch.arange(rows) * 617)[None]
    before = learner.log_pi(context, index, action)
    torch.testing.assert_close(before, torch.full((1, 1, rows), -np.log(actions)).float())
    learner.backward(before.sum(-1))
    with torch.no_grad():
        for parameter in learner.parameters:
            assert parameter.grad is not None
            parameter.add_(parameter.grad)
    assert (learner.log_pi(context, index, action) > before).all()


def test_learner_computes_where_its_network_is() -> None:
    learner = StackedLinear(_network("float32", 3), 1, 1)
    assert {parameter.device for parameter in learner.parameters} == {CPU}
    assert all(parameter.requires_grad for parameter in learner.parameters)
