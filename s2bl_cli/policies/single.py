"""One policy of any model in training: a torch network with autograd, in fp32 or bf16."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.errors import RunError, one_line
from s2bl_cli.policies.network import PolicyNetwork, build_network, on_device
from s2bl_cli.policies.trainable import NOTHING_TO_GO_BACK_FROM, Inputs


class SinglePolicy:
    """G = C = 1."""

    def __init__(self, network: PolicyNetwork, *, bf16: bool = False, compiled: bool = False) -> None:
        self.shape = 1, 1
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
        with torch.autocast(context.device.type, torch.bfloat16, enabled=self._bf16):
            logits: Tensor = self._forward(context.index_select(0, inputs[0]))
        return logits.to(self.parameters[0].dtype)

    def training(self, on: bool) -> None:
        self._network.train(on)

    def state(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self._network.state_dict().items()}

    def policy_tensors(self, state: dict[str, Tensor], group: int, policy: int) -> Tensors:
        return {name: value.cpu().numpy().copy() for name, value in state.items()}


def is_bf16(precision: str, spec: NetworkSpec, batch: int, device: torch.device) -> bool:
    """`batch`: rows of a step."""
    if spec.model == "linear":
        return False
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    if precision == "bf16":
        _try_bf16(spec, batch, device)
    return precision == "bf16"


def _try_bf16(spec: NetworkSpec, batch: int, device: torch.device) -> None:
    """A step on nothing: a machine may say that it has bf16 and fail at the first product of some size."""
    policy = SinglePolicy(on_device(build_network(spec), device), bf16=True)
    context = torch.zeros(1, *spec.context.shape, dtype=getattr(torch, spec.context.dtype), device=device)
    rows = torch.zeros(1, 1, batch, dtype=torch.int64, device=device)
    try:
        policy.backward(torch.ones_like(policy.log_pi(context, policy.inputs(rows, rows)[0])))
    except RuntimeError as error:
        raise RunError(
            f"--precision bf16: this machine cannot train a {spec.model} so ({one_line(str(error), 80)}); "
            f"use --precision fp32"
        ) from error
