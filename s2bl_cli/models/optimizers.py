"""The optimizers by name: parameters, learning rate and weight decay in, something that takes steps out."""

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor

from s2bl_cli.models.adam import Adam, State
from s2bl_cli.models.sgd import Sgd


class Optimizer(Protocol):
    """`lr` may be set before any step."""

    lr: float

    def zero_grad(self) -> None: ...
    def step(self) -> None: ...
    def state(self) -> State: ...
    def load_state(self, state: State) -> None: ...


def adam(parameters: Iterable[Tensor], lr: float, weight_decay: float) -> Optimizer:
    return Adam(parameters, lr, weight_decay)


def adamw(parameters: Iterable[Tensor], lr: float, weight_decay: float) -> Optimizer:
    return Adam(parameters, lr, weight_decay, decoupled=True)


def sgd(parameters: Iterable[Tensor], lr: float, weight_decay: float) -> Optimizer:
    return Sgd(parameters, lr, weight_decay)
