"""What the loop asks of policies in training. There are G groups of C policies each; a network is 1 × 1."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from s2bl_cli.contract.tensor_files import Tensors

Batch = tuple[Tensor, Tensor]  # rows and actions, laid out as the learner takes them


class Learner(Protocol):
    """Policies that take their steps together. A step: `log_pi` or `log_policy`, then the slopes back through it."""

    parameters: list[Tensor]

    def batches(self, index: Tensor, action: Tensor) -> list[Batch]:
        """What `log_pi` needs of each step's rows and their actions: (steps, G, batch), for all steps at once."""
        ...

    def log_pi(self, context: Tensor, batch: Batch) -> Tensor:
        """log π(aᵢ|xᵢ) of a batch of the contexts: (G, C, batch)."""
        ...

    def backward(self, slopes: Tensor) -> None:
        """Give the parameters their gradients, from the losses' slopes in the newest `log_pi`: (G, C, batch)."""
        ...

    def log_policy(self, context: Tensor, index: Tensor) -> Tensor:
        """log π(·|xᵢ): (G, C, batch, actions)."""
        ...

    def backward_policy(self, slopes: Tensor) -> None:
        """As `backward`, from the slopes in the newest `log_policy`: (G, C, batch, actions)."""
        ...

    def distance(self, prior: Sequence[Tensor]) -> Tensor:
        """‖θ − θ₀‖² of each policy, θ₀ laid out as one policy of each group is: (G, C)."""
        ...

    def backward_distance(self, prior: Sequence[Tensor], slopes: Tensor) -> None:
        """Add to the gradients, from the slopes in the distance: (G, C)."""
        ...

    def prior_of(self, group: int) -> list[Tensor]:
        """The parameters of a group's first policy, as `distance` takes them."""
        ...

    def training(self, on: bool) -> None:
        """Learn from here on, or be looked at."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All tensors that training changes, live."""
        ...

    def policy_tensors(self, state: dict[str, Tensor], group: int, place: int) -> Tensors:
        """One policy of such a state, as a policy file holds it."""
        ...


def add_gradient(parameter: Tensor, gradient: Tensor) -> None:
    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
