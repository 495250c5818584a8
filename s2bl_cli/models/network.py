"""A policy's network: the contexts standardised, then a model of the registry. Built from a spec, saved as arrays."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.errors import ContractError, RunError, one_line
from s2bl_cli.registry import MODELS

_RARE_SPREAD = 0.1
_MAX_PARAMETERS = 1 << 31


class PolicyNetwork(nn.Module):
    """Contexts in the file's dtype in, logits out. The standardisation is part of it and saved with it."""

    shift: Tensor  # (features,)
    scale: Tensor  # (features,)

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(spec.context.features))
        self.register_buffer("scale", torch.ones(spec.context.features))
        self.body: nn.Module = MODELS.load(spec.model)(spec)

    def forward(self, context: Tensor) -> Tensor:
        flat = context.flatten(1).to(self.shift.dtype)  # (batch, features)
        # In place: a fresh tensor for every operation costs more than the arithmetic.
        logits: Tensor = self.body((flat - self.shift).mul_(self.scale).reshape(context.shape))
        return logits  # (batch, actions)

    def standardise_by(self, *parts: npt.NDArray[np.generic]) -> None:
        """Take shift and scale from these contexts (the train rows)."""
        self.standardise_with(*moments_of_parts(parts))

    def standardise_with(self, mean: npt.NDArray[Any], spread: npt.NDArray[Any]) -> None:
        """Take shift and scale from the features' means and deviations."""
        # A pixel that is almost always 0 has a tiny spread; dividing by it would let a few rows dominate.
        floor = _RARE_SPREAD * float(np.sqrt(np.mean(spread**2)))
        scale = 1 / np.maximum(spread, floor) if floor > 0 else np.ones_like(spread)
        scale = np.minimum(scale, np.finfo(np.float32).max)  # contexts below 1e-38 would make it infinite
        self.shift.copy_(torch.from_numpy(mean.astype(np.float32)))
        self.scale.copy_(torch.from_numpy(scale.astype(np.float32)))


def feature_moments(
    context: npt.NDArray[np.generic], rows_at_once: int = 8192
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Mean and standard deviation of each feature, in float64, a slice of rows at a time."""
    flat = context.reshape(len(context), -1)
    total = np.zeros(flat.shape[1])
    squares = np.zeros(flat.shape[1])
    origin = flat[0].astype(np.float64)  # sums of squares about a value near the mean lose no digits
    for start in range(0, len(flat), rows_at_once):
        part = flat[start : start + rows_at_once] - origin
        total += part.sum(axis=0)
        squares += np.einsum("ij,ij->j", part, part)
    mean = total / len(flat)
    return mean + origin, np.sqrt(np.maximum(squares / len(flat) - mean**2, 0))


def moments_of_parts(parts: Iterable[npt.NDArray[np.generic]]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """As `feature_moments` of all parts together, of which one at a time is looked at (Chan's update)."""
    rows, mean, squares = 0, np.zeros(()), np.zeros(())
    for part in parts:
        if len(part) == 0:
            continue
        own_mean, own_spread = feature_moments(part)
        total = rows + len(part)
        apart = own_mean - mean
        squares = squares + len(part) * own_spread**2 + apart**2 * rows * len(part) / total
        mean = mean + apart * (len(part) / total)
        rows = total
    return mean, np.sqrt(squares / rows)


def build_network(spec: NetworkSpec) -> PolicyNetwork:
    """A fresh network; its random start comes from torch's global seed."""
    with torch.device("meta"):  # shapes without memory
        parameters = sum(parameter.numel() for parameter in PolicyNetwork(spec).parameters())
    if parameters > _MAX_PARAMETERS:
        raise RunError(f"a {spec.model} of {parameters:,} parameters is more than 2³¹; use a smaller one")
    return PolicyNetwork(spec)


def on_device(network: PolicyNetwork, device: torch.device) -> PolicyNetwork:
    """The network where it is to compute; on a GPU its convolutions in the layout that computes fastest there.

    (Not on a CPU: torch 2.15 corrupts memory in the backward pass of some convolutions in that layout.)
    """
    network.to(device)
    return network.to(memory_format=torch.channels_last) if device.type == "cuda" else network


def network_tensors(network: PolicyNetwork) -> Tensors:
    """Parameters and buffers as arrays, for a policy file."""
    return {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}


def network_from(spec: NetworkSpec, tensors: Tensors, subject: str) -> PolicyNetwork:
    """The network of a policy file, every tensor's shape and dtype checked."""
    if spec.model not in MODELS.names:
        raise ContractError(
            f"{subject}: its model is {one_line(spec.model, 40)!r}, but this s2bl knows {', '.join(MODELS.names)}"
        )
    with torch.device("meta"):  # shapes without memory: what a file claims to need is not allocated on its word
        network = build_network(spec)
    expected = network.state_dict()
    faults = [f"no tensor {name}" for name in expected if name not in tensors]
    faults += [f"a tensor {one_line(name, 40)} too many" for name in tensors if name not in expected]
    for name, wanted in expected.items():
        found = tensors.get(name)
        if found is not None and (tuple(found.shape) != tuple(wanted.shape) or str(found.dtype) != _dtype_name(wanted)):
            faults.append(
                f"{name} must be {_dtype_name(wanted)} of shape {tuple(wanted.shape)}, "
                f"found {found.dtype} {found.shape}"
            )
    if faults:
        raise ContractError(f"{subject}: {'; '.join(faults)}; train the policy again")
    network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, assign=True)
    return network


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
