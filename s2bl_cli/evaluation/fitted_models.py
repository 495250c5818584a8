"""The models that estimates use, cross-fitted on a log: one of the reward, and one of whether the feedback is known.

They are fitted on a sample of rows that fits in memory (SAMPLE_BYTES of contexts), drawn with the seed: a linear model
does not need more. Every row has a fold, whether it was sampled or not, and is predicted by a model that was not
trained on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.logs.arrays import log_arrays
from s2bl_cli.contract.logs.reading import Log, all_faults_reported
from s2bl_cli.errors import RunError
from s2bl_cli.evaluation.selection import SelectedRows
from s2bl_cli.evaluation.settings import EvaluateSettings
from s2bl_cli.metrics.dependence import dependence
from s2bl_cli.metrics.metric import VALUE, Metric
from s2bl_cli.metrics.sample import VALUE_HAT, numbered
from s2bl_cli.reward_models.logistic import cross_fit
from s2bl_cli.reward_models.observation_model import ObservationModel, cross_fit_observation
from s2bl_cli.reward_models.reward_model import RewardModel, assign_folds
from s2bl_cli.reward_models.settings import RewardModelSettings

SAMPLE_BYTES = 128 << 20
_MISSINGNESS_ROWS = 20_000  # sampled for the test or the model of missingness
_MAX_WEIGHTS = 1 << 28  # folds × actions × features: a gigabyte

Ints = npt.NDArray[np.int64]
_NO_ROWS: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class FittedModels:
    """The models that a pass over the rows needs."""

    fold: npt.NDArray[np.int32]  # (selected rows,)
    reward: RewardModel | None
    observation: ObservationModel | None  # P(known | x, a), if rows are weighted by it
    missingness: str | None  # a warning, if feedback depends on context or action in a way that no model accounts for


def fit_models(
    log: Log, rows: SelectedRows, metrics: Sequence[Metric], settings: EvaluateSettings, device: torch.device
) -> FittedModels:
    """Fit what the metrics need: one pass over the contexts for the sample, then the fits. No pass if nothing is
    needed."""
    sample = rows.sample
    known = int(sample.known.sum())
    folds = min(settings.model_folds, max(2, sample.known_units))
    fold = assign_folds(sample.known, folds, settings.seed, sample.cluster)
    model_settings = RewardModelSettings(folds=folds, seed=settings.seed)
    rng = np.random.default_rng([settings.seed, 2])
    budget = max(1000, SAMPLE_BYTES // log.spec.context.byte_width)
    with_reward = known >= 2 and any(
        VALUE_HAT in metric.needs or (settings.missing_model and metric.group == VALUE) for metric in metrics
    )
    with_missingness = 2 <= known <= sample.rows - 2 and any(metric.group == VALUE for metric in metrics)
    reward_rows = _drawn(rng, np.flatnonzero(sample.known), budget) if with_reward else _NO_ROWS
    seen_rows = _drawn(rng, np.arange(sample.rows), min(budget, _MISSINGNESS_ROWS)) if with_missingness else _NO_ROWS
    sampled = np.union1d(reward_rows, seen_rows)
    if not len(sampled):
        return FittedModels(fold, None, None, None)
    is_fitted = with_reward or settings.missing_model
    if is_fitted and folds * log.spec.actions * log.spec.context.features > _MAX_WEIGHTS:
        raise RunError(
            f"{log.name}: a reward model of {log.spec.actions:,} actions and {log.spec.context.features:,} features in "
            f"{folds} folds is more than memory should hold; use fewer --model-folds, or --metrics ips,snips,health"
        )
    context = _contexts(log, rows, sampled)
    reward = observation = warning = None
    if with_reward:
        reward = cross_fit(
            context[np.searchsorted(sampled, reward_rows)],
            sample.action[reward_rows],
            sample.r[reward_rows],
            fold[reward_rows],
            sample.actions,
            model_settings,
            device,
        )
    if with_missingness:
        seen_context = context[np.searchsorted(sampled, seen_rows)]
        action, is_known, seen_fold = sample.action[seen_rows], sample.known[seen_rows], fold[seen_rows]
        cluster = None if sample.cluster is None else numbered(sample.cluster[seen_rows])
        probability = None
        if settings.missing_model:
            observation = cross_fit_observation(
                seen_context, action, is_known, seen_fold, sample.actions, model_settings, device
            )
            probability = observation.probability(seen_context, action, seen_fold)
        warning = dependence(seen_context, action, is_known, cluster, settings.seed, probability)
    return FittedModels(fold, reward, observation, warning)


def _drawn(rng: np.random.Generator, rows: Ints, at_most: int) -> Ints:
    return rows if len(rows) <= at_most else np.sort(rng.choice(rows, at_most, replace=False))


def _contexts(log: Log, rows: SelectedRows, sampled: Ints) -> npt.NDArray[np.generic]:
    """The contexts of some of the selected rows, in the file's dtype."""
    places = np.flatnonzero(rows.mask)[sampled]  # in the log
    context = np.empty((len(sampled), *log.spec.context.shape), log.spec.context.dtype)
    start = 0
    with all_faults_reported(log):
        for batch in log.batches(("context",)):
            first, last = np.searchsorted(places, [start, start + batch.num_rows])
            context[first:last] = log_arrays(batch, log.spec).context[places[first:last] - start]
            start += batch.num_rows
    return context
