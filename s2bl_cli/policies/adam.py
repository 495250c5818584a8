"""Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), the steps alone.

`torch.optim.Adam` does the same, but making one imports torch's compiler: two seconds before the first step of
every command. A test compares the two. Where torch has the whole step as one operation, that is used: it goes over the
memory once instead of seven times.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from s2bl_cli.policies.optimizer import State

_FUSED_ON = ("cpu", "cuda")


class Adam:
    """θ ← θ − lr·m̂/(√v̂ + ε), with m and v the running means of the gradient and of its square.

    Weight decay adds decay·θ to the gradient; decoupled (AdamW), it takes lr·decay·θ off the parameters instead.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        weight_decay: float = 0.0,
        *,
        decoupled: bool = False,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        fused: bool = True,
    ) -> None:
        self._parameters = list(parameters)
        self._values = [parameter.detach() for parameter in self._parameters]  # the same memory, without autograd
        operation = "_fused_adamw_" if decoupled else "_fused_adam_"
        on_fused = all(parameter.device.type in _FUSED_ON for parameter in self._parameters)
        self._fused: Any = getattr(torch, operation, None) if fused and on_fused else None
        self._weight_decay, self._decoupled, self._betas, self._eps = weight_decay, decoupled, betas, eps
        self._steps = 0
        self._step_tensor = torch.zeros((), device=self._parameters[0].device) if self._parameters else torch.zeros(())
        self._mean = [torch.zeros_like(value) for value in self._values]
        self._square = [torch.zeros_like(value) for value in self._values]

    def step(self, lr: float) -> None:
        """Uses the gradients up."""
        self._steps += 1
        if self._fused is not None:
            self._step_fused(lr)
        else:
            self._step_by_formula(lr)
        for parameter in self._parameters:
            parameter.grad = None

    def _step_fused(self, lr: float) -> None:
        values, means, squares = self._values, self._mean, self._square
        gradients = [parameter.grad for parameter in self._parameters]
        if any(gradient is None for gradient in gradients):
            moved = [i for i, gradient in enumerate(gradients) if gradient is not None]
            values, means, squares = ([tensors[i] for i in moved] for tensors in (values, means, squares))
            gradients = [gradients[i] for i in moved]
        self._step_tensor.fill_(self._steps)
        self._fused(
            values,
            gradients,
            means,
            squares,
            [],
            [self._step_tensor] * len(values),
            lr=lr,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=self._weight_decay,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
        )

    def _step_by_formula(self, lr: float) -> None:
        beta1, beta2 = self._betas
        step_size = lr / (1 - beta1**self._steps)
        root_correction = math.sqrt(1 - beta2**self._steps)
        for parameter, value, mean, square in zip(
            self._parameters, self._values, self._mean, self._square, strict=True
        ):
            gradient = parameter.grad
            if gradient is None:
                continue
            if self._weight_decay and self._decoupled:
                value.mul_(1 - lr * self._weight_decay)
            elif self._weight_decay:
                gradient = gradient.add(value, alpha=self._weight_decay)
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            # √v/√(1−β₂ᵗ) + ε, in one tensor made and two passes over it
            value.addcdiv_(mean, square.sqrt().div_(root_correction).add_(self._eps), value=-step_size)

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


def adam(parameters: Iterable[Tensor], weight_decay: float) -> Adam:
    return Adam(parameters, weight_decay)


def adamw(parameters: Iterable[Tensor], weight_decay: float) -> Adam:
    return Adam(parameters, weight_decay, decoupled=True)
