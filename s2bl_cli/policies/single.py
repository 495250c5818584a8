"""One policy of any model in training: a torch network with autograd."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.policies.network import PolicyNetwork
from s2bl_cli.policies.trainable import NOTHING_TO_GO_BACK_FROM, Inputs, add_gradient


class SinglePolicy:
    """G = C = 1."""

    def __init__(self, network: PolicyNetwork, *, bf16: bool = False, compiled: bool = False) -> None:
        self._network = network
        self._forward = torch.compile(network) if compiled else network
        self._bf16 = bf16
        self.parameters: list[Tensor] = list(network.parameters())
        self._latest: Tensor | None = None  # the latest output, with autograd's graph

    def inputs(self, index: Tensor, action: Tensor) -> list[Inputs]:
        return list(zip(index[:, 0].unbind(), action[:, 0].unbind(), strict=True))

    def log_pi(self, context: Tensor, inputs: Inputs) -> Tensor:
        self._latest = -cross_entropy(self._logits(context, inputs), inputs[1], reduction="none")[None, None]
        return self._latest.detach()

    def log_policy(self, context: Tensor, inputs: Inputs) -> Tensor:
        self._latest = torch.log_softmax(self._logits(context, inputs), dim=1)[None, None]
        return self._latest.detach()

    def backward(self, slope: Tensor) -> None:
        if self._latest is None:
            raise RuntimeError(NOTHING_TO_GO_BACK_FROM)
        torch.autograd.backward(self._latest, slope)
        self._latest = None

    def _logits(self, context: Tensor, inputs: Inputs) -> Tensor:
        with self._precision(context.device):
            logits: Tensor = self._forward(context.index_select(0, inputs[0]))
        return logits.to(self.parameters[0].dtype)

    def _precision(self, device: torch.device) -> AbstractContextManager[None]:
        return torch.autocast(device.type, torch.bfloat16) if self._bf16 else nullcontext()

    @torch.no_grad()
    def distance(self, prior: Sequence[Tensor]) -> Tensor:
        squares = [(value - other).square().sum() for value, other in zip(self.parameters, prior, strict=True)]
        return torch.stack(squares).sum()[None, None]

    @torch.no_grad()
    def backward_distance(self, prior: Sequence[Tensor], slope: Tensor) -> None:
        for value, other in zip(self.parameters, prior, strict=True):
            add_gradient(value, 2 * slope[0, 0] * (value - other))

    def training(self, on: bool) -> None:
        self._network.train(on)

    def state(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self._network.state_dict().items()}

    def policy_tensors(self, state: dict[str, Tensor], group: int, policy: int) -> Tensors:
        return {name: value.cpu().numpy().copy() for name, value in state.items()}
