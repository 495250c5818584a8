"""A policy's network: standardisation of the contexts, then a registered model. Built from a spec, saved as arrays."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.contract.tensor_files import Layout, Tensors, layout_of
from s2bl_cli.errors import ContractError, RunError, one_line
from s2bl_cli.policies.contexts import standardisation
from s2bl_cli.registry import MODELS

_MAX_PARAMETERS = 1 << 31


class PolicyNetwork(nn.Module):
    """Maps contexts in the file's dtype to logits. The standardisation is part of the network and saved with it."""

    shift: Tensor  # (features,)
    scale: Tensor  # (features,)

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(spec.context.features))
        self.register_buffer("scale", torch.ones(spec.context.features))
        self.body: nn.Module = MODELS.load(spec.model)(spec)

    def forward(self, context: Tensor) -> Tensor:
        flat = context.flatten(1).to(self.shift.dtype)  # (batch, features)
        # In place: allocating a tensor for every operation costs more than the arithmetic.
        logits: Tensor = self.body((flat - self.shift).mul_(self.scale).reshape(context.shape))
        return logits  # (batch, actions)

    def standardise_by(self, context: npt.NDArray[np.generic]) -> None:
        """Compute shift and scale from these contexts (the train rows)."""
        self.standardise_with(*standardisation(context))

    def standardise_with(self, shift: npt.NDArray[np.float32], scale: npt.NDArray[np.float32]) -> None:
        self.shift.copy_(torch.from_numpy(shift))
        self.scale.copy_(torch.from_numpy(scale))


def build_network(spec: NetworkSpec) -> PolicyNetwork:
    """A new network, initialised from torch's global seed."""
    parameters = parameter_count(spec)
    if parameters > _MAX_PARAMETERS:
        raise RunError(f"a {spec.model} of {parameters:,} parameters is more than 2³¹; use a smaller one")
    return PolicyNetwork(spec)


def parameter_count(spec: NetworkSpec) -> int:
    return sum(parameter.numel() for parameter in _meta_network(spec).parameters())


def on_device(network: PolicyNetwork, device: torch.device) -> PolicyNetwork:
    """Move the network to the device; on a GPU, use the fastest memory layout for convolutions.

    (Not on a CPU: torch 2.15 corrupts memory in the backward pass of some convolutions in that layout.)
    """
    network.to(device)
    return network.to(memory_format=torch.channels_last) if device.type == "cuda" else network


def network_tensors(network: PolicyNetwork) -> Tensors:
    """Parameters and buffers as arrays, for a policy file."""
    return {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}


def policy_layout(spec: NetworkSpec) -> Layout:
    """Dtypes and shapes of the tensors in a policy file."""
    return {
        name: (str(value.dtype).removeprefix("torch."), tuple(value.shape))
        for name, value in _meta_network(spec).state_dict().items()
    }


def _meta_network(spec: NetworkSpec) -> PolicyNetwork:
    """Shapes without memory, so that the sizes claimed by a file are never allocated unchecked."""
    with torch.device("meta"):
        return PolicyNetwork(spec)


def network_from(spec: NetworkSpec, tensors: Tensors, subject: str) -> PolicyNetwork:
    """The network in a policy file, with the shape and dtype of every tensor checked."""
    if spec.model not in MODELS.names:
        raise ContractError(
            f"{subject}: its model is {one_line(spec.model, 40)!r}, but this s2bl knows {', '.join(MODELS.names)}"
        )
    expected, given = policy_layout(spec), layout_of(tensors)
    faults = [f"no tensor {name}" for name in expected if name not in given]
    faults += [f"a tensor {one_line(name, 40)} too many" for name in given if name not in expected]
    faults += [
        f"{name} must be {dtype} of shape {shape}, found {given[name][0]} {given[name][1]}"
        for name, (dtype, shape) in expected.items()
        if name in given and given[name] != (dtype, shape)
    ]
    if faults:
        raise ContractError(f"{subject}: {'; '.join(faults)}; train the policy again")
    network = _meta_network(spec)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, assign=True)
    return network
