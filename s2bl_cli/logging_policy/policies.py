"""The policies that can log: a fitted network, or one that needs no fitting. All give π₀(·|x) in float32.

Each is asked for the rows of a log in order, a batch at a time; the answer for a row does not depend on how the
rows are cut into batches.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.errors import RunError
from s2bl_cli.policies.network import PolicyNetwork

Floats = npt.NDArray[np.float32]
Contexts = npt.NDArray[np.generic]

_ROWS_AT_ONCE = 512


class LoggingPolicy(Protocol):
    """Gives each context's distribution over actions."""

    def distribution(self, context: Contexts) -> Floats:
        """(rows, actions), float32: the numbers that are stored and drawn from."""
        ...


class FittedPolicy:
    """softmax(±h(x)/flatness) of a network h. `adverse` negates the logits: it prefers what h thinks wrong."""

    def __init__(self, network: PolicyNetwork, device: torch.device, *, flatness: float, adverse: bool) -> None:
        self._network = network.eval()
        self._device = device
        self._factor = (-1.0 if adverse else 1.0) / flatness
        # On a CPU each piece is computed by one thread, several pieces at a time: how a sum is split among
        # threads changes its last bits, and the log must not depend on --threads.
        self._workers = torch.get_num_threads() if device.type == "cpu" else 1

    def distribution(self, context: Contexts) -> Floats:
        pieces = [context[start : start + _ROWS_AT_ONCE] for start in range(0, len(context), _ROWS_AT_ONCE)]
        if self._device.type != "cpu":
            return np.concatenate([self._piece(piece) for piece in pieces])
        threads_before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with ThreadPoolExecutor(self._workers) as pool:
                return np.concatenate(list(pool.map(self._piece, pieces)))
        finally:
            torch.set_num_threads(threads_before)

    @torch.no_grad()
    def _piece(self, context: Contexts) -> Floats:
        logits = self._network(torch.tensor(context, device=self._device)).cpu().double().numpy()
        return softmax(self._factor * logits)


class UniformPolicy:
    """Every action with the same probability."""

    def __init__(self, actions: int) -> None:
        self._actions = actions

    def distribution(self, context: Contexts) -> Floats:
        return np.full((len(context), self._actions), 1 / self._actions, dtype=np.float32)


class RandomPolicy:
    """A fresh random distribution for every row, softmax of standard normal noise over τ: unrelated to the context."""

    def __init__(self, actions: int, seed: int, flatness: float) -> None:
        self._actions = actions
        self._flatness = flatness
        self._noise = np.random.Generator(np.random.Philox(key=[seed, 1]))  # a stream beside that of the draws

    def distribution(self, context: Contexts) -> Floats:
        return softmax(self._noise.standard_normal((len(context), self._actions)) / self._flatness)


class ExploringPolicy:
    """(1 − ε)·π₀ + ε/k: another policy with uniform exploration mixed in."""

    def __init__(self, policy: LoggingPolicy, share: float) -> None:
        self._policy = policy
        self._share = np.float32(share)

    def distribution(self, context: Contexts) -> Floats:
        pi0 = self._policy.distribution(context)
        mixed: Floats = (1 - self._share) * pi0 + self._share / np.float32(pi0.shape[1])
        return mixed


def softmax(logits: npt.NDArray[np.float64]) -> Floats:
    """In float64, rounded once at the end."""
    if not np.isfinite(logits).all():
        raise RunError("the logging policy's logits are not numbers: fit it with a smaller --lr, or give another one")
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    pi0: Floats = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    return pi0
