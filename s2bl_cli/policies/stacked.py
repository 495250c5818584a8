"""Linear and fully connected policies trained together: each step is a few wide matrix products for all of them.

The policies of a group see the same rows, so the weights of their first layers are stacked: (C·units, features). Each
policy learns what it would learn alone, up to float rounding. The gradient is written by hand, because it is one
product per layer and direction: no tensor is allocated beyond the units' outputs, and autograd is not needed.

The bias of the first layer is the weight of an additional feature that is always 1, which saves two operations per
step.

Outputs are stored as (units, batch): W·xᵀ and δ·x. In MKL, a product whose result has ten columns takes several times
as long as its transpose.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.policies.network import PolicyNetwork
from s2bl_cli.policies.trainable import Backward

# With at least this many actions, a softmax is faster along contiguous memory than across it.
_MANY_ACTIONS = 64

# Rows start at multiples of this many floats: a cache line.
_LINE = 16

STACKABLE = ("linear", "mlp")  # the models that are linear layers with ReLU between them


class StackedPolicies:
    """G groups of C policies; those of a group have the same initial weights."""

    def __init__(self, starts: Sequence[PolicyNetwork], policies: int) -> None:
        """`starts`: one network per group."""
        states = [start.state_dict() for start in starts]
        self.shape = (len(starts), policies)
        self._groups, self._policies = self.shape
        self._shift, self._scale = states[0]["shift"], states[0]["scale"]
        self._offset = -(self._shift * self._scale)
        self._names = [name.removesuffix(".weight") for name in states[0] if name.endswith(".weight")]

        def stacked(name: str) -> Tensor:
            return torch.stack([state[name] for state in states]).repeat_interleave(policies, 0)  # (G·C, …)

        weights = [stacked(f"{name}.weight") for name in self._names]  # (G·C, units, inputs)
        biases = [stacked(f"{name}.bias").unsqueeze(-1) for name in self._names]  # (G·C, units, 1)
        first = torch.cat([weights[0], biases[0]], dim=2)
        self._first = first.view(self._groups, -1, first.shape[2])  # (G, C·units, features + 1)
        self._weights, self._biases = weights[1:], biases[1:]  # of the other layers
        self._actions = states[0][f"{self._names[-1]}.weight"].shape[0]
        self.parameters = [self._first, *self._weights, *self._biases]
        # A batch's contexts always use the same memory: allocating memory every step is slower than the arithmetic on
        # it.
        self._x = self._features = torch.empty(0, 0)  # (G, batch, features + 1), the last always 1; without the last

    def forward(self, context: Tensor, index: Tensor, action: Tensor, *, all_actions: bool) -> tuple[Tensor, Backward]:
        layers, log_policy = self._log_policy(context, index)
        if all_actions:
            return log_policy.transpose(2, 3), partial(self._backward_all, layers, log_policy)
        chosen = action.expand(-1, self._policies, 1, -1)  # (G, C, 1, rows)
        return log_policy.gather(2, chosen).squeeze(2), partial(self._backward_chosen, layers, log_policy, chosen)

    def _backward_chosen(self, layers: list[Tensor], log_policy: Tensor, chosen: Tensor, slope: Tensor) -> None:
        """d log π(a)/d logits = 1[a] − π. In place, because log π is no longer needed."""
        of_row = slope.unsqueeze(2)  # (G, C, 1, batch)
        self._backward(layers, log_policy.exp_().mul_(-of_row).scatter_add_(2, chosen, of_row))

    def _backward_all(self, layers: list[Tensor], log_policy: Tensor, slope: Tensor) -> None:
        of_actions = slope.transpose(2, 3)  # (G, C, actions, batch)
        self._backward(layers, of_actions - log_policy.exp_() * of_actions.sum(2, keepdim=True))

    def _backward(self, layers: list[Tensor], of_logits: Tensor) -> None:
        """Backpropagate through the layers, from the slopes with respect to the logits: (G, C, actions, batch)."""
        outer = zip(reversed(self._weights), reversed(self._biases), reversed(layers), strict=False)
        for weight, bias, outputs in outer:  # outputs of the layer before, ≥ 0
            of_logits = of_logits.reshape(bias.shape[0], -1, outputs.shape[2])
            weight.grad = torch.bmm(of_logits, outputs.transpose(1, 2))
            bias.grad = of_logits.sum(2, keepdim=True)
            of_logits = torch.bmm(weight.transpose(1, 2), of_logits).mul_(outputs.sign())
        self._first.grad = torch.bmm(of_logits.reshape(self._groups, self._first.shape[1], -1), layers[0])

    def _log_policy(self, context: Tensor, index: Tensor) -> tuple[list[Tensor], Tensor]:
        """The inputs of each layer: (G, batch, features + 1), then (G·C, units, batch); and log π (G, C, actions,
        batch)."""
        x = self._standardised(context, index)
        layers = [x]
        if not self._weights and self._actions >= _MANY_ACTIONS:
            logits = torch.bmm(x, self._first.transpose(1, 2))  # (G, batch, C·actions)
            along = logits.view(self._groups, -1, self._policies, self._actions)
            return layers, torch.log_softmax(along, dim=3).permute(0, 2, 3, 1)
        outputs = torch.bmm(self._first, x.transpose(1, 2))  # (G, C·units, batch)
        for weight, bias in zip(self._weights, self._biases, strict=True):
            layers.append(outputs.relu_().view(self._groups * self._policies, -1, x.shape[1]))
            outputs = torch.baddbmm(bias, weight, layers[-1])  # (G·C, units, batch)
        logits = outputs.view(self._groups, self._policies, self._actions, -1)
        return layers, torch.log_softmax(logits, dim=2)

    def _standardised(self, context: Tensor, index: Tensor) -> Tensor:
        """(G, batch, features + 1)."""
        inputs = self._first.shape[2]
        rows = context.index_select(0, index).view(self._groups, -1, inputs - 1)
        if self._features.shape != rows.shape:
            width = math.ceil(inputs / _LINE) * _LINE
            self._x = self._first.new_ones(*rows.shape[:2], width)[:, :, :inputs]
            self._features = self._x[:, :, :-1]
        x = self._features.copy_(rows)
        if rows.dtype == torch.uint8:  # one pass; for large and close numbers, the difference would lose precision
            torch.addcmul(self._offset, x, self._scale, out=x)
        else:
            x.sub_(self._shift).mul_(self._scale)
        return self._x

    def training(self, on: bool) -> None:
        """Has no effect: training and prediction are the same."""

    def state(self) -> dict[str, Tensor]:
        weights, biases = [self._first[..., :-1], *self._weights], [self._first[..., -1:], *self._biases]
        state: dict[str, Tensor] = {}
        for name, weight, bias in zip(self._names, weights, biases, strict=True):
            state |= {f"{name}.weight": weight, f"{name}.bias": bias}
        return state

    def policy_tensors(self, state: dict[str, Tensor], group: int, policy: int) -> Tensors:
        tensors = {"shift": self._shift, "scale": self._scale}
        for name, value in state.items():
            part = value.reshape(self._groups, self._policies, -1, value.shape[-1])[group, policy]  # (units, inputs)
            tensors[name] = part.squeeze(-1) if name.endswith(".bias") else part
        return {name: value.cpu().numpy().copy() for name, value in tensors.items()}
