"""Policies in training: those side by side against torch's own networks and their gradients."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from learning_fixtures import CPU
from torch import Tensor

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.models.network import PolicyNetwork, build_network
from s2bl_cli.training.learners.dense_learner import DenseLearner
from s2bl_cli.training.learners.learner import Learner
from s2bl_cli.training.learners.network_learner import NetworkLearner

FEATURES, ROWS, GROUPS = 5, 30, 2


def _network(dtype: str, actions: int, hidden: tuple[int, ...] = (), seed: int = 0) -> PolicyNetwork:
    """A policy with parameters that are not zero, and a standardisation."""
    torch.manual_seed(seed)
    model = "mlp" if hidden else "linear"
    network = build_network(NetworkSpec(model, ContextSpec(dtype, (FEATURES,)), actions, hidden))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter))
        network.shift.copy_(torch.randn(FEATURES) + (100 if dtype == "uint8" else 0))
        network.scale.copy_((torch.rand(FEATURES) + 0.5) / (60 if dtype == "uint8" else 1))
    return network


def _contexts(dtype: str) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(0, 256, (ROWS, FEATURES), dtype=torch.uint8) if dtype == "uint8" else torch.randn(ROWS, 5)


def _perturbed(learner: DenseLearner) -> DenseLearner:
    """Every policy its own parameters."""
    torch.manual_seed(2)
    for parameter in learner.parameters:
        parameter.add_(torch.randn_like(parameter))
    return learner


def _alone(learner: DenseLearner, spec: NetworkSpec, group: int, place: int, precision: torch.dtype) -> PolicyNetwork:
    network = build_network(spec).to(precision)
    tensors = learner.policy_tensors(learner.state(), group, place)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    return network


def _as_learner_has_them(learner: DenseLearner, gradients: list[Tensor | None]) -> dict[str, Tensor]:
    """The gradients by the names of the state: its tensors are views of the parameters."""
    kept = [parameter.clone() for parameter in learner.parameters]
    for parameter, gradient in zip(learner.parameters, gradients, strict=True):
        assert gradient is not None
        parameter.copy_(gradient)
    named = {name: value.clone() for name, value in learner.state().items()}
    for parameter, value in zip(learner.parameters, kept, strict=True):
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


@pytest.mark.parametrize("way", ["log_pi", "log_policy"])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("dtype", "policies", "actions", "hidden"), CASES)
def test_policies_side_by_side_are_the_plain_networks(
    dtype: str, policies: int, actions: int, hidden: tuple[int, ...], precision: torch.dtype, way: str
) -> None:
    """Log-probabilities and the gradients that autograd finds, each group on its own rows and from its own start."""
    starts = [_network(dtype, actions, hidden, seed).to(precision) for seed in range(GROUPS)]
    learner = _perturbed(DenseLearner(starts, policies))
    generator = torch.Generator().manual_seed(3)
    index = torch.randint(0, ROWS, (GROUPS, 7), generator=generator)
    action = torch.randint(0, actions, (GROUPS, 7), generator=generator)
    shape = (GROUPS, policies, 7) if way == "log_pi" else (GROUPS, policies, 7, actions)
    slopes = torch.randn(shape, generator=generator, dtype=precision)

    x = _contexts(dtype).to(precision) if dtype == "float32" else _contexts(dtype)
    if way == "log_pi":
        found = learner.log_pi(x, learner.batches(index[None], action[None])[0]).clone()
        learner.backward(slopes)
    else:
        found = learner.log_policy(x, index).clone()
        learner.backward_policy(slopes)
    assert found.shape == shape
    gradients = _as_learner_has_them(learner, [parameter.grad for parameter in learner.parameters])

    spec = NetworkSpec("mlp" if hidden else "linear", ContextSpec(dtype, (FEATURES,)), actions, hidden)
    rtol, atol = (1e-4, 1e-4) if precision == torch.float32 else (1e-9, 1e-11)
    for g in range(GROUPS):
        for c in range(policies):
            alone = _alone(learner, spec, g, c, precision)
            expected = torch.log_softmax(alone(x[index[g]]), dim=1)
            if way == "log_pi":
                expected = expected.gather(1, action[g, :, None]).squeeze(1)
            torch.testing.assert_close(found[g, c], expected, rtol=rtol, atol=atol)
            (expected * slopes[g, c]).sum().backward()
            own = learner.policy_tensors(gradients, g, c)
            for name, parameter in alone.named_parameters():
                torch.testing.assert_close(torch.from_numpy(own[name]), parameter.grad, rtol=rtol, atol=atol)


@pytest.mark.parametrize("hidden", [(), (6,)])
def test_no_gradient_of_a_batch_that_is_gone(hidden: tuple[int, ...]) -> None:
    """A second one of the same batch would be of contexts that may have been overwritten."""
    for learner in (
        DenseLearner([_network("uint8", 3, hidden)], 1),
        NetworkLearner(_network("uint8", 3, hidden), bf16=False, compiled=False),
    ):
        batch = learner.batches(*torch.zeros(2, 1, 1, 4, dtype=torch.int64))[0]
        slopes = torch.ones_like(learner.log_pi(_contexts("uint8"), batch))
        learner.backward(slopes)
        with pytest.raises(RuntimeError, match="there is no log π to go back from"):
            learner.backward(slopes)


def test_large_and_close_float_contexts_keep_their_digits() -> None:
    """Features near 1e6 that differ by 1: standardised first, they are whole numbers again."""
    network = _network("float32", 3)
    network.shift.fill_(1e6)
    network.scale.fill_(1.0)
    context = 1e6 + torch.arange(4 * FEATURES).view(4, FEATURES).float() % 7
    learner = DenseLearner([network], 1)
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
        learner = DenseLearner([_network(dtype, 30)], 3)
        index = torch.arange(ROWS)[None]
        first = learner.log_policy(context, index)
        assert torch.equal(context, before)
        assert torch.equal(first, learner.log_policy(context, index))


LEARNERS: dict[str, Callable[[PolicyNetwork], Learner]] = {
    "dense": lambda network: DenseLearner([network], 1),
    "network": lambda network: NetworkLearner(network, bf16=False, compiled=False),
}


@pytest.mark.parametrize("learner_of", LEARNERS.values(), ids=LEARNERS)
@pytest.mark.parametrize("hidden", [(), (4,)])
def test_distance_by_hand(learner_of: Callable[[PolicyNetwork], Learner], hidden: tuple[int, ...]) -> None:
    """A policy d away from the prior in each of n parameters is n·d² away, and its slope in each is 2·d."""
    network = _network("float32", 3, hidden)
    count = sum(parameter.numel() for parameter in network.parameters())
    learner = learner_of(network)
    prior = learner.prior_of(0)
    with torch.no_grad():
        for parameter in learner.parameters:
            parameter.add_(0.5)
    assert learner.distance(prior).tolist() == [[pytest.approx(0.25 * count)]]
    for times in (1, 2):  # gradients add up
        learner.backward_distance(prior, torch.tensor([[3.0]]))
        for parameter in learner.parameters:
            torch.testing.assert_close(parameter.grad, torch.full_like(parameter, times * 3 * 2 * 0.5))


def test_distance_of_policies_side_by_side() -> None:
    """Policies 0 and 1 of group 1 are 0.5 and 2 away from their group's prior; those of group 0 are at theirs."""
    learner = DenseLearner([_network("float32", 3, (4,), seed) for seed in range(2)], 2)
    prior = [torch.cat(values) for values in zip(learner.prior_of(0), learner.prior_of(1), strict=True)]
    count = sum(value.numel() for value in learner.prior_of(0))
    for value in learner.parameters:
        own = value.view(2, 2, -1)
        own[1, 0] += 0.5
        own[1, 1] -= 2
    assert learner.distance(prior).tolist() == [[0, 0], [pytest.approx(0.25 * count), pytest.approx(4 * count)]]
    learner.backward_distance(prior, torch.tensor([[1.0, 1.0], [1.0, 10.0]]))
    for value in learner.parameters:
        assert value.grad is not None
        of_policies = value.grad.view(4, -1)
        wanted = torch.tensor([[0.0], [0.0], [1.0], [-40.0]])
        torch.testing.assert_close(of_policies, wanted.expand_as(of_policies), rtol=1e-5, atol=1e-5)


def test_policy_tensors_are_copies() -> None:
    """A best epoch that goes on being trained would be none."""
    learner = DenseLearner([_network("float32", 3)], 2)
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
    learner = DenseLearner([network], 1)
    context = torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(0))
    index, action = torch.arange(rows)[None], (torch.arange(rows) * 617)[None]
    batch = learner.batches(index[None], action[None])[0]
    before = learner.log_pi(context, batch)
    torch.testing.assert_close(before, torch.full((1, 1, rows), -np.log(actions)).float())
    learner.backward(torch.ones_like(before))
    with torch.no_grad():
        for parameter in learner.parameters:
            assert parameter.grad is not None
            parameter.add_(parameter.grad)
    assert (learner.log_pi(context, batch) > before).all()


def test_learner_computes_where_its_network_is() -> None:
    learner = DenseLearner([_network("float32", 3)], 1)
    assert {parameter.device for parameter in learner.parameters} == {CPU}
