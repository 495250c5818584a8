"""The interface of policies in training. There are G groups of C policies each; a single network is 1 × 1."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from s2bl_cli.contract.tensor_files import Tensors

Backward = Callable[[Tensor], None]  # sets the gradients, given the slopes in the output of the forward pass


class TrainablePolicies(Protocol):
    """Policies that are stepped together."""

    shape: tuple[int, int]  # G, C
    parameters: list[Tensor]  # each a tensor with the elements of the G·C policies, one after another

    def forward(self, context: Tensor, index: Tensor, action: Tensor, *, all_actions: bool) -> tuple[Tensor, Backward]:
        """log π(aᵢ|xᵢ): (G, C, rows), or log π(·|xᵢ) of all actions: (G, C, rows, actions); and its backward pass.

        `index`: rows of `context`, group after group: (G·rows,). `action`: (G, 1, 1, rows).
        Call the backward pass at most once, before the next forward pass: both reuse memory.
        """

    def training(self, on: bool) -> None:
        """Switch between training and prediction."""

    def state(self) -> dict[str, Tensor]:
        """All tensors that training changes, live."""

    def policy_tensors(self, state: dict[str, Tensor], group: int, policy: int) -> Tensors:
        """One policy of such a state, in the format of a policy file."""


def distance(policies: TrainablePolicies, prior: Sequence[Tensor]) -> Tensor:
    """‖θ − θ₀‖² of each policy, with θ₀ the parameters of one policy per group: (G, C)."""
    return torch.stack([value.square().sum(-1) for value in _differences(policies, prior)]).sum(0)


def backward_distance(policies: TrainablePolicies, prior: Sequence[Tensor], slope: Tensor) -> None:
    """Add the contribution of the distance to the gradients, given the slopes (G, C) with respect to it."""
    for parameter, difference in zip(policies.parameters, _differences(policies, prior), strict=True):
        gradient = (2 * slope.unsqueeze(-1) * difference).view_as(parameter)
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def _differences(policies: TrainablePolicies, prior: Sequence[Tensor]) -> list[Tensor]:
    """θ − θ₀ by parameter: (G, C, elements)."""
    pairs = zip(policies.parameters, prior, strict=True)
    return [
        value.detach().reshape(*policies.shape, -1) - other.detach().reshape(policies.shape[0], 1, -1)
        for value, other in pairs
    ]
