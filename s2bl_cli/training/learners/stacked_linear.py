"""Linear policies side by side: each step is one wide matrix product for all policies of a group.

The policies of a group see the same rows, so their weights stand beside one another: (features, C·actions). What a
policy learns is what it would learn alone, to float rounding. The gradient of log π is written out, since for a
linear policy it is one product: no tensor is made beyond the batch's logits and their gradient.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.models.network import PolicyNetwork

# Up to so many columns it is cheaper to scale the weights than the contexts of every batch.
_FEW_COLUMNS = 64

_WEIGHT, _BIAS = "body.1.weight", "body.1.bias"


class StackedLinear:
    """G groups of C linear policies, all from the same start."""

    def __init__(self, start: PolicyNetwork, groups: int, policies: int) -> None:
        tensors = start.state_dict()
        weight, bias = tensors[_WEIGHT], tensors[_BIAS]  # (actions, features), (actions,)
        self._actions, self._policies = weight.shape[0], policies
        self._shift, self._scale = tensors["shift"], tensors["scale"]
        self._offset = -(self._shift * self._scale)
        self._weight = weight.T.repeat(groups, 1, policies).requires_grad_()  # (G, features, C·actions)
        self._bias = bias.repeat(groups, 1, policies).requires_grad_()  # (G, 1, C·actions)
        self.parameters = [self._weight, self._bias]

    def log_pi(self, context: Tensor, index: Tensor, action: Tensor) -> Tensor:
        logged: Tensor = _LoggedLogPi.apply(*self._affine(context, index), action, self._policies)
        return logged

    def log_policy(self, context: Tensor, index: Tensor) -> Tensor:
        x, weight, bias = self._affine(context, index)
        logits = torch.baddbmm(bias, x, weight).view(*x.shape[:2], self._policies, self._actions)
        return torch.log_softmax(logits, dim=-1).transpose(1, 2)

    def _affine(self, context: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Contexts (G, batch, features), weights and biases whose product are the logits."""
        x = context.index_select(0, index.flatten()).flatten(1).to(self._weight.dtype)
        # Only where contexts are whole numbers up to 255: of large and close ones, the product would lose digits.
        if context.dtype == torch.uint8 and self._weight.shape[2] <= _FEW_COLUMNS:
            weight = self._weight * self._scale[:, None]
            bias = self._bias + (self._offset @ self._weight).unsqueeze(1)
            return x.view(*index.shape, -1), weight, bias
        x = x.sub_(self._shift).mul_(self._scale) if x is not context else (x - self._shift) * self._scale
        return x.view(*index.shape, -1), self._weight, self._bias

    def distance(self, prior: Sequence[Tensor]) -> Tensor:
        weight, bias = prior  # (G, features, actions), (G, 1, actions)
        apart = [
            own.view(*own.shape[:2], self._policies, self._actions) - other.unsqueeze(2)
            for own, other in ((self._weight, weight), (self._bias, bias))
        ]  # (G, features, C, actions), (G, 1, C, actions)
        total: Tensor = apart[0].square().sum((1, 3)) + apart[1].square().sum((1, 3))
        return total

    def prior_of(self, group: int) -> list[Tensor]:
        return [value.detach()[group : group + 1, :, : self._actions].clone() for value in self.parameters]

    def training(self, on: bool) -> None:
        """No part of it behaves differently."""

    def state(self) -> dict[str, Tensor]:
        return {"weight": self._weight.detach(), "bias": self._bias.detach()}

    def policy_tensors(self, state: dict[str, Tensor], group: int, place: int) -> Tensors:
        own = slice(place * self._actions, (place + 1) * self._actions)
        tensors = {
            "shift": self._shift,
            "scale": self._scale,
            _WEIGHT: state["weight"][group, :, own].T,
            _BIAS: state["bias"][group, 0, own],
        }
        return {name: value.cpu().numpy().copy() for name, value in tensors.items()}


class _LoggedLogPi(torch.autograd.Function):
    """log softmax(x·W + b) of the logged actions. d log π(a)/d logits = 1[a] − π."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, action: Tensor, policies: int) -> Tensor:
        logits = torch.baddbmm(bias, x, weight)  # (G, batch, C·actions)
        log_policy = torch.log_softmax(logits.view(*x.shape[:2], policies, -1), dim=-1)  # (G, batch, C, actions)
        chosen = action[:, :, None, None].expand(-1, -1, policies, 1)
        ctx.save_for_backward(x, log_policy, chosen)
        return log_policy.gather(-1, chosen).squeeze(-1).transpose(1, 2)  # (G, C, batch)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, log_policy, chosen = ctx.saved_tensors
        of_row = gradients[0].transpose(1, 2).unsqueeze(-1)  # (G, batch, C, 1)
        of_logits = log_policy.exp().mul_(-of_row).scatter_add_(-1, chosen, of_row).flatten(2)  # (G, batch, C·actions)
        return None, torch.bmm(x.transpose(1, 2), of_logits), of_logits.sum(1, keepdim=True), None, None
