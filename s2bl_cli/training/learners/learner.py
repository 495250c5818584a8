"""What the loop asks of policies in training. There are G groups of C policies each; a network is 1 × 1."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from s2bl_cli.contract.tensor_files import Tensors


class Learner(Protocol):
    """Policies that take their steps together."""

    parameters: list[Tensor]

    def log_pi(self, context: Tensor, index: Tensor, action: Tensor) -> Tensor:
        """log π(aᵢ|xᵢ) of the rows `index` (G, batch) of the contexts: (G, C, batch)."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Give the parameters the gradients of losses (G, C) made of the newest `log_pi`, `log_policy`, `distance`."""
        ...

    def log_policy(self, context: Tensor, index: Tensor) -> Tensor:
        """log π(·|xᵢ): (G, C, batch, actions)."""
        ...

    def distance(self, prior: Sequence[Tensor]) -> Tensor:
        """‖θ − θ₀‖² of each policy, θ₀ laid out as one policy of each group is: (G, C)."""
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
