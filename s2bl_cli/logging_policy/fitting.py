"""Fit the logging policy to the labels.

`train` mode, as in the paper: minimise the cross-entropy of softmax(τ·h), then draw from softmax(h). The fitted τ·h is
as confident as an ordinary classifier, so the logits h are τ times smaller.
`sample` mode: fit softmax(h), then draw from softmax(h/τ).
"""

from collections.abc import Callable

import torch
from torch import nn

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.datasets.labelled import LabelledPart
from s2bl_cli.errors import RunError
from s2bl_cli.logging_policy.settings import LoggingSettings
from s2bl_cli.policies.network import PolicyNetwork, build_network, on_device
from s2bl_cli.policies.optimizers import Adam

Advance = Callable[[int, str], None]


def fit_network(
    spec: NetworkSpec, part: LabelledPart, settings: LoggingSettings, device: torch.device, advance: Advance
) -> PolicyNetwork:
    """Fit a network h to the labels. `settings` must be resolved."""
    threads_before = torch.get_num_threads()
    if not spec.model.startswith("resnet"):
        torch.set_num_threads(1)  # more do not help small products, and the log must not depend on --threads
    try:
        return _fit(spec, part, settings, device, advance)
    finally:
        torch.set_num_threads(threads_before)


def _fit(
    spec: NetworkSpec, part: LabelledPart, settings: LoggingSettings, device: torch.device, advance: Advance
) -> PolicyNetwork:
    torch.manual_seed(settings.seed)
    network = build_network(spec)
    network.standardise_by(part.context)
    on_device(network, device).train()
    context = torch.tensor(part.context, device=device)
    label = torch.tensor(part.label, dtype=torch.int64, device=device)
    scale = settings.tau if settings.tau_mode == "train" else 1.0
    optimizer = Adam(network.parameters())
    generator = torch.Generator(device).manual_seed(settings.seed)
    rows, size = len(label), min(settings.batch_size, len(label))
    steps, epochs = rows // size, settings.epochs or 0
    for epoch in range(epochs):
        order = torch.randperm(rows, generator=generator, device=device)
        total = torch.zeros((), device=device)
        for step in range(steps):
            batch = order[step * size : (step + 1) * size]
            loss = nn.functional.cross_entropy(scale * network(context[batch]), label[batch])
            torch.autograd.backward(loss)
            optimizer.step(settings.lr)
            total += loss.detach()
            if device.type == "cpu":  # elsewhere this would be a device sync per step
                advance(epoch * steps + step + 1, f"loss {loss.item():.3f}")
        advance((epoch + 1) * steps, f"loss {total.item() / steps:.3f}")
    if not all(bool(torch.isfinite(value).all()) for value in network.state_dict().values()):
        raise RunError(f"the fit of the logging policy diverged at --lr {settings.lr:g}: use a smaller --lr")
    return network


def fitting_steps(rows: int, settings: LoggingSettings) -> int:
    """Number of steps of a fit."""
    return (settings.epochs or 0) * (rows // min(settings.batch_size, rows))
