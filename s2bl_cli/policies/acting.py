"""Converts logits to the probabilities with which a policy acts (`contract/acts.py`)."""

import torch
from torch import Tensor

from s2bl_cli.contract.acts import ARGMAX, SOFTMAX, Act


def action_probabilities(logits: Tensor, act: Act, dim: int = -1) -> Tensor:
    """π(·|x) along the dimension of the actions. Log-probabilities are valid logits too.

    Limits: a temperature of 1 is the softmax; a temperature near 0 is the argmax if no two logits are equal; ε = 0 is
    the argmax, ε = 1 is uniform.
    """
    if act.is_plain:
        return torch.softmax(logits, dim)
    if act.kind == SOFTMAX:
        # Subtract first: a large logit divided by a small temperature would overflow.
        return torch.softmax((logits - logits.amax(dim, keepdim=True)) / act.amount, dim)
    greedy = torch.zeros_like(logits).scatter_(dim, logits.argmax(dim, keepdim=True), 1.0)
    if act.kind == ARGMAX:
        return greedy
    return greedy.mul_(1 - act.amount).add_(act.amount / logits.shape[dim])
