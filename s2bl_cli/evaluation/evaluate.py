"""Scores every policy on every log, with their lineage and warnings.

A log is read twice: once without its contexts, to select the rows, and once with them, for all policies at once. If
models are needed, it is read once more in between, to sample the rows that they are fitted on.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from s2bl_cli.contract.lineage import Step, step_of
from s2bl_cli.contract.logs.columns import LogColumns, SplitSettings
from s2bl_cli.contract.logs.reading import Log, open_logs
from s2bl_cli.contract.scores import BIN, Score
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.candidates import (
    LOGGING_CANDIDATE,
    Candidate,
    check_fit,
    recorded_baseline,
)
from s2bl_cli.evaluation.comparison import Baseline, verdict_score
from s2bl_cli.evaluation.fitted_models import fit_models
from s2bl_cli.evaluation.row_pass import Advance, write_columns
from s2bl_cli.evaluation.selection import SelectedRows, select_rows, with_declared_range
from s2bl_cli.evaluation.settings import EvaluateSettings
from s2bl_cli.evaluation.unseen_rows import SeenByPolicies, trained_on, with_test_rows
from s2bl_cli.metrics import gains
from s2bl_cli.metrics.estimate import BOOTSTRAP, Estimate, IntervalSettings, intervals
from s2bl_cli.metrics.metric import BOUND, HEALTH, LABELS, VALUE, Metric
from s2bl_cli.metrics.missing_feedback import mismatch, one_sided
from s2bl_cli.metrics.sample import ScoredPolicy
from s2bl_cli.registry import METRICS
from s2bl_cli.settings import recorded, recorded_changes

_MODEL_MISFIT = "the model of missingness does not fit"

Progress = Callable[[str, int, str], AbstractContextManager[Advance]]


@dataclass
class Evaluation:
    """All scores; `scored_rows` has one line per log, `warnings` the problems with the numbers."""

    scores: list[Score] = field(default_factory=list)
    scored_rows: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def evaluate_policies(
    candidates: Sequence[Candidate],
    baseline: Candidate | None,
    logs: Sequence[str],
    columns: LogColumns,
    split: SplitSettings,
    settings: EvaluateSettings,
    device: torch.device,
    progress: Progress,
    placed_as: str | None = None,
) -> tuple[Evaluation, Step]:
    """Score every policy on every log. `baseline`: the candidate that the others are compared with. `placed_as`: the
    grid position of another tool's policy, for the lineage."""
    evaluation = Evaluation()
    # The logging policy is always scored, so it counts as an input only if there is no other.
    named = [candidate for candidate in candidates if candidate is not LOGGING_CANDIDATE] or [LOGGING_CANDIDATE]
    sources = [candidate.source for candidate in named]
    for name in logs:
        with open_logs([name], columns) as opened:
            log = with_test_rows(opened, candidates, columns, split)
            score_on_log(candidates, log, settings, device, progress, evaluation, baseline)
            sources += log.sources
    made_with = {**recorded(settings), "compare-to": recorded_baseline(baseline)}
    made_with |= recorded_changes(columns) | recorded_changes(split) | ({} if placed_as is None else {"as": placed_as})
    return evaluation, step_of("evaluate", made_with, tuple(sources))


def score_on_log(
    candidates: Sequence[Candidate],
    log: Log,
    settings: EvaluateSettings,
    device: torch.device,
    progress: Progress,
    evaluation: Evaluation,
    baseline: Candidate | None = LOGGING_CANDIDATE,
) -> None:
    """Add the scores of every policy on one log. `baseline`: the candidate that the others are compared with."""
    rows = with_declared_range(log, select_rows(log, settings.split), settings.declared_range)
    metrics: list[Metric] = [METRICS.load(name) for name in settings.chosen]
    _check_measurable(log, rows, metrics, settings)
    check_fit(candidates, log, rows)
    evaluation.scored_rows.append(_scored_rows(log, rows))
    models = fit_models(log, rows, metrics, settings, device)
    concerns: tuple[str, ...] = ()
    if models.missingness is not None:
        is_modelled = models.observation is not None
        concerns = (_MODEL_MISFIT if is_modelled else "which rows have feedback depends on context or action",)
        remedy = "are biased unless the reward model is right" if is_modelled else "may be biased; use --missing-model"
        evaluation.warnings.append(f"{log.name}: {models.missingness}: estimates from the known rows {remedy}")
    if any(metric.group in (VALUE, HEALTH) for metric in metrics) and (fault := one_sided(rows.sample)) is not None:
        concerns = (*concerns, fault)
        evaluation.warnings.append(
            f"{log.name}: {fault}: if a missing reward means 0, estimates from the known rows are wrong; write 0 where "
            f"nothing happened, or declare by --reward-range that 0 is impossible"
        )
    columns = {column.name: column for metric in metrics for column in (*metric.needs, *metric.uses)}
    with progress(f"scoring on {log.name}", rows.sample.rows, "rows") as advance:
        seen = SeenByPolicies(candidates)
        sample, policies = write_columns(log, rows, candidates, models, columns.values(), device, advance, seen.parts)
    interval = IntervalSettings(settings.interval, settings.level, settings.bootstrap_samples, settings.seed)
    scored: dict[int, ScoredPolicy] = {}
    for i, (candidate, policy_columns) in enumerate(zip(candidates, policies, strict=True)):
        trained: tuple[str, ...] = ()
        if (warning := trained_on(candidate, log, rows, seen.share(candidate))) is not None:
            evaluation.warnings.append(warning)
            trained = ("it was trained on these rows",)
        policy = ScoredPolicy(sample, policy_columns, settings.nu, settings.level, (*trained, *concerns))
        if models.missingness is None and (fault := mismatch(policy)) is not None:
            remedy = "use --missing-model" if sample.observed is None else "its intervals are too narrow"
            evaluation.warnings.append(f"{candidate.name} on {log.name}: {fault}; {remedy}")
            policy = replace(policy, concerns=(*policy.concerns, fault))
        scored[i] = replace(policy)  # drop the values that the check has computed, which take memory
    compared = _baseline(candidates, scored, baseline, interval)
    scores: dict[int, list[Score]] = {}
    # The baseline comes first, because the others need its estimates.
    for i in sorted(scored, key=lambda i: candidates[i] is not baseline):
        policy = scored.pop(i)
        scores[i] = list(
            policy_scores(candidates[i], policy, metrics, log, rows.split, interval, compared, models.recorded)
        )
    evaluation.scores += [score for i in sorted(scores) for score in scores[i]]
    if (
        compared is not None
        and compared.number > 1
        and any(score.metric == gains.BETTER for score in evaluation.scores)
    ):
        evaluation.scored_rows[-1] += f"; gains corrected for {compared.number} policies"


