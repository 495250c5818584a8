"""What an optimizer is: made from parameters and weight decay, it takes steps."""

from typing import Protocol

from torch import Tensor

State = dict[str, Tensor]


class Optimizer(Protocol):
    """Gradients are in the parameters' `grad`; a parameter without one stays as it is."""

    def step(self, lr: float) -> None:
        """Take a step, and use the gradients up."""
        ...

    def state(self) -> State:
        """All that a step depends on besides the parameters."""
        ...

    def load_state(self, state: State) -> None: ...
