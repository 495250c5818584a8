"""Adam (Kingma & Ba 2015), the steps alone.

`torch.optim.Adam` does the same, but making one imports torch's compiler: two seconds before the first step of
every command. The tests hold the two together.
"""

import math
from collections.abc import Iterable

import torch
from torch import nn


class Adam:
    """θ ← θ − lr·m̂/(√v̂ + ε), with m and v the running means of the gradient and of its square."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self._parameters = list(parameters)
        self._lr, self._betas, self._eps = lr, betas, eps
        self._steps = 0
        self._mean = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._square = [torch.zeros_like(parameter) for parameter in self._parameters]

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        self._steps += 1
        beta1, beta2 = self._betas
        step_size = self._lr / (1 - beta1**self._steps)
        root_correction = math.sqrt(1 - beta2**self._steps)
        for parameter, mean, square in zip(self._parameters, self._mean, self._square, strict=True):
            gradient = parameter.grad
            if gradient is None:
                continue
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            parameter.addcdiv_(mean, (square.sqrt() / root_correction).add_(self._eps), value=-step_size)
