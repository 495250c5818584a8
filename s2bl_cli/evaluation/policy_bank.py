"""Many policies on one batch of contexts. Linear ones are stacked into one wide product.

The standardisation of a linear policy is folded into its weights:

    W·((x − shift)·scale) + b = (W·scale)·(x − origin) + [b − W·((shift − origin)·scale)]

with one origin for all of them, so a batch is converted and shifted once, however many policies there are. (Not
origin 0: features far from 0, such as times, would lose their digits in float32.)

Probabilities lie in memory as (members, actions, rows): along the rows a processor computes many at a time, along a few
actions it cannot, and a softmax costs more than the product.
"""

from collections.abc import Iterator, Mapping

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

    def __init__(self, policies: Mapping[int, LoadedPolicy], device: torch.device) -> None:
        networks = {
            i: network_from(loaded.policy.network, loaded.policy.tensors, loaded.name) for i, loaded in policies.items()
        }
        linear = [i for i, loaded in policies.items() if loaded.policy.network.model == "linear"]
        origin = networks[linear[0]].shift.numpy() if linear else np.zeros(0, np.float32)
        maps = {i: _folded(networks[i], origin.astype(np.float64)) for i in linear}
        self._stacked = [
            i for i, (weight, bias) in maps.items() if np.isfinite(weight).all() and np.isfinite(bias).all()
        ]
        self._alone = {
            i: on_device(network, device).eval() for i, network in networks.items() if i not in self._stacked
        }
        self._origin = torch.from_numpy(origin).to(device)
        if self._stacked:
            weights, biases = zip(*(maps[i] for i in self._stacked), strict=True)
            self._weight = torch.from_numpy(np.stack(weights)).to(device)  # (members, actions, features)
            self._bias = torch.from_numpy(np.stack(biases)).to(device)  # (members, actions)

    @torch.no_grad()
    def probabilities(self, batch: Tensor) -> Iterator[tuple[int, Floats]]:
        """π(·|x) for contexts on the device: of which policy, and its (rows, actions)."""
        if self._stacked:
            x = batch.flatten(1).to(torch.float32) - self._origin  # (rows, features)
            actions = self._bias.shape[1]
            members = max(1, _NUMBERS_AT_ONCE // max(1, len(x) * actions))
            for start in range(0, len(self._stacked), members):
                chosen = slice(start, start + members)
                weight, bias = self._weight[chosen].flatten(0, 1), self._bias[chosen].flatten()
                logits = torch.addmm(bias[:, None], weight, x.T)
                yield from zip(self._stacked[chosen], _softmax(logits.view(-1, actions, len(x))), strict=True)
        for i, network in self._alone.items():
            parts = [network(part) for part in torch.split(batch, _ROWS_AT_ONCE)]
            yield i, _softmax(torch.cat(parts).T[None])[0]


def _softmax(logits: Tensor) -> Floats:
    """Of (members, actions, rows): (members, rows, actions)."""
    pi: Floats = torch.softmax(logits, dim=1).cpu().numpy()
    return pi.transpose(0, 2, 1)


def _folded(network: PolicyNetwork, origin: npt.NDArray[np.float64]) -> tuple[Floats, Floats]:
    """Weight and bias for contexts less the origin; infinite where float32 cannot hold them."""
    tensors = {name: tensor.numpy().astype(np.float64) for name, tensor in network.state_dict().items()}
    with np.errstate(over="ignore", invalid="ignore"):
        weight = tensors["body.1.weight"] * tensors["scale"]
        bias = tensors["body.1.bias"] - weight @ (tensors["shift"] - origin)
        return weight.astype(np.float32), bias.astype(np.float32)
