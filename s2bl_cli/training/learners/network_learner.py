"""One policy of any model in training: a network of torch's."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.models.network import PolicyNetwork


class NetworkLearner:
    """G = C = 1."""

    def __init__(self, network: PolicyNetwork, *, bf16: bool, compiled: bool) -> None:
        self._network = network
        self._forward = torch.compile(network) if compiled else network
        self._bf16 = bf16
        self.parameters: list[Tensor] = list(network.parameters())

    def log_pi(self, context: Tensor, index: Tensor, action: Tensor) -> Tensor:
        return -cross_entropy(self._logits(context, index), action[0], reduction="none")[None, None]

    def backward(self, loss: Tensor) -> None:
        torch.autograd.backward(loss, torch.ones_like(loss))

    def log_policy(self, context: Tensor, index: Tensor) -> Tensor:
        return torch.log_softmax(self._logits(context, index), dim=1)[None, None]

    def _logits(self, context: Tensor, index: Tensor) -> Tensor:
        with self._precision(context.device):
            logits: Tensor = self._forward(context.index_select(0, index[0]))
        return logits.to(self.parameters[0].dtype)

    def _precision(self, device: torch.device) -> AbstractContextManager[None]:
        return torch.autocast(device.type, torch.bfloat16) if self._bf16 else nullcontext()

    def distance(self, prior: Sequence[Tensor]) -> Tensor:
        apart = [(own - other).square().sum() for own, other in zip(self.parameters, prior, strict=True)]
        return torch.stack(apart).sum()[None, None]

    def prior_of(self, group: int) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.parameters]

    def training(self, on: bool) -> None:
        self._network.train(on)

    def state(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self._network.state_dict().items()}

    def policy_tensors(self, state: dict[str, Tensor], group: int, place: int) -> Tensors:
        return {name: value.cpu().numpy().copy() for name, value in state.items()}