def _baseline(
    candidates: Sequence[Candidate],
    scored: Mapping[int, ScoredPolicy],
    baseline: Candidate | None,
    settings: IntervalSettings,
) -> Baseline | None:
    """None if there is nothing to compare."""
    compared = sum(candidate is not baseline for candidate in candidates)
    policies = [scored[i] for i, candidate in enumerate(candidates) if candidate is baseline]
    if not policies or not compared or baseline is None:
        return None
    return Baseline(baseline, policies[0], compared, resampled=settings.kind == BOOTSTRAP)


def policy_scores(
    candidate: Candidate,
    policy: ScoredPolicy,
    metrics: Sequence[Metric],
    log: Log,
    split: str,
    settings: IntervalSettings,
    baseline: Baseline | None = None,
    model_settings: Mapping[str, Any] | None = None,
) -> Iterator[Score]:
    """Scores in the order of the metrics. Gains follow the estimate that they belong to, and the verdict on them is
    last. `model_settings`: further settings of all scores.

    A metric that cannot be measured, or is NaN or infinite, has no score.
    """
    facts = candidate.facts(log, model_settings)
    gain_facts = facts
    if baseline is not None:
        gain_facts = candidate.facts(log, {**(model_settings or {}), "baseline": baseline.candidate.name})
    measured = _measured(candidate, policy, metrics, baseline)
    # The bootstrap draws once for all estimates; other intervals need only one estimate's terms in memory.
    groups = [list(measured)] if settings.kind == BOOTSTRAP else ([named] for named in measured)
    made: list[Score] = []
    for group in groups:
        made_intervals = intervals([estimate for _, estimate in group], settings)
        for (name, estimate), interval in zip(group, made_intervals, strict=True):
            score = Score(
                **(gain_facts if name in gains.NAMES else facts),
                log=log.base_name,
                log_sha256=log.sha256,
                split=split,
                metric=name,
                label=estimate.label,
                value=estimate.value,
                stderr=estimate.stderr,
                low=interval.low,
                high=interval.high,
                level=None if interval.kind in (None, BIN) else settings.level,
                interval=interval.kind,
                rows=estimate.rows,
                note=estimate.note,
            )
            made.append(score)
            yield score
    if (verdict := verdict_score(made)) is not None:
        yield verdict


def _measured(
    candidate: Candidate, policy: ScoredPolicy, metrics: Sequence[Metric], baseline: Baseline | None
) -> Iterator[tuple[str, Estimate]]:
    """Estimates by the names of their scores."""
    for metric in metrics:
        if not metric.is_measurable(policy) or (metric.group == BOUND and policy.sample.cluster is not None):
            continue  # bounds require independent rows
        for estimate in metric.compute(policy):
            if math.isfinite(estimate.value):
                if estimate.cluster is None and estimate.influence is not None:
                    estimate = replace(estimate, cluster=policy.sample.cluster_of(estimate.rows))
                yield metric.name, estimate
                if baseline is not None and candidate is baseline.candidate:
                    baseline.keep(metric, estimate)
                elif baseline is not None:
                    yield from baseline.gains(metric, estimate)


def _check_measurable(log: Log, rows: SelectedRows, metrics: Sequence[Metric], settings: EvaluateSettings) -> None:
    """Reject metrics that were requested by name but cannot be measured."""
    if rows.sample.label is None and all(metric.group == LABELS for metric in metrics):
        raise ContractError(f"{log.name}: it has no column 'label', which accuracies need: name it with --label-column")
    if not rows.sample.known.any() and all(metric.needs_feedback for metric in metrics):
        raise ContractError(
            f"{log.name}: no row of the scored split ({rows.split}) has feedback, which {settings.metrics} needs; "
            f"try another --split, or --metrics divergence"
        )


def _scored_rows(log: Log, rows: SelectedRows) -> str:
    count, known = rows.sample.rows, int(rows.sample.known.sum())
    which = f"all {count:,} rows" if rows.split == "all" else f"the {count:,} {rows.split} rows"
    which += f" ({log.split.text})" if log.split is not None and rows.split != "all" else ""
    feedback = "all with feedback" if known == count else f"{known:,} of them with feedback"
    labels = "labels" if rows.sample.label is not None else "no labels"
    clusters = "" if rows.sample.cluster is None else f", {int(rows.sample.cluster.max()) + 1:,} clusters"
    return f"{log.name}: scored on {which}, {feedback}, {labels}{clusters}"
