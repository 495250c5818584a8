"""Optimizers, created from parameters and weight decay.

`torch.optim` has the same optimizers, but creating one imports torch's compiler, which takes two seconds before the
first step of every command. A test compares the two.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import Tensor

State = dict[str, Tensor]


class Optimizer(Protocol):
    """Gradients are in the parameters' `grad`; a parameter without one is not changed."""

    def step(self, lr: float) -> None:
        """Take a step, then clear the gradients."""

    def state(self) -> State:
        """The live state that a step depends on, except the parameters: checkpoints are copied into it."""


class Sgd:
    """Stochastic gradient descent: θ ← θ − lr·(gradient + decay·θ)."""

    def __init__(self, parameters: Iterable[Tensor], weight_decay: float = 0.0) -> None:
        self._parameters = list(parameters)
        self._weight_decay = weight_decay

    @torch.no_grad()
    def step(self, lr: float) -> None:
        for parameter in self._parameters:
            if parameter.grad is None:
                continue
            if self._weight_decay:
                parameter.mul_(1 - lr * self._weight_decay)
            parameter.sub_(parameter.grad, alpha=lr)
            parameter.grad = None

    def state(self) -> State:
        return {}


class Adam:
    """θ ← θ − lr·m̂/(√v̂ + ε), with m and v the running means of the gradient and of its square (Kingma & Ba 2015).

    Weight decay adds decay·θ to the gradient. Decoupled weight decay (AdamW, Loshchilov & Hutter 2019) subtracts
    lr·decay·θ from the parameters instead. The whole step is a single torch operation, which passes over the memory
    once.
    """

    def __init__(self, parameters: Iterable[Tensor], weight_decay: float = 0.0, *, decoupled: bool = False) -> None:
        self._parameters = list(parameters)
        self._values = [parameter.detach() for parameter in self._parameters]  # the same memory, without autograd
        self._means = [torch.zeros_like(value) for value in self._values]
        self._squares = [torch.zeros_like(value) for value in self._values]
        self._weight_decay = weight_decay
        self._operation: Any = torch._fused_adamw_ if decoupled else torch._fused_adam_
        self._steps = torch.zeros((), device=self._parameters[0].device)

    def step(self, lr: float) -> None:
        self._steps += 1
        moved = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        self._operation(
            [self._values[i] for i in moved],
            [self._parameters[i].grad for i in moved],
            [self._means[i] for i in moved],
            [self._squares[i] for i in moved],
            [],
            [self._steps] * len(moved),
            lr=lr,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self._weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
        for parameter in self._parameters:
            parameter.grad = None

    def state(self) -> State:
        means = {f"mean.{i}": value for i, value in enumerate(self._means)}
        squares = {f"square.{i}": value for i, value in enumerate(self._squares)}
        return {**means, **squares, "steps": self._steps}


def adamw(parameters: Iterable[Tensor], weight_decay: float) -> Adam:
    return Adam(parameters, weight_decay, decoupled=True)
