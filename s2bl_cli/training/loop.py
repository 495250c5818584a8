"""The training loop: one device-side shuffle an epoch, no device sync inside it."""

import math
from collections.abc import Callable

import torch

from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.logs.reading import Log, LogArrays
from s2bl_cli.contract.policies import NetworkSpec, Policy
from s2bl_cli.errors import ContractError, RunError
from s2bl_cli.models.adam import Adam
from s2bl_cli.models.network import PolicyNetwork, build_network, network_tensors, on_device
from s2bl_cli.models.settings import parse_hidden
from s2bl_cli.objectives.objective import Objective, objective_of
from s2bl_cli.settings import recorded
from s2bl_cli.training.device_log import DeviceLog, device_log
from s2bl_cli.training.sampling import epoch_steps, shuffled
from s2bl_cli.training.settings import TrainSettings

_COLUMNS = ("context", "action", "propensity", "cost", "split")  # never `label`

Advance = Callable[[int, str], None]


def train_policy(log: Log, settings: TrainSettings, device: torch.device, advance: Advance) -> Policy:
    """Learn a policy from the log's train rows."""
    combination = settings.combination
    objective = objective_of(combination.risk, combination.reg, combination.lam, settings.nu)
    arrays = log.read(_COLUMNS)
    arrays = arrays.take(~arrays.is_test)
    _check_rows(arrays, log, settings)
    hidden = parse_hidden(settings.model, settings.hidden)
    network_spec = NetworkSpec(settings.model, log.spec.context, log.spec.actions, hidden, settings.width)
    torch.manual_seed(settings.seed)
    network = build_network(network_spec)
    network.standardise_by(arrays.context)
    on_device(network, device)
    data = device_log(arrays, log.spec.actions, reg_on_known=combination.reg_rows == "known", device=device)
    fit(network, data, objective, settings, advance)
    return Policy(
        network=network_spec,
        training_rows=data.rows,
        training_known=len(data.known_rows),
        lineage=step_of("train", {**recorded(settings.resolved()), **log.recorded_names}, log.sources),
        tensors=network_tensors(network),
    )


def _check_rows(arrays: LogArrays, log: Log, settings: TrainSettings) -> None:
    if arrays.rows == 0:
        raise ContractError(f"{log.name}: it has no train rows to learn from (its rows are all of the test split)")
    uses_feedback = settings.combination.risk != "none" or settings.combination.reg_rows == "known"
    if uses_feedback and not arrays.known.any():
        raise ContractError(
            f"{log.name}: no train row has feedback, and {settings.name} learns from feedback; "
            f"use a log with some, or --method wce-only"
        )


def fit(
    network: PolicyNetwork, data: DeviceLog, objective: Objective, settings: TrainSettings, advance: Advance
) -> None:
    """Minimise the objective in place."""
    device = data.action.device
    generator = torch.Generator(device).manual_seed(settings.seed)
    optimizer = Adam(network.parameters(), settings.lr)
    steps = epoch_steps(data.rows, settings.batch_size)
    for epoch in range(settings.epochs):
        known_index = reg_index = None
        if objective.risk is not None:
            known_index = shuffled(data.known_rows, steps, settings.batch_size, generator)
        if objective.regulariser is not None:
            reg_index = shuffled(data.reg_rows, steps, settings.batch_size, generator)
        total = torch.zeros((), device=device)
        for step in range(steps):
            loss = objective(
                None if known_index is None else data.known_batch(network, known_index[step]),
                None if reg_index is None else data.any_batch(network, reg_index[step]),
            )
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            total += loss.detach()
        mean_loss = total.item() / steps  # the epoch's one device sync
        if not math.isfinite(mean_loss):
            raise RunError(
                f"the loss became {mean_loss} in epoch {epoch + 1}: use a smaller --lr than {settings.lr:g}, "
                f"or a larger --nu than {settings.nu:g} if propensities are tiny"
            )
        advance(epoch + 1, f"loss {mean_loss:.4f}")
