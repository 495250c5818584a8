"""The supervised-to-bandit conversion of `make-logs`: fit or load a logging policy, draw, write. Streamed."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.contract.logs.reading import rows_per_batch
from s2bl_cli.contract.logs.schema import SPLITS, LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer
from s2bl_cli.contract.policies import LoadedPolicy, NetworkSpec, Policy
from s2bl_cli.datasets.interactions import InteractionData, Interactions
from s2bl_cli.datasets.labelled import LabelledSource
from s2bl_cli.errors import ContractError
from s2bl_cli.logging_policy.costs import cost_of
from s2bl_cli.logging_policy.drawing import draw_actions
from s2bl_cli.logging_policy.facts import LogFacts
from s2bl_cli.logging_policy.fitting import Advance, fit_network, fitting_steps
from s2bl_cli.logging_policy.policies import ExploringPolicy, FittedPolicy, LoggingPolicy, RandomPolicy, UniformPolicy
from s2bl_cli.logging_policy.random_scores import draw_pairs, pair_probabilities
from s2bl_cli.logging_policy.settings import LoggingSettings, tau_of_logits
from s2bl_cli.policies.network import PolicyNetwork, network_from, network_tensors, on_device
from s2bl_cli.policies.settings import parse_hidden

Progress = Callable[[str, int, str], AbstractContextManager[Advance]]


@dataclass(frozen=True)
class FittedNetwork:
    """A network that was fitted to the labels in this run, and can be saved."""

    spec: NetworkSpec
    network: PolicyNetwork
    rows: int
    action_names: tuple[str, ...]

    def as_policy(self, lineage: Step) -> Policy:
        return Policy(self.spec, self.rows, self.rows, lineage, network_tensors(self.network), self.action_names)


def logging_policy_for(
    data: LabelledSource,
    settings: LoggingSettings,
    given: LoadedPolicy | None,
    device: torch.device,
    progress: Progress,
) -> tuple[LoggingPolicy, FittedNetwork | None]:
    """The logging policy of the resolved settings, and its network if it was fitted in this run."""
    fitted: FittedNetwork | None = None
    policy: LoggingPolicy
    if given is not None:
        network = _load_network(given, data, device)
        temperature = settings.tau / tau_of_logits(given.policy.lineage)
        policy = FittedPolicy(network, device, temperature=temperature, adverse=settings.adverse)
    elif settings.logging_model == "uniform":
        policy = UniformPolicy(data.classes)
    elif settings.logging_model == "random":
        policy = RandomPolicy(data.classes, settings.seed, settings.tau)
    else:
        fitted = _fit(data, settings, device, progress)
        temperature = settings.tau if settings.tau_mode == "sample" else 1.0
        policy = FittedPolicy(fitted.network, device, temperature=temperature, adverse=settings.adverse)
    return ExploringPolicy(policy, settings.uniform) if settings.uniform else policy, fitted


def _fit(data: LabelledSource, settings: LoggingSettings, device: torch.device, progress: Progress) -> FittedNetwork:
    model = settings.logging_model or "linear"
    spec = NetworkSpec(model, data.context, data.classes, parse_hidden(model, settings.hidden), settings.width or 1)
    part = data.to_fit()
    with progress(
        f"fitting the logging policy ({model})", fitting_steps(len(part.label), settings), "steps"
    ) as advance:
        network = fit_network(spec, part, settings, device, advance)
    return FittedNetwork(spec, network, len(part.label), data.action_names)


def _load_network(given: LoadedPolicy, data: LabelledSource, device: torch.device) -> PolicyNetwork:
    spec = given.policy.network
    mismatch = given.policy.misfit(data.classes, data.context, data.action_names, "the data's")
    if mismatch is not None:
        raise ContractError(
            f"{given.name} does not fit {data.name}: {mismatch}: use a policy that was fitted to this kind of data"
        )
    return on_device(network_from(spec, given.policy.tensors, given.name), device)


def write_labelled_log(
    data: LabelledSource, policy: LoggingPolicy, settings: LoggingSettings, lineage: Step, target: str, *, force: bool
) -> LogFacts:
    """Draw an action for every row and write the log in batches."""
    optional = ("label", "pi0", "split") if settings.store_distribution else ("label", "split")
    spec = LogSpec(data.classes, data.context, optional, action_names=data.action_names)
    facts = LogFacts(data.classes)
    with log_writer(target, spec, lineage, force=force) as writer:
        for arrays in _labelled_rows(data, policy, settings, facts):
            writer.write(log_batch(arrays, spec))
    return facts


def _labelled_rows(
    data: LabelledSource, policy: LoggingPolicy, settings: LoggingSettings, facts: LogFacts
) -> Iterator[LogArrays]:
    # One random number per row, in order, so that the draws do not depend on the batches.
    uniforms = np.random.Generator(np.random.Philox(key=settings.seed))
    cost = cost_of(settings)
    for split in SPLITS:
        for batch in data.batches(split, rows_per_batch(data.context, 4 * data.classes)):
            rows = len(batch.label)
            pi0 = policy.distribution(batch.context)
            action = draw_actions(pi0, uniforms.random(rows))
            propensity = pi0[np.arange(rows), action]
            facts.add(split, propensity, action, batch.label, pi0)
            yield LogArrays(
                context=batch.context,
                action=action,
                propensity=propensity,
                cost=cost.of(batch, action, propensity),
                known=np.ones(rows, bool),
                is_test=np.full(rows, split == "test"),
                label=batch.label,
                pi0=pi0 if settings.store_distribution else None,
            )


def write_interaction_log(
    data: InteractionData, draws: int, settings: LoggingSettings, lineage: Step, target: str, *, force: bool
) -> LogFacts:
    """Draw items for every user with random scores and write the log in batches."""
    optional = ("pi0", "split", "cluster") if settings.store_distribution else ("split", "cluster")
    spec = LogSpec(data.actions, data.context, optional, action_names=data.action_names)
    facts = LogFacts(data.actions)
    rng = np.random.Generator(np.random.Philox(key=settings.seed))
    with log_writer(target, spec, lineage, force=force) as writer:
        for split, pairs in zip(SPLITS, (data.train, data.test), strict=True):
            for arrays in _interaction_rows(
                data, pairs, draws, rng, is_test=split == "test", dense=settings.store_distribution
            ):
                facts.add(split, arrays.propensity)
                writer.write(log_batch(arrays, spec))
    return facts


def _interaction_rows(
    data: InteractionData, pairs: Interactions, draws: int, rng: np.random.Generator, *, is_test: bool, dense: bool
) -> Iterator[LogArrays]:
    probability = pair_probabilities(pairs, rng)
    chosen = draw_pairs(pairs, probability, draws, rng)  # (users · draws,)
    user = np.repeat(np.arange(len(pairs.users)), draws)
    size = rows_per_batch(data.context, 4 * data.actions if dense else 0)
    for start in range(0, len(chosen), size):
        pair, row_user = chosen[start : start + size], user[start : start + size]
        yield LogArrays(
            context=data.features[pairs.users[row_user]],
            action=pairs.item[pair],
            propensity=probability[pair],
            cost=np.where(pairs.rewarded[pair], np.float32(-1), np.float32(0)),
            known=np.ones(len(pair), bool),
            is_test=np.full(len(pair), is_test),
            label=None,
            pi0=_distributions(data.actions, pairs, probability, row_user) if dense else None,
            cluster=pairs.users[row_user],
        )


def _distributions(
    actions: int, pairs: Interactions, probability: npt.NDArray[np.float32], row_user: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """The whole distribution of each row: (rows, actions)."""
    pi0 = np.zeros((len(row_user), actions), dtype=np.float32)
    count = pairs.start[row_user + 1] - pairs.start[row_user]
    row = np.repeat(np.arange(len(row_user)), count)
    first_of_row = np.repeat(np.cumsum(count) - count, count)
    pair = np.repeat(pairs.start[row_user], count) + np.arange(count.sum()) - first_of_row
    pi0[row, pairs.item[pair]] = probability[pair]
    return pi0
