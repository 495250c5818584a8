"""Stochastic gradient descent, the steps alone (why not torch.optim's: see `adam.py`)."""

from collections.abc import Iterable

import torch
from torch import Tensor

from s2bl_cli.policies.optimizer import State


class Sgd:
    """θ ← θ − lr·(gradient + decay·θ)."""

    def __init__(self, parameters: Iterable[Tensor], weight_decay: float = 0.0) -> None:
        self._parameters = list(parameters)
        self._weight_decay = weight_decay

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Uses the gradients up."""
        for parameter in self._parameters:
            if parameter.grad is None:
                continue
            if self._weight_decay:
                parameter.mul_(1 - lr * self._weight_decay)
            parameter.sub_(parameter.grad, alpha=lr)
            parameter.grad = None

    def state(self) -> State:
        return {}

    def load_state(self, state: State) -> None:
        """Nothing to load: a step depends on the parameters alone."""
