"""One policy of any model in training: a network of torch's."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.models.network import PolicyNetwork
from s2bl_cli.training.learners.learner import Batch, add_gradient


class NetworkLearner:
    """G = C = 1."""

    def __init__(self, network: PolicyNetwork, *, bf16: bool, compiled: bool) -> None:
        self._network = network
        self._forward = torch.compile(network) if compiled else network
        self._bf16 = bf16
        self.parameters: list[Tensor] = list(network.parameters())
        self._newest: Tensor | None = None  # what it said last, and autograd's way back from it

    def batches(self, index: Tensor, action: Tensor) -> list[Batch]:
        return list(zip(index[:, 0].unbind(), action[:, 0].unbind(), strict=True))

    def log_pi(self, context: Tensor, batch: Batch) -> Tensor:
        index, action = batch
        self._newest = -cross_entropy(self._logits(context, index), action, reduction="none")[None, None]
        return self._newest.detach()

    def log_policy(self, context: Tensor, index: Tensor) -> Tensor:
        self._newest = torch.log_softmax(self._logits(context, index[0]), dim=1)[None, None]
        return self._newest.detach()

    def backward(self, slopes: Tensor) -> None:
        if self._newest is None:
            raise RuntimeError("there is no log π to go back from")
        torch.autograd.backward(self._newest, slopes)
        self._newest = None

    backward_policy = backward

    def _logits(self, context: Tensor, index: Tensor) -> Tensor:
        with self._precision(context.device):
            logits: Tensor = self._forward(context.index_select(0, index))
        return logits.to(self.parameters[0].dtype)

    def _precision(self, device: torch.device) -> AbstractContextManager[None]:
        return torch.autocast(device.type, torch.bfloat16) if self._bf16 else nullcontext()

    @torch.no_grad()
    def distance(self, prior: Sequence[Tensor]) -> Tensor:
        apart = [(own - other).square().sum() for own, other in zip(self.parameters, prior, strict=True)]
        return torch.stack(apart).sum()[None, None]

    @torch.no_grad()
    def backward_distance(self, prior: Sequence[Tensor], slopes: Tensor) -> None:
        for own, other in zip(self.parameters, prior, strict=True):
            add_gradient(own, 2 * slopes[0, 0] * (own - other))

    def prior_of(self, group: int) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.parameters]

    def training(self, on: bool) -> None:
        self._network.train(on)

    def state(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self._network.state_dict().items()}

    def policy_tensors(self, state: dict[str, Tensor], group: int, place: int) -> Tensors:
        return {name: value.cpu().numpy().copy() for name, value in state.items()}
