"""The models that estimates lean on, cross-fitted on a log: of the cost, and of whether the feedback is known.

They are fitted on a sample of rows that memory holds (SAMPLE_BYTES of contexts), drawn by the seed: a linear
model does not need more. Every row has a fold, whether it was sampled or not, and is predicted by a model that
has not learned from it.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.logs.arrays import log_arrays
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.errors import RunError
from s2bl_cli.evaluation.selection import SelectedRows, all_faults_told
from s2bl_cli.reward_models.observation_model import ObservationModel, cross_fit_observation, log_likelihood
from s2bl_cli.reward_models.reward_model import RewardModel, assign_folds, cross_fit
from s2bl_cli.reward_models.settings import RewardModelSettings

SAMPLE_BYTES = 128 << 20
_MISSINGNESS_ROWS = 20_000  # sampled for the model of missingness
_MAX_WEIGHTS = 1 << 28  # folds × actions × features: a gigabyte
_SURPRISE = 2.326  # the normal distribution's 99 % quantile

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FittedModels:
    """What a pass over the rows needs of them."""

    fold: npt.NDArray[np.int32]  # (selected rows,)
    cost: RewardModel | None
    observation: ObservationModel | None  # P(known | x, a)
    missingness: str | None  # a warning, where feedback is found to be missing depending on context or action


def fit_models(
    log: Log,
    rows: SelectedRows,
    *,
    with_cost: bool,
    with_missingness: bool,
    weights_rows: bool,
    folds: int,
    seed: int,
    device: torch.device,
) -> FittedModels:
    """One pass over the contexts for the sample, then the fits. Without anything to fit, no pass.

    A model of missingness that is to tell whether there is any is linear; one that weights rows may bend.
    """
    known = int(rows.known.sum())
    folds = min(folds, max(2, known))
    fold = assign_folds(rows.known, folds, seed)
    settings = RewardModelSettings(folds=folds, seed=seed)
    rng = np.random.default_rng([seed, 2])
    budget = max(1000, SAMPLE_BYTES // log.spec.context.byte_width)
    nobody = np.empty(0, np.int64)
    cost_rows = _sampled(rng, np.flatnonzero(rows.known), budget) if with_cost and known >= 2 else nobody
    is_mixed = 2 <= known <= rows.rows - 2
    seen_rows = _sampled(rng, np.arange(rows.rows), min(budget, _MISSINGNESS_ROWS))
    if not (with_missingness and is_mixed):
        seen_rows = nobody
    wanted = np.union1d(cost_rows, seen_rows)
    if not len(wanted):
        return FittedModels(fold, None, None, None)
    weights = folds * log.spec.actions * log.spec.context.features
    if weights > _MAX_WEIGHTS:
        raise RunError(
            f"{log.name}: a reward model of {log.spec.actions:,} actions and {log.spec.context.features:,} features in "
            f"{folds} folds is more than memory should hold; use fewer --folds, or --metrics ips,snips,health"
        )
    context = _contexts(log, rows, wanted)
    cost = observation = warning = None
    if len(cost_rows):
        own = context[np.searchsorted(wanted, cost_rows)]
        action, feedback = rows.action[cost_rows], -rows.reward[cost_rows]
        cost = cross_fit(own, action, feedback, fold[cost_rows], log.spec.actions, settings, device)
    if len(seen_rows):
        own = context[np.searchsorted(wanted, seen_rows)]
        action, is_known, own_fold = rows.action[seen_rows], rows.known[seen_rows], fold[seen_rows]
        observation = cross_fit_observation(
            own, action, is_known, own_fold, log.spec.actions, settings, device, nonlinear=weights_rows
        )
        warning = _dependence(observation.probability(own, action, own_fold), is_known)
    return FittedModels(fold, cost, observation, warning)


def _sampled(rng: np.random.Generator, rows: Ints, at_most: int) -> Ints:
    return rows if len(rows) <= at_most else np.sort(rng.choice(rows, at_most, replace=False))


def _contexts(log: Log, rows: SelectedRows, wanted: Ints) -> npt.NDArray[np.generic]:
    """The contexts of some of the selected rows, in the file's dtype."""
    places = np.flatnonzero(rows.mask)[wanted]  # in the log
    context = np.empty((len(wanted), *log.spec.context.shape), log.spec.context.dtype)
    start = 0
    with all_faults_told(log):
        for batch in log.batches(("context",)):
            first, last = np.searchsorted(places, [start, start + batch.num_rows])
            if last > first:
                context[first:last] = log_arrays(batch, log.spec).context[places[first:last] - start]
            start += batch.num_rows
    return context


def _dependence(probability: npt.NDArray[np.float32], known: npt.NDArray[np.bool_]) -> str | None:
    """Whether a model of (x, a) foretells what is known better than the plain rate does, on rows it has not seen.

    Were feedback missing completely at random, the held-out log-likelihood could not gain in expectation. So a
    gain that is 2.3 standard errors above 0 comes up by chance in at most about 1 % of logs.
    """
    gain = log_likelihood(probability, known) - log_likelihood(np.full(len(known), known.mean()), known)
    error = float(gain.std(ddof=1)) / math.sqrt(len(gain))
    if error == 0 or gain.mean() / error <= _SURPRISE:
        return None
    return (
        f"which rows have feedback depends on context or action (held-out log-likelihood gain {gain.mean():.2g} a row, "
        f"{gain.mean() / error:.0f} standard errors)"
    )
