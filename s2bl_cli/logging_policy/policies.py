"""Logging policies: a fitted network, or a policy that needs no fitting. All return π₀(·|x) in float32.

Rows are passed in order, in batches. The distribution of a row does not depend on the size of the batches.
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

_ROWS_PER_PIECE = 512


class LoggingPolicy(Protocol):
    """A distribution over actions for each context."""

    def distribution(self, context: Contexts) -> Floats:
        """Return (rows, actions), float32. Actions are drawn from exactly these numbers."""
        ...


class FittedPolicy:
    """softmax(±h(x)/temperature) of a network h. `adverse` negates the logits, so that wrong actions are preferred."""

    def __init__(self, network: PolicyNetwork, device: torch.device, *, temperature: float, adverse: bool) -> None:
        self._network = network.eval()
        self._device = device
        self._factor = (-1.0 if adverse else 1.0) / temperature
        # On a CPU each piece is computed by one thread, and several pieces in parallel. Splitting a sum among threads
        # would change its last bits, and the log must not depend on --threads.
        self._workers = torch.get_num_threads() if device.type == "cpu" else 1

    def distribution(self, context: Contexts) -> Floats:
        pieces = [context[start : start + _ROWS_PER_PIECE] for start in range(0, len(context), _ROWS_PER_PIECE)]
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
    """The same probability for every action."""

    def __init__(self, actions: int) -> None:
        self._actions = actions

    def distribution(self, context: Contexts) -> Floats:
        return np.full((len(context), self._actions), 1 / self._actions, dtype=np.float32)


class RandomPolicy:
    """A new distribution for each row, independent of its context: softmax of standard normal noise divided by τ."""

    def __init__(self, actions: int, seed: int, temperature: float) -> None:
        self._actions = actions
        self._temperature = temperature
        self._noise = np.random.Generator(np.random.Philox(key=[seed, 1]))  # independent of the stream of draws

    def distribution(self, context: Contexts) -> Floats:
        return softmax(self._noise.standard_normal((len(context), self._actions)) / self._temperature)


class ExploringPolicy:
    """(1 − ε)·π₀ + ε/k: a policy mixed with uniform exploration."""

    def __init__(self, policy: LoggingPolicy, share: float) -> None:
        self._policy = policy
        self._share = np.float32(share)

    def distribution(self, context: Contexts) -> Floats:
        pi0 = self._policy.distribution(context)
        mixed: Floats = (1 - self._share) * pi0 + self._share / np.float32(pi0.shape[1])
        return mixed


def softmax(logits: npt.NDArray[np.float64]) -> Floats:
    """Computed in float64 and rounded to float32 at the end."""
    if not np.isfinite(logits).all():
        raise RunError(
            "the logits of the logging policy must be finite: fit it with a smaller --lr, or use another policy"
        )
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    pi0: Floats = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    return pi0
