"""Linear policies side by side: each step is one wide matrix product for all policies of a group.

The policies of a group see the same rows, so their weights stand below one another: (C·actions, features). What a
policy learns is what it would learn alone, to float rounding. The gradient of log π is written out, since for a
linear policy it is one product: no tensor is made beyond the batch's logits, and autograd's engine sees only the
objective.

Logits are kept as (actions, batch): W·xᵀ and δ·x. A product whose result has ten columns takes four times as long in
MKL as its transpose.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.models.network import PolicyNetwork

# From so many actions on, a softmax is quicker along the memory than across it.
_MANY_ACTIONS = 64

_WEIGHT, _BIAS = "body.1.weight", "body.1.bias"


class _Step(NamedTuple):
    """What the gradient of a step needs."""

    x: Tensor  # (G, batch, features)
    log_policy: Tensor  # (G, C, actions, batch)
    chosen: Tensor  # (G, C, 1, batch) the logged actions
    logged: Tensor  # (G, C, batch) log π of them: where autograd ends


class StackedLinear:
    """G groups of C linear policies, all from the same start."""

    def __init__(self, start: PolicyNetwork, groups: int, policies: int) -> None:
        tensors = start.state_dict()
        weight, bias = tensors[_WEIGHT], tensors[_BIAS]  # (actions, features), (actions,)
        self._actions, self._policies = weight.shape[0], policies
        self._shift, self._scale = tensors["shift"], tensors["scale"]
        self._offset = -(self._shift * self._scale)
        self._weight = weight.repeat(groups, policies, 1).requires_grad_()  # (G, C·actions, features)
        self._bias = bias[:, None].repeat(groups, policies, 1).requires_grad_()  # (G, C·actions, 1)
        self.parameters = [self._weight, self._bias]
        # A batch's contexts, always in the same place: fresh memory every step is slower than the arithmetic on it.
        self._x = torch.empty(0)
        self._step: _Step | None = None

    @torch.no_grad()
    def log_pi(self, context: Tensor, index: Tensor, action: Tensor) -> Tensor:
        x = self._standardised(context, index)
        log_policy = self._logged_policy(x)  # (G, C, actions, batch)
        chosen = action[:, None, None].expand(-1, self._policies, 1, -1)
        logged = log_policy.gather(2, chosen).squeeze(2).requires_grad_()  # (G, C, batch)
        self._step = _Step(x, log_policy, chosen, logged)
        return logged

    def _logged_policy(self, x: Tensor) -> Tensor:
        groups, batch, _ = x.shape
        if self._actions < _MANY_ACTIONS:
            logits = torch.baddbmm(self._bias, self._weight, x.transpose(1, 2))  # (G, C·actions, batch)
            return torch.log_softmax(logits.view(groups, self._policies, -1, batch), dim=2)
        logits = torch.baddbmm(self._bias.transpose(1, 2), x, self._weight.transpose(1, 2))  # (G, batch, C·actions)
        return torch.log_softmax(logits.view(groups, batch, self._policies, -1), dim=3).permute(0, 2, 3, 1)

    def backward(self, loss: Tensor) -> None:
        """Autograd as far as log π; from there d log π(a)/d logits = 1[a] − π, and one product."""
        torch.autograd.backward(loss, torch.ones_like(loss))
        step, self._step = self._step, None
        if step is None:
            return
        if step.logged.grad is None:  # its contexts are overwritten: no gradient at all is better than a wrong one
            raise RuntimeError("the loss is not made of the newest log π")
        of_row = step.logged.grad.unsqueeze(2)  # (G, C, 1, batch)
        of_logits = step.log_policy.exp_().mul_(-of_row).scatter_add_(2, step.chosen, of_row).flatten(1, 2)
        gradients = torch.bmm(of_logits, step.x), of_logits.sum(2, keepdim=True)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient  # a regulariser's own

    def log_policy(self, context: Tensor, index: Tensor) -> Tensor:
        x = self._standardised(context, index)
        logits = torch.baddbmm(self._bias.transpose(1, 2), x, self._weight.transpose(1, 2))  # (G, batch, C·actions)
        return torch.log_softmax(logits.view(*index.shape, self._policies, -1), dim=-1).transpose(1, 2)

    def _standardised(self, context: Tensor, index: Tensor) -> Tensor:
        """(G, batch, features)."""
        rows = context.index_select(0, index.reshape(-1)).view(*index.shape, -1)
        if self._x.shape != rows.shape:
            self._x = torch.empty(rows.shape, dtype=self._scale.dtype, device=rows.device)
        x = self._x.copy_(rows)
        if rows.dtype == torch.uint8:  # one pass; of large and close numbers, the difference would lose digits
            return torch.addcmul(self._offset, x, self._scale, out=x)
        return x.sub_(self._shift).mul_(self._scale)

    def distance(self, prior: Sequence[Tensor]) -> Tensor:
        weight, bias = prior  # (G, actions, features), (G, actions, 1)
        apart = [
            own.unflatten(1, (self._policies, self._actions)) - other.unsqueeze(1)
            for own, other in ((self._weight, weight), (self._bias, bias))
        ]  # (G, C, actions, features), (G, C, actions, 1)
        total: Tensor = apart[0].square().sum((2, 3)) + apart[1].square().sum((2, 3))
        return total

    def prior_of(self, group: int) -> list[Tensor]:
        return [value.detach()[group : group + 1, : self._actions].clone() for value in self.parameters]

    def training(self, on: bool) -> None:
        """No part of it behaves differently."""

    def state(self) -> dict[str, Tensor]:
        return {"weight": self._weight.detach(), "bias": self._bias.detach()}

    def policy_tensors(self, state: dict[str, Tensor], group: int, place: int) -> Tensors:
        own = slice(place * self._actions, (place + 1) * self._actions)
        tensors = {
            "shift": self._shift,
            "scale": self._scale,
            _WEIGHT: state["weight"][group, own],
            _BIAS: state["bias"][group, own, 0],
        }
        return {name: value.cpu().numpy().copy() for name, value in tensors.items()}
