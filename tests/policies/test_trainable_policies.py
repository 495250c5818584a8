"""Policies in training, stacked or single, against torch's own networks and their gradients."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from learning_fixtures import CPU, default_device_elsewhere
from torch import Tensor

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.policies.network import PolicyNetwork, build_network, parameter_count
from s2bl_cli.policies.single import SinglePolicy
from s2bl_cli.policies.stacked import STACKABLE, StackedPolicies
from s2bl_cli.policies.trainable import Backward, TrainablePolicies, backward_distance, distance

FEATURES, ROWS, GROUPS, BATCH = 5, 30, 2, 7


def _spec(dtype: str, actions: int, hidden: tuple[int, ...] = ()) -> NetworkSpec:
    return NetworkSpec("mlp" if hidden else "linear", ContextSpec(dtype, (FEATURES,)), actions, hidden)


def _network(dtype: str, actions: int, hidden: tuple[int, ...] = (), seed: int = 0) -> PolicyNetwork:
    """A policy with parameters that are not zero, and a standardisation."""
    torch.manual_seed(seed)
    network = build_network(_spec(dtype, actions, hidden))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter))
        network.shift.copy_(torch.randn(FEATURES) + (100 if dtype == "uint8" else 0))
        network.scale.copy_((torch.rand(FEATURES) + 0.5) / (60 if dtype == "uint8" else 1))
    return network


def _contexts(dtype: str) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(0, 256, (ROWS, FEATURES), dtype=torch.uint8) if dtype == "uint8" else torch.randn(ROWS, 5)


def _forward(
    policies: TrainablePolicies, context: Tensor, index: Tensor, action: Tensor, *, all_actions: bool
) -> tuple[Tensor, Backward]:
    """`index` and `action`: (G, rows)."""
    return policies.forward(context, index.flatten(), action[:, None, None], all_actions=all_actions)


def _log_pi(policies: TrainablePolicies, context: Tensor, index: Tensor, action: Tensor | None = None) -> Tensor:
    logged = torch.zeros_like(index) if action is None else action
    return _forward(policies, context, index, logged, all_actions=False)[0]


def _log_policy(policies: TrainablePolicies, context: Tensor, index: Tensor) -> Tensor:
    return _forward(policies, context, index, torch.zeros_like(index), all_actions=True)[0]


def _perturbed(stacked: StackedPolicies) -> StackedPolicies:
    """Every policy its own parameters."""
    torch.manual_seed(2)
    for parameter in stacked.parameters:
        parameter.add_(torch.randn_like(parameter))
    return stacked


def _alone(
    stacked: StackedPolicies, spec: NetworkSpec, group: int, place: int, precision: torch.dtype
) -> PolicyNetwork:
    network = build_network(spec).to(precision)
    tensors = stacked.policy_tensors(stacked.state(), group, place)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    return network


def _named_gradients(stacked: StackedPolicies) -> dict[str, Tensor]:
    """The gradients by the names of the state: its tensors are views of the parameters."""
    kept = [parameter.clone() for parameter in stacked.parameters]
    for parameter in stacked.parameters:
        assert parameter.grad is not None
        parameter.copy_(parameter.grad)
    named = {name: value.clone() for name, value in stacked.state().items()}
    for parameter, value in zip(stacked.parameters, kept, strict=True):
        parameter.copy_(value)
    return named


# From 64 actions on, a linear policy's softmax is laid out the other way.
CASES = [
    pytest.param("float32", 1, 3, (), id="float"),
    pytest.param("float32", 4, 3, (), id="float, several"),
    pytest.param("uint8", 4, 3, (), id="uint8"),
    pytest.param("uint8", 2, 63, (), id="uint8, some actions"),
    pytest.param("uint8", 2, 64, (), id="uint8, many actions"),
    pytest.param("float32", 1, 3, (6,), id="one hidden layer"),
    pytest.param("uint8", 3, 70, (6, 4), id="two hidden layers, many actions"),
]


@pytest.mark.parametrize("all_actions", [False, True])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("dtype", "policies", "actions", "hidden"), CASES)
def test_stacked_policies_are_the_plain_networks(
    dtype: str, policies: int, actions: int, hidden: tuple[int, ...], precision: torch.dtype, all_actions: bool
) -> None:
    """Log-probabilities and the gradients that autograd finds, each group on its own rows and from its own start."""
    starts = [_network(dtype, actions, hidden, seed).to(precision) for seed in range(GROUPS)]
    stacked = _perturbed(StackedPolicies(starts, policies))
    generator = torch.Generator().manual_seed(3)
    index = torch.randint(0, ROWS, (GROUPS, BATCH), generator=generator)
    action = torch.randint(0, actions, (GROUPS, BATCH), generator=generator)
    shape = (GROUPS, policies, BATCH, actions) if all_actions else (GROUPS, policies, BATCH)
    slope = torch.randn(shape, generator=generator, dtype=precision)

    x = _contexts(dtype).to(precision) if dtype == "float32" else _contexts(dtype)
    log_pi, backward = _forward(stacked, x, index, action, all_actions=all_actions)
    found = log_pi.clone()
    backward(slope)
    assert found.shape == shape
    gradients = _named_gradients(stacked)

    rtol, atol = (1e-4, 1e-4) if precision == torch.float32 else (1e-9, 1e-11)
    for g in range(GROUPS):
        for c in range(policies):
            alone = _alone(stacked, _spec(dtype, actions, hidden), g, c, precision)
            expected = torch.log_softmax(alone(x[index[g]]), dim=1)
            if not all_actions:
                expected = expected.gather(1, action[g, :, None]).squeeze(1)
            torch.testing.assert_close(found[g, c], expected, rtol=rtol, atol=atol)
            (expected * slope[g, c]).sum().backward()
            own = stacked.policy_tensors(gradients, g, c)
            for name, parameter in alone.named_parameters():
                torch.testing.assert_close(torch.from_numpy(own[name]), parameter.grad, rtol=rtol, atol=atol)


@pytest.mark.parametrize("all_actions", [False, True])
@pytest.mark.parametrize("hidden", [(), (6,)])
def test_single_policy_is_the_plain_network(hidden: tuple[int, ...], all_actions: bool) -> None:
    network, reference = (_network("uint8", 3, hidden).double() for _ in range(2))
    single = SinglePolicy(network)
    index, action = torch.arange(BATCH), torch.arange(BATCH) % 3
    found, backward = _forward(single, _contexts("uint8"), index[None], action[None], all_actions=all_actions)
    expected = torch.log_softmax(reference(_contexts("uint8")[index]), dim=1)
    if not all_actions:
        expected = expected.gather(1, action[:, None]).squeeze(1)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected[None, None].detach())
    slope = torch.randn(found.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    backward(slope)
    expected.backward(slope[0, 0])
    for own, other in zip(single.parameters, reference.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)


POLICIES: dict[str, Callable[[PolicyNetwork], TrainablePolicies]] = {
    "stacked": lambda network: StackedPolicies([network], 1),
    "single": SinglePolicy,
}


@pytest.mark.parametrize("policies_of", POLICIES.values(), ids=POLICIES)
def test_batches_may_differ_in_size(policies_of: Callable[[PolicyNetwork], TrainablePolicies]) -> None:
    """The stacked policies' contexts are always in the same memory."""
    policies, context = policies_of(_network("uint8", 3)), _contexts("uint8")
    whole = _log_policy(policies, context, torch.arange(8)[None]).clone()
    for rows in ([0, 1], [2], [3, 4, 5, 6, 7]):
        part = _log_policy(policies, context, torch.tensor([rows]))
        torch.testing.assert_close(part, whole[:, :, rows])


