"""Policies × logs → scores, their lineage, and what to warn of.

A log is read twice: without its contexts, for which rows there are; with them, for all policies at once. Where
reward models are wanted, once more before that, for the sample they are fitted on.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch

from s2bl_cli.contract.lineage import Step, step_of
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.contract.logs.reading import Log, open_logs
from s2bl_cli.contract.scores import Score
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.candidates import LOGGING_CANDIDATE, Candidate, check_fit, trained_on
from s2bl_cli.evaluation.fitted_models import fit_models
from s2bl_cli.evaluation.intervals import IntervalSettings
from s2bl_cli.evaluation.row_pass import Advance, pass_over
from s2bl_cli.evaluation.scores_of import PPI, Scorer
from s2bl_cli.evaluation.selection import SelectedRows, select_rows
from s2bl_cli.evaluation.settings import GROUPS, EvaluateSettings
from s2bl_cli.registry import ESTIMATORS, LABEL_METRICS
from s2bl_cli.settings import recorded, recorded_changes

Progress = Callable[[str, int, str], AbstractContextManager[Advance]]


@dataclass
class Evaluation:
    """All scores; `told` has a line a log on which rows were scored, `warnings` what makes numbers doubtful."""

    scores: list[Score] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def evaluate_policies(
    candidates: Sequence[Candidate],
    logs: Sequence[str],
    columns: LogColumns,
    settings: EvaluateSettings,
    device: torch.device,
    progress: Progress,
) -> tuple[Evaluation, Step]:
    """Every policy on every log."""
    evaluation = Evaluation()
    # The logging policy is scored unasked: it is an input only where nothing else is.
    named = [candidate for candidate in candidates if candidate is not LOGGING_CANDIDATE] or [LOGGING_CANDIDATE]
    sources = [candidate.source for candidate in named]
    for name in logs:
        with open_logs([name], columns) as log:
            score_on_log(candidates, log, settings, device, progress, evaluation)
            sources += log.sources
    step = step_of("evaluate", {**recorded(settings), **recorded_changes(columns)}, tuple(sources))
    return evaluation, step


def score_on_log(
    candidates: Sequence[Candidate],
    log: Log,
    settings: EvaluateSettings,
    device: torch.device,
    progress: Progress,
    evaluation: Evaluation,
) -> None:
    """Add the scores of every policy on one log."""
    rows = select_rows(log, settings.split)
    wanted = settings.chosen
    _check_measurable(log, rows, wanted, settings)
    check_fit(candidates, log, rows)
    evaluation.told.append(_told(log, rows))
    learned = [candidate for candidate in candidates if rows.has_train_rows and trained_on(candidate, log)]
    for candidate in learned:
        evaluation.warnings.append(
            f"{candidate.name} learned from rows of {log.name} that it is scored on here: its values are "
            f"flattered; score it on rows it has not seen, such as --split test"
        )
    values = [name for name in ESTIMATORS.names if name in wanted]
    needs_model = any(name == PPI or ESTIMATORS.load(name).needs_model for name in values)
    models = fit_models(
        log,
        rows,
        with_cost=needs_model or (settings.missing_model and bool(values)),
        with_missingness=bool(values),
        weights_rows=settings.missing_model,
        folds=settings.folds,
        seed=settings.seed,
        device=device,
    )
    is_selective = models.missingness is not None and not settings.missing_model
    if is_selective:
        evaluation.warnings.append(
            f"{log.name}: {models.missingness}: values from the known rows may be off; use --missing-model"
        )
    with progress(f"scoring on {log.name}", rows.rows, "rows") as advance:
        found = pass_over(
            log,
            rows,
            candidates,
            models,
            [LABEL_METRICS.load(name) for name in LABEL_METRICS.names if name in wanted],
            device,
            advance,
            with_divergences=any(name in wanted for name in (*GROUPS["divergence"], *GROUPS["bound"])),
            with_observation=settings.missing_model,
        )
    interval = IntervalSettings(settings.interval, settings.level, settings.draws, settings.seed)
    scorer = Scorer(log, rows, found, wanted, interval, settings.nu)
    for candidate, one in zip(candidates, found.policies, strict=True):
        concerns = ["it learned from these very rows"] if candidate in learned else []
        concerns += ["which rows have feedback depends on context or action"] if is_selective else []
        if (misfit := scorer.misfit(one)) is not None:
            evaluation.warnings.append(f"{candidate.name} on {log.name}: {misfit}; take its intervals for too narrow")
            concerns.append(misfit)
        evaluation.scores += scorer.scores(candidate, one, tuple(concerns))


def _check_measurable(log: Log, rows: SelectedRows, wanted: Sequence[str], settings: EvaluateSettings) -> None:
    """Metrics that were asked for by name and that nothing can be measured of."""
    if rows.label is None and set(wanted) <= set(LABEL_METRICS.names):
        raise ContractError(f"{log.name}: it has no column 'label', which accuracies need: name it with --label-column")
    if not rows.known.any() and set(wanted) <= {*GROUPS["value"], *GROUPS["health"], "theorem1-bound"}:
        raise ContractError(
            f"{log.name}: no row of the scored split ({rows.split}) has feedback, which {settings.metrics} needs; "
            f"try another --split, or --metrics divergence"
        )


def _told(log: Log, rows: SelectedRows) -> str:
    known = int(rows.known.sum())
    which = f"all {rows.rows:,} rows" if rows.split == "all" else f"the {rows.rows:,} {rows.split} rows"
    feedback = "all with feedback" if known == rows.rows else f"{known:,} of them with feedback"
    labels = "labels" if rows.label is not None else "no labels"
    return f"{log.name}: scored on {which}, {feedback}, {labels}"
