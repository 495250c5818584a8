"""A single policy in training, with any model: a torch network with autograd, in fp32 or bf16."""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.errors import RunError, one_line
from s2bl_cli.policies.network import PolicyNetwork, build_network, on_device
from s2bl_cli.policies.trainable import Backward


class SinglePolicy:
    """G = C = 1."""

    def __init__(self, network: PolicyNetwork, *, bf16: bool = False, compiled: bool = False) -> None:
        self.shape = 1, 1
        self._network = network
        self._forward = torch.compile(network) if compiled else network
        self._bf16 = bf16
        self.parameters: list[Tensor] = list(network.parameters())

    def forward(self, context: Tensor, index: Tensor, action: Tensor, *, all_actions: bool) -> tuple[Tensor, Backward]:
        with torch.autocast(context.device.type, torch.bfloat16, enabled=self._bf16):
            logits = self._forward(context.index_select(0, index))
        logits = logits.to(self.parameters[0].dtype)
        log_pi = (
            torch.log_softmax(logits, dim=1)
            if all_actions
            else -cross_entropy(logits, action.flatten(), reduction="none")
        )
        log_pi = log_pi[None, None]
        return log_pi.detach(), partial(torch.autograd.backward, log_pi)

    def training(self, on: bool) -> None:
        self._network.train(on)

    def state(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self._network.state_dict().items()}

    def policy_tensors(self, state: dict[str, Tensor], group: int, policy: int) -> Tensors:
        return {name: value.cpu().numpy().copy() for name, value in state.items()}


def is_bf16(precision: str, spec: NetworkSpec, batch: int, device: torch.device) -> bool:
    """`batch`: number of rows per step."""
    if spec.model == "linear":
        return False
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    if precision == "bf16":
        _try_bf16(spec, batch, device)
    return precision == "bf16"


def _try_bf16(spec: NetworkSpec, batch: int, device: torch.device) -> None:
    """Try a step on empty data: a machine may claim to support bf16 and fail at the first product of a certain size."""
    policy = SinglePolicy(on_device(build_network(spec), device), bf16=True)
    context = torch.zeros(1, *spec.context.shape, dtype=getattr(torch, spec.context.dtype), device=device)
    rows = torch.zeros(batch, dtype=torch.int64, device=device)
    try:
        log_pi, backward = policy.forward(context, rows, rows[None, None, None], all_actions=False)
        backward(torch.ones_like(log_pi))
    except RuntimeError as error:
        raise RunError(
            f"--precision bf16: this machine cannot train a {spec.model} so ({one_line(str(error), 80)}); "
            f"use --precision fp32"
        ) from error
