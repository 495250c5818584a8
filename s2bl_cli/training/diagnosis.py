"""Problems that the known train rows reveal in a trained policy: it samples worse actions than its argmax, or it avoids
the logged actions. The values are biased upward, because the policy was trained on these rows."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from s2bl_cli.contract.policies import Policy
from s2bl_cli.metrics.estimate import Estimate, Terms, difference, mean_estimate
from s2bl_cli.policies.contexts import context_tensor
from s2bl_cli.policies.network import network_from, on_device
from s2bl_cli.reward_models.reward_model import Floats
from s2bl_cli.training.data import TrainingData, TrainRows
from s2bl_cli.training.validation import LEAST_MEAN_WEIGHT

_MOST_ROWS = 1 << 14
_ROWS_AT_ONCE = 4096
_LEAST_SHARE = 0.75  # of the argmax's gain over the logged actions
_LOW_MEAN_WEIGHT = 0.75  # a policy below is worthless if even its train rows show clearly that it is worth less
_CLEAR = 3.0  # standard errors


class Finding(NamedTuple):
    """A problem with a policy, and the options that fix it."""

    text: str
    has_failed: bool = False  # the policy is useless


def known_rows(data: TrainingData) -> Iterator[TrainRows]:
    """Known train rows in batches, of very many only some."""
    remaining = _MOST_ROWS
    for part in data.scan():
        known = np.flatnonzero(part.rows.known)
        chosen = known[np.linspace(0, len(known) - 1, min(len(known), remaining)).astype(np.int64)]
        for start in range(0, len(chosen), _ROWS_AT_ONCE):
            mask = np.zeros(part.rows.rows, bool)
            mask[chosen[start : start + _ROWS_AT_ONCE]] = True
            yield part.take(mask)
        remaining -= len(chosen)
        if remaining <= 0:
            return


@torch.no_grad()
def diagnose(policy: Policy, data: TrainingData, nu: float, device: torch.device) -> list[Finding]:
    """Diagnose a policy on the known train rows."""
    network = on_device(network_from(policy.network, policy.tensors, "the policy"), device).eval()
    columns: list[list[Floats]] = []
    for part in known_rows(data):
        rows = part.rows
        pi = torch.softmax(network(context_tensor(rows.context, device)), -1).cpu().numpy().astype(np.float64)
        # Known rows count by 1/P(known | x, a), and truncation lowers the weights of the logging policy too.
        o = np.ones(len(pi)) if part.o is None else part.o.astype(np.float64)
        truncated, index = np.maximum(rows.propensity, nu), np.arange(len(pi))
        weights = (pi[index, rows.action], pi.argmax(-1) == rows.action, rows.propensity)
        columns.append([-rows.cost.astype(np.float64), *(o * weight / truncated for weight in weights)])
    if not columns:
        return []
    return list(findings(*map(np.concatenate, zip(*columns, strict=True)), is_soft=policy.acts.is_plain))


def findings(reward: Floats, sampled: Floats, greedy: Floats, logged: Floats, *, is_soft: bool) -> Iterator[Finding]:
    """`sampled`, `greedy`, `logged`: weights π(a|x)/p of the policy, of its argmax, and of the logging policy, all
    (rows,)."""
    mean_weight = sampled.mean() / logged.mean()
    # What it lacks to a mean weight of 1 counts at the lowest reward.
    lost = mean_estimate((reward - reward.min()) * (logged - sampled))
    is_worse = lost.value > _CLEAR * (lost.stderr or math.inf)
    if mean_weight < LEAST_MEAN_WEIGHT or (mean_weight < _LOW_MEAN_WEIGHT and is_worse):
        yield Finding(
            f"avoids the logged actions: the mean weight of the known train rows is {mean_weight:.2f}, not about 1; "
            f"with --risk banditnet, search the translation with --translation auto --select ips",
            has_failed=True,
        )
    elif is_soft and greedy.any():
        draws, best = _snips(reward, sampled), _snips(reward, greedy)
        gap, possible = difference(best, draws), best.value - np.average(reward, weights=logged)
        is_clear = gap.value > 2 * (gap.stderr or 0.0)
        if is_clear and 0 < (1 - _LEAST_SHARE) * possible < gap.value:
            yield Finding(
                f"sampled actions are worth far less than argmax actions: {draws.value:.4g} against {best.value:.4g} "
                f"(SNIPS on the known train rows); consider --act auto or --act argmax"
            )


def _snips(reward: Floats, weight: Floats) -> Estimate:
    return Terms([reward * weight, weight.astype(np.float64)], lambda total, of_weights: total / of_weights).estimate
