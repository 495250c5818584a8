"""From a policy's columns to its rows of a scores file: every metric's estimates, with intervals."""

import math
from collections.abc import Iterator, Sequence

from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.scores import BIN, Score
from s2bl_cli.evaluation.candidates import Candidate
from s2bl_cli.metrics.intervals import BOOTSTRAP, IntervalSettings, intervals
from s2bl_cli.metrics.metric import Metric
from s2bl_cli.metrics.sample import ScoredPolicy


def policy_scores(
    candidate: Candidate,
    policy: ScoredPolicy,
    metrics: Sequence[Metric],
    log: Log,
    split: str,
    settings: IntervalSettings,
) -> Iterator[Score]:
    """In the order of the metrics. What cannot be measured, or is no number, has no score."""
    facts = candidate.facts(log)
    measured = (
        (metric.name, estimate)
        for metric in metrics
        if metric.is_measurable(policy)
        for estimate in metric.compute(policy)
        if math.isfinite(estimate.value)
    )
    # The bootstrap draws once for all; other intervals need no more than one estimate's terms in memory.
    groups = [list(measured)] if settings.kind == BOOTSTRAP else ([named] for named in measured)
    for group in groups:
        made = intervals([estimate for _, estimate in group], settings)
        for (name, estimate), interval in zip(group, made, strict=True):
            yield Score(
                **facts,
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