def test_large_and_close_float_contexts_keep_their_digits() -> None:
    """Features near 1e6 that differ by 1: the shift is taken off first, and they are small whole numbers again. Scaled
    first, they would be near 3e5, where float32 has steps of 0.03."""
    network, exact = _network("float32", 3), _network("float32", 3).double()
    for one in (network, exact):
        one.shift.fill_(1e6)
        one.scale.fill_(0.3)
    context = 1e6 + torch.arange(4 * FEATURES).view(4, FEATURES).float() % 7
    stacked = StackedPolicies([network], 1)
    expected = torch.log_softmax(exact(context.double()), dim=1)
    found = _log_policy(stacked, context, torch.arange(4)[None])
    torch.testing.assert_close(found[0, 0].double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policies_of", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_contexts_are_not_written_to(policies_of: Callable[[PolicyNetwork], TrainablePolicies], dtype: str) -> None:
    """They are standardised in place: in a copy, or the second step would see them standardised twice."""
    context = _contexts(dtype)
    before = context.clone()
    policies = policies_of(_network(dtype, 30))
    index = torch.arange(ROWS)[None]
    first = _log_policy(policies, context, index).clone()
    assert torch.equal(context, before)
    assert torch.equal(first, _log_policy(policies, context, index))


@pytest.mark.parametrize("policies_of", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("hidden", [(), (4,)])
def test_distance_by_hand(policies_of: Callable[[PolicyNetwork], TrainablePolicies], hidden: tuple[int, ...]) -> None:
    """A policy d away from the prior in each of n parameters is n·d² away, and its slope in each is 2·d."""
    network = _network("float32", 3, hidden)
    count = sum(parameter.numel() for parameter in network.parameters())
    policies = policies_of(network)
    prior = [parameter.detach().clone() for parameter in policies.parameters]
    with torch.no_grad():
        for parameter in policies.parameters:
            parameter.add_(0.5)
    assert distance(policies, prior).tolist() == [[pytest.approx(0.25 * count)]]
    for times in (1, 2):  # gradients add up
        backward_distance(policies, prior, torch.tensor([[3.0]]))
        for parameter in policies.parameters:
            torch.testing.assert_close(parameter.grad, torch.full_like(parameter, times * 3 * 2 * 0.5))


@pytest.mark.parametrize("policies_of", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("hidden", [(), (4,)])
def test_gradient_of_the_distance_adds_to_that_of_the_rows(
    policies_of: Callable[[PolicyNetwork], TrainablePolicies], hidden: tuple[int, ...]
) -> None:
    policies = policies_of(_network("float32", 3, hidden))
    prior = [torch.zeros_like(parameter) for parameter in policies.parameters]
    index = torch.arange(4)[None]
    log_pi, backward = _forward(policies, _contexts("float32"), index, torch.zeros_like(index), all_actions=False)
    backward(torch.ones_like(log_pi))
    of_rows = [torch.zeros(0) if one.grad is None else one.grad.clone() for one in policies.parameters]
    backward_distance(policies, prior, torch.tensor([[0.5]]))
    for parameter, gradient in zip(policies.parameters, of_rows, strict=True):
        torch.testing.assert_close(parameter.grad, gradient + parameter.detach())


def test_distance_of_stacked_policies() -> None:
    """Policies 0 and 1 of group 1 are 0.5 and 2 away from their group's prior; those of group 0 are at theirs."""
    starts = [_network("float32", 3, (4,), seed) for seed in range(2)]
    stacked, prior = StackedPolicies(starts, 2), StackedPolicies(starts, 1).parameters
    count = parameter_count(_spec("float32", 3, (4,)))
    for value in stacked.parameters:
        own = value.view(2, 2, -1)
        own[1, 0] += 0.5
        own[1, 1] -= 2
    assert distance(stacked, prior).tolist() == [[0, 0], [pytest.approx(0.25 * count), pytest.approx(4 * count)]]
    backward_distance(stacked, prior, torch.tensor([[1.0, 1.0], [1.0, 10.0]]))
    for value in stacked.parameters:
        assert value.grad is not None
        of_policies = value.grad.view(4, -1)
        expected = torch.tensor([[0.0], [0.0], [1.0], [-40.0]])
        torch.testing.assert_close(of_policies, expected.expand_as(of_policies), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policies_of", POLICIES.values(), ids=POLICIES)
def test_state_is_live_and_policy_tensors_are_copies(
    policies_of: Callable[[PolicyNetwork], TrainablePolicies],
) -> None:
    """A checkpoint is loaded into the state; a best epoch that goes on being trained would be none."""
    network = _network("float32", 3, (4,))
    names = set(network.state_dict())
    policies = policies_of(network)
    state, kept = policies.state(), policies.policy_tensors(policies.state(), 0, 0)
    assert set(kept) == names
    before = {name: value.copy() for name, value in kept.items()}
    with torch.no_grad():
        for value in state.values():
            value.add_(1)
    assert all(np.array_equal(kept[name], before[name]) for name in kept)
    after = policies.policy_tensors(policies.state(), 0, 0)
    for name in set(kept) - {"shift", "scale"}:
        assert after[name] == pytest.approx(before[name] + 1)


def test_policy_tensors_are_those_of_the_place() -> None:
    stacked = StackedPolicies([_network("float32", 3, (4,), seed) for seed in range(2)], 2)
    for number, value in enumerate(stacked.parameters):
        value.view(4, -1).copy_(torch.arange(4.0)[:, None] + 10 * number)
    for g, c in np.ndindex(2, 2):
        tensors = stacked.policy_tensors(stacked.state(), g, c)
        assert (tensors["body.1.weight"] == 2 * g + c).all()
        assert (tensors["body.1.bias"] == 2 * g + c).all()
        assert (tensors["body.3.weight"] == 2 * g + c + 10).all()
        assert (tensors["body.3.bias"] == 2 * g + c + 20).all()


def test_ten_thousand_actions() -> None:
    """A step makes the batch's logits and their gradient, and learns."""
    actions, rows = 10_000, 16
    stacked = StackedPolicies([build_network(_spec("float32", actions))], 1)
    context = torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(0))
    index, action = torch.arange(rows)[None], (torch.arange(rows) * 617)[None]
    before, backward = _forward(stacked, context, index, action, all_actions=False)
    torch.testing.assert_close(before, torch.full((1, 1, rows), -np.log(actions)).float())
    backward(torch.ones_like(before))
    for parameter in stacked.parameters:
        assert parameter.grad is not None
        parameter.add_(parameter.grad)
    assert (_log_pi(stacked, context, index, action) > before).all()


@pytest.mark.parametrize("all_actions", [False, True])
@pytest.mark.parametrize("policies_of", POLICIES.values(), ids=POLICIES)
def test_policies_compute_where_their_network_is(
    policies_of: Callable[[PolicyNetwork], TrainablePolicies], all_actions: bool
) -> None:
    policies, context = policies_of(_network("uint8", 3, (4,))), _contexts("uint8")
    index = torch.zeros(1, 4, dtype=torch.int64)
    prior, slope = [torch.zeros_like(parameter) for parameter in policies.parameters], torch.ones(1, 1)
    with default_device_elsewhere():
        log_pi, backward = _forward(policies, context, index, torch.zeros_like(index), all_actions=all_actions)
        backward(torch.ones_like(log_pi))
        distance(policies, prior)
        backward_distance(policies, prior, slope)
    for parameter in policies.parameters:
        assert parameter.grad is not None
        assert (parameter.device, parameter.grad.device) == (CPU, CPU)


def test_training_switches_a_single_network() -> None:
    """Batch norm and dropout behave differently in prediction."""
    network = _network("float32", 3)
    single = SinglePolicy(network)
    single.training(False)
    assert not network.training
    single.training(True)
    assert network.training


def test_stackable_models_are_linear_layers_with_relu_between_them() -> None:
    """Others would be trained as if they were."""
    for name in STACKABLE:
        body = build_network(NetworkSpec(name, ContextSpec("float32", (FEATURES,)), 3, (6, 4) if name == "mlp" else ()))
        kinds = [type(layer).__name__ for layer in body.body.children()]
        assert kinds == ["Flatten", "Linear", *["ReLU", "Linear"] * (len(kinds) // 2 - 1)]


def test_parameters_are_counted() -> None:
    """Five features, hidden layers of 6 and 4, three actions: 5·6 + 6 + 6·4 + 4 + 4·3 + 3 = 79."""
    assert parameter_count(_spec("float32", 3)) == 5 * 3 + 3
    assert parameter_count(_spec("float32", 3, (6, 4))) == 79
