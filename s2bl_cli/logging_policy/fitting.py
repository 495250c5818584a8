"""Fit the logging policy to the labels.

`train` mode, the paper's: minimise the cross-entropy of softmax(τ·h), then use softmax(h). The fitted τ·h is
as sure as an ordinary classifier, so h itself is τ times flatter. `sample` mode: fit softmax(h), use softmax(h/τ).
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.errors import RunError
from s2bl_cli.logging_policy.settings import MakeLogsSettings
from s2bl_cli.models.adam import Adam
from s2bl_cli.models.network import PolicyNetwork, build_network
from s2bl_cli.models.settings import parse_hidden

_ROWS_AT_ONCE = 4096  # fixed, so that the same policy gives the same bytes whatever --batch-size says


def fit_logging_policy(
    data: LabelledData, settings: MakeLogsSettings, device: torch.device, advance: Callable[[int, str], None]
) -> PolicyNetwork:
    """A network h fitted to the train labels."""
    torch.manual_seed(settings.seed)
    hidden = parse_hidden(settings.logging_model, settings.hidden)
    network = build_network(NetworkSpec(settings.logging_model, data.context, data.classes, hidden))
    network.standardise_by(data.train.context)
    network.to(device)
    context = torch.tensor(data.train.context, device=device)
    label = torch.tensor(data.train.label, dtype=torch.int64, device=device)
    sharpness = settings.tau if settings.tau_mode == "train" else 1.0
    optimizer = Adam(network.parameters(), settings.lr)
    generator = torch.Generator(device).manual_seed(settings.seed)
    rows, size = len(label), min(settings.batch_size, len(label))
    for epoch in range(settings.epochs):
        order = torch.randperm(rows, generator=generator, device=device)
        for start in range(0, rows - size + 1, size):
            batch = order[start : start + size]
            loss = nn.functional.cross_entropy(sharpness * network(context[batch]), label[batch])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        advance(epoch + 1, f"loss {loss.item():.3f}")
    return network


@torch.no_grad()
def logging_distribution(
    network: PolicyNetwork, context: npt.NDArray[np.generic], settings: MakeLogsSettings, device: torch.device
) -> npt.NDArray[np.float32]:
    """π₀(·|x) of each context: (rows, actions), float32, the numbers that are stored."""
    flatness = settings.tau if settings.tau_mode == "sample" else 1.0
    parts = []
    for start in range(0, len(context), _ROWS_AT_ONCE):
        rows = torch.tensor(context[start : start + _ROWS_AT_ONCE], device=device)
        logits: Tensor = network(rows) / flatness
        parts.append(torch.softmax(logits.double() if device.type != "mps" else logits, dim=1).float().cpu().numpy())
    pi0: npt.NDArray[np.float32] = np.concatenate(parts)
    if not np.isfinite(pi0).all():
        raise RunError(f"the logging policy's training diverged: use a smaller --lr than {settings.lr:g}")
    return pi0
