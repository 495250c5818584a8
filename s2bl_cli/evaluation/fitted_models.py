"""The models that estimates use, cross-fitted on a log: one of the reward, and one of whether the feedback is known.

With `--logging-feature`, the log-probability of the action under the logging policy is a feature of the reward model:
from the log if it stores π₀, else from a copy of the logging policy, fitted to the logged propensities.

They are fitted on a sample of rows that fits in memory (SAMPLE_BYTES of contexts), drawn with the seed: a linear model
does not need more. Every row has a fold, whether it was sampled or not, and is predicted by a model that was not
trained on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.contract.logs.arrays import log_arrays
from s2bl_cli.contract.logs.reading import Log, all_faults_reported
from s2bl_cli.errors import RunError
from s2bl_cli.evaluation.selection import SelectedRows
from s2bl_cli.evaluation.settings import AUTO, DEFAULT_REWARD_MODEL, STORED, EvaluateSettings
from s2bl_cli.metrics.dependence import dependence
from s2bl_cli.metrics.metric import VALUE, Metric
from s2bl_cli.metrics.sample import VALUE_HAT, Array, log_of, numbered
from s2bl_cli.registry import REWARD_MODELS
from s2bl_cli.reward_models.logging_copy import LoggingCopy, fit_logging_copy, rows_to_copy
from s2bl_cli.reward_models.observation_model import ObservationModel, cross_fit_observation
from s2bl_cli.reward_models.reward_model import CrossFit, RewardModel, assign_folds
from s2bl_cli.reward_models.settings import RewardModelSettings

SAMPLE_BYTES = 128 << 20
_MISSINGNESS_ROWS = 20_000  # sampled for the test or the model of missingness
_NUMBERS_AT_ONCE = 1 << 22  # rows × actions
_MAX_WEIGHTS = 1 << 28  # folds × actions × features: a gigabyte

Ints = npt.NDArray[np.int64]
_NO_ROWS: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class FittedModels:
    """The models that a pass over the rows needs."""

    fold: npt.NDArray[np.int32]  # (selected rows,)
    reward: "FittedReward | None"
    observation: ObservationModel | None  # P(known | x, a), if rows are weighted by it
    missingness: str | None  # a warning, if feedback depends on context or action in a way that no model accounts for

    @property
    def recorded(self) -> dict[str, str]:
        """The settings of scores that `report` must not take for repetitions of those with the default model."""
        if self.reward is None:
            return {}
        named = {} if self.reward.name == DEFAULT_REWARD_MODEL else {"reward_model": self.reward.name}
        return named | ({} if self.reward.feature is None else {"logging_feature": self.reward.feature})


@dataclass(frozen=True)
class FittedReward:
    """A reward model and the source of log π₀, if that is a feature."""

    name: str  # in the registry
    model: RewardModel
    copy: LoggingCopy | None = None
    from_log: bool = False
    declared_range: tuple[float, float] | None = None  # of the rewards; predictions are clipped to it

    @property
    def feature(self) -> str | None:
        """The source of log π₀."""
        return STORED if self.from_log else "copy" if self.copy is not None else None

    def predict(self, context: Tensor, fold: npt.NDArray[np.int32], pi0: npt.NDArray[np.float32]) -> Array:
        """(rows, actions). `pi0`: that of the log, if it stores π₀."""
        scores = None
        if self.from_log:
            scores = torch.from_numpy(log_of(pi0)).to(context.device)
        elif self.copy is not None:
            scores = self.copy.log_probabilities(context)
        predicted = self.model.predict(context, fold, scores)
        return predicted if self.declared_range is None else predicted.clip(*self.declared_range)


class _RewardRows(NamedTuple):
    """The rows that a reward model is fitted on."""

    context: npt.NDArray[np.generic]
    action: npt.NDArray[np.int32]
    r: npt.NDArray[np.float64]
    fold: npt.NDArray[np.int32]


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
    from_log = settings.logging_feature in (STORED, AUTO) and log.spec.has("pi0")
    copied_rows = _NO_ROWS
    if with_reward and settings.logging_feature == AUTO and not from_log:
        at_most = min(budget, rows_to_copy(log.spec.context.features, sample.actions))
        copied_rows = _drawn(rng, np.arange(sample.rows), at_most)
    sampled = np.union1d(np.union1d(reward_rows, seen_rows), copied_rows)
    if not len(sampled):
        return FittedModels(fold, None, None, None)
    is_fitted = with_reward or settings.missing_model
    if is_fitted and folds * log.spec.actions * log.spec.context.features > _MAX_WEIGHTS:
        raise RunError(
            f"{log.name}: a reward model of {log.spec.actions:,} actions and {log.spec.context.features:,} features in "
            f"{folds} folds is more than memory should hold; use fewer --model-folds, or --metrics ips,snips,health"
        )
    context = _contexts(log, rows, sampled)
    reward: FittedReward | None = None
    observation = warning = None
    if with_reward:
        chosen = _RewardRows(
            context[np.searchsorted(sampled, reward_rows)],
            sample.action[reward_rows],
            sample.r[reward_rows],
            fold[reward_rows],
        )
        copied = context[np.searchsorted(sampled, copied_rows)]
        copy = fit_logging_copy(copied, sample.action[copied_rows], sample.p[copied_rows], sample.actions, device)
        score = None
        if from_log:
            score = log_of(sample.p[reward_rows])
        elif copy is not None:
            score = _logged_scores(copy, chosen)
        name, model = _fit_reward(chosen, score, sample.actions, settings.reward_model, model_settings, device)
        reward = FittedReward(name, model, copy, from_log=from_log, declared_range=sample.declared_range)
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


def _fit_reward(
    rows: _RewardRows,
    score: npt.NDArray[Any] | None,
    actions: int,
    name: str,
    settings: RewardModelSettings,
    device: torch.device,
) -> tuple[str, RewardModel]:
    """The model and its name; with `auto`, the one that best predicts the rows of other folds."""
    models: dict[str, RewardModel] = {}
    for one in REWARD_MODELS.names if name == AUTO else (name,):
        cross_fit: CrossFit = REWARD_MODELS.load(one)
        models[one] = cross_fit(rows.context, rows.action, rows.r, rows.fold, actions, settings, device, None, score)
    if len(models) == 1:
        return name, models[name]
    errors = {one: _held_out_error(model, rows, score, actions) for one, model in models.items()}
    best = min(errors, key=errors.__getitem__)
    return best, models[best]


def _held_out_error(model: RewardModel, rows: _RewardRows, score: npt.NDArray[Any] | None, actions: int) -> float:
    """The squared error on rows that the model of their fold has not seen."""
    total = 0.0
    at_once = max(64, _NUMBERS_AT_ONCE // actions)
    for start in range(0, len(rows.r), at_once):
        part = slice(start, start + at_once)
        logged = None if score is None else torch.from_numpy(score[part, None]).expand(-1, actions)
        predicted = model.predict(rows.context[part], rows.fold[part], logged)  # right for the logged action
        errors = rows.r[part] - predicted[np.arange(len(predicted)), rows.action[part]]
        total += float(errors @ errors)
    return total


def _logged_scores(copy: LoggingCopy, rows: _RewardRows) -> npt.NDArray[np.float32]:
    parts = []
    at_once = max(64, _NUMBERS_AT_ONCE // len(copy.weight))
    for start in range(0, len(rows.r), at_once):
        part = slice(start, start + at_once)
        scores = copy.log_probabilities(rows.context[part]).cpu().numpy()
        parts.append(scores[np.arange(len(scores)), rows.action[part]])
    return np.concatenate(parts)


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
