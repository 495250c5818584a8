"""`--act auto`: chooses how a trained policy should act, on known rows that it was not trained on.

The run's selector estimates the reward of each way to act. Noise that the estimates share cancels in their paired
differences. Among the ways within one standard error of the best one, the first of AUTO_ACTS is taken. The softmax,
which training optimises and which explores most, is therefore replaced only by something that is shown to be better.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.acts import Act, parse_act
from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.metrics.estimate import Clusters, Estimate, Terms, difference
from s2bl_cli.policies.acting import action_probabilities
from s2bl_cli.policies.contexts import context_tensor
from s2bl_cli.policies.network import network_from, on_device
from s2bl_cli.registry import SELECTORS
from s2bl_cli.reward_models.reward_model import Floats, RewardModel
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import TrainingData, TrainRows
from s2bl_cli.training.validation import DELTA, HeldOut, fold_models

# Ordered from most exploration to none.
AUTO_ACTS = tuple(
    map(parse_act, ("softmax", "temperature=0.5", "temperature=0.2", "epsilon=0.1", "epsilon=0.02", "argmax"))
)
_ROWS_AT_ONCE = 4096


class FoldPolicy(NamedTuple):
    """A policy that was not trained on the known rows that its fold holds out."""

    fold: Fold
    tensors: Tensors


def choose_act(
    policies: Sequence[FoldPolicy],
    data: TrainingData,
    spec: NetworkSpec,
    nu: float,
    selector: str,
    device: torch.device,
) -> Act:
    """Choose by the estimates on all rows that the folds hold out."""
    held_out, cluster = _predictions(policies, data, spec, nu, device, needs_model=SELECTORS.load(selector).needs_model)
    return best_act([_TERMS[selector](of_act).estimate for of_act in held_out], cluster)


def best_act(estimates: Sequence[Estimate], cluster: Clusters | None = None) -> Act:
    """`estimates`: one for each of AUTO_ACTS, on the same rows. Those without a value, such as the estimate for a
    policy that never takes a logged action, are skipped."""
    values = np.array([estimate.value for estimate in estimates])
    if not np.isfinite(values).any():
        return AUTO_ACTS[0]
    best = estimates[int(np.nanargmax(np.where(np.isfinite(values), values, np.nan)))]

    def is_as_good(estimate: Estimate) -> bool:
        gap = difference(best, estimate)
        error = Estimate(gap.value, gap.rows, gap.influence, cluster=cluster).stderr
        return gap.value <= (error or 0.0)  # false for NaN

    return next(act for act, estimate in zip(AUTO_ACTS, estimates, strict=True) if is_as_good(estimate))


@torch.no_grad()
def _predictions(
    policies: Sequence[FoldPolicy],
    data: TrainingData,
    spec: NetworkSpec,
    nu: float,
    device: torch.device,
    *,
    needs_model: bool,
) -> tuple[list[HeldOut], Clusters | None]:
    """The predictions on the held-out rows for each of AUTO_ACTS, and the rows' clusters."""
    networks = [on_device(network_from(spec, policy.tensors, "the policy"), device).eval() for policy in policies]
    folds = [policy.fold for policy in policies]
    models = fold_models(data.statistics.sample, folds, spec.actions, device) if needs_model else [None] * len(folds)
    columns: list[list[list[Floats]]] = [[] for _ in AUTO_ACTS]  # act, batch, column
    numbers: list[npt.NDArray[np.int64]] = []
    for part in data.scan():
        for fold, network, model in zip(folds, networks, models, strict=True):
            for rows in _batches(part.take(part.rows.known & fold.holds_out(part.number))):
                logits = network(context_tensor(rows.rows.context, device))
                for of_act, act in zip(columns, AUTO_ACTS, strict=True):
                    pi = action_probabilities(logits, act).cpu().numpy().astype(np.float64)
                    of_act.append(_columns(pi, rows, nu, model))
                numbers.append(rows.number)
    held_out = [HeldOut(*map(np.concatenate, zip(*of_act, strict=True))) for of_act in columns]
    cluster = None if not data.has_clusters else np.unique(np.concatenate(numbers), return_inverse=True)[1].reshape(-1)
    return held_out, cluster


def _batches(rows: TrainRows) -> Sequence[TrainRows]:
    count = rows.rows.rows
    index = np.arange(count)
    return [rows.take((index >= start) & (index < start + _ROWS_AT_ONCE)) for start in range(0, count, _ROWS_AT_ONCE)]


def _columns(pi: Floats, rows: TrainRows, nu: float, model: RewardModel | None) -> list[Floats]:
    """The columns of `HeldOut`."""
    arrays, index = rows.rows, np.arange(len(pi))
    nothing = np.full(len(pi), np.nan)
    expected = None if model is None else model.predict(arrays.context).astype(np.float64)
    return [
        pi[index, arrays.action] / np.maximum(arrays.propensity, nu),
        arrays.cost.astype(np.float64),
        nothing if expected is None else (pi * expected).sum(axis=1),
        nothing if expected is None else expected[index, arrays.action],
        np.ones(len(pi)) if rows.o is None else rows.o.astype(np.float64),
    ]


def _ls_bound(held_out: HeldOut) -> Terms:
    rows = len(held_out.cost)
    lam = 1 / np.sqrt(rows)
    penalty = np.log(1 / DELTA) / rows
    logarithm = np.log1p(lam * held_out.o / held_out.o.mean() * held_out.weight * np.maximum(-held_out.cost, 0))
    return Terms([logarithm], lambda mean: (np.exp(mean - penalty) - 1) / lam)


def _mean(values: Floats, o: Floats) -> Terms:
    """The mean over the rows, weighted by o."""
    weight = np.asarray(o, np.float64)
    return Terms([weight * values, weight], lambda value, mean: value / mean)


# The selectors as terms, because terms have influence values.
_TERMS: dict[str, Callable[[HeldOut], Terms]] = {
    "snips": lambda h: _mean(-h.cost, h.o * h.weight),
    "ips": lambda h: _mean(-h.cost * h.weight, h.o),
    "dr": lambda h: _mean(-h.model_value - h.weight * (h.cost - h.model_logged), h.o),
    "ls-bound": _ls_bound,
}
