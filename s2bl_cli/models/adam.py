"""Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), the steps alone.

`torch.optim.Adam` does the same, but making one imports torch's compiler: two seconds before the first step of
every command. The tests hold the two together.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

State = dict[str, Tensor]


class Adam:
    """θ ← θ − lr·m̂/(√v̂ + ε), with m and v the running means of the gradient and of its square.

    Weight decay adds decay·θ to the gradient; decoupled (AdamW), it takes lr·decay·θ off the parameters instead.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        weight_decay: float = 0.0,
        *,
        decoupled: bool = False,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.lr = lr
        self._parameters = list(parameters)
        self._weight_decay, self._decoupled, self._betas, self._eps = weight_decay, decoupled, betas, eps
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
        step_size = self.lr / (1 - beta1**self._steps)
        root_correction = math.sqrt(1 - beta2**self._steps)
        for parameter, mean, square in zip(self._parameters, self._mean, self._square, strict=True):
            gradient = parameter.grad
            if gradient is None:
                continue
            if self._weight_decay and self._decoupled:
                parameter.mul_(1 - self.lr * self._weight_decay)
            elif self._weight_decay:
                gradient = gradient.add(parameter, alpha=self._weight_decay)
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            # √v/√(1−β₂ᵗ) + ε, in one tensor made and two passes over it
            parameter.addcdiv_(mean, square.sqrt().div_(root_correction).add_(self._eps), value=-step_size)

    def state(self) -> State:
        """All that a step depends on besides the parameters."""
        means = {f"mean.{i}": value for i, value in enumerate(self._mean)}
        squares = {f"square.{i}": value for i, value in enumerate(self._square)}
        return {**means, **squares, "steps": torch.tensor(self._steps)}

    def load_state(self, state: State) -> None:
        self._steps = int(state["steps"])
        for i, (mean, square) in enumerate(zip(self._mean, self._square, strict=True)):
            mean.copy_(state[f"mean.{i}"])
            square.copy_(state[f"square.{i}"])
