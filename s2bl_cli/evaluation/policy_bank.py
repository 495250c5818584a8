"""Many policies on one batch of contexts. Linear ones are stacked into one wide product.

The standardisation of a linear policy is folded into its weights:

    W·((x − shift)·scale) + b = (W·scale)·(x − origin) + [b − W·((shift − origin)·scale)]

with one origin for all of them, so a batch is converted and shifted once, however many policies there are. (Not
origin 0: features far from 0, such as times, would lose their digits in float32.)

Probabilities lie in memory as (members, actions, rows): along the rows a processor computes many at a time, along a few
actions it cannot, and a softmax costs more than the product.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.contract.policies import LoadedPolicy
from s2bl_cli.policies.network import PolicyNetwork, network_from, on_device

_NUMBERS_AT_ONCE = 1 << 20  # probabilities of a batch held at a time: about what a processor's cache holds
_ROWS_AT_ONCE = 512  # through a network: a row of a log is small, but a ResNet makes hundreds of kilobytes of it

Floats = npt.NDArray[np.float32]


class PolicyBank:
    """The networks on the device, linear ones as one matrix. All are of one number of features and actions."""

    def __init__(self, policies: Sequence[LoadedPolicy], device: torch.device) -> None:
        networks = [network_from(loaded.policy.network, loaded.policy.tensors, loaded.name) for loaded in policies]
        is_linear = [loaded.policy.network.model == "linear" for loaded in policies]
        origin = networks[is_linear.index(True)].shift.numpy() if any(is_linear) else np.zeros(0, np.float32)
        self._alone: list[tuple[int, PolicyNetwork]] = []
        folded: dict[int, tuple[Floats, Floats]] = {}
        for index, network in enumerate(networks):
            maps = _folded(network, origin.astype(np.float64)) if is_linear[index] else None
            if maps is None:
                self._alone.append((index, on_device(network, device).eval()))
            else:
                folded[index] = maps
        self._stacked = list(folded)
        self._origin = torch.from_numpy(origin).to(device)
        if folded:
            weights, biases = zip(*folded.values(), strict=True)
            self._weight = torch.from_numpy(np.stack(weights)).to(device)  # (members, actions, features)
            self._bias = torch.from_numpy(np.stack(biases)).to(device)  # (members, actions)

    @torch.no_grad()
    def probabilities(self, batch: Tensor) -> Iterator[tuple[list[int], Floats]]:
        """π(·|x) for contexts on the device: of which policies, and their (members, rows, actions), a few at a time."""
        if self._stacked:
            x = batch.flatten(1).to(torch.float32) - self._origin  # (rows, features)
            actions = self._bias.shape[1]
            members = max(1, _NUMBERS_AT_ONCE // max(1, len(x) * actions))
            for start in range(0, len(self._stacked), members):
                chosen = slice(start, start + members)
                weight, bias = self._weight[chosen].flatten(0, 1), self._bias[chosen].flatten()
                logits = torch.addmm(bias[:, None], weight, x.T)
                yield self._stacked[chosen], _softmax(logits.view(-1, actions, len(x)))
        for index, network in self._alone:
            parts = [network(part) for part in torch.split(batch, _ROWS_AT_ONCE)]
            yield [index], _softmax(torch.cat(parts).T[None])


def _softmax(logits: Tensor) -> Floats:
    """Of (members, actions, rows): (members, rows, actions)."""
    pi: Floats = torch.softmax(logits, dim=1).cpu().numpy()
    return pi.transpose(0, 2, 1)


def _folded(network: PolicyNetwork, origin: npt.NDArray[np.float64]) -> tuple[Floats, Floats] | None:
    """Weight and bias for contexts less the origin; None where float32 cannot hold them."""
    tensors = {name: tensor.numpy().astype(np.float64) for name, tensor in network.state_dict().items()}
    weight, bias = tensors["body.1.weight"], tensors["body.1.bias"]
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = weight * tensors["scale"]
        moved = bias - scaled @ (tensors["shift"] - origin)
        scaled, moved = scaled.astype(np.float32), moved.astype(np.float32)
    return (scaled, moved) if np.isfinite(scaled).all() and np.isfinite(moved).all() else None
