"""Rows that a policy has not seen: the test rows that its training left out, and whether it was trained on scored rows.

According to the lineage, a policy was trained on a log if both go back to the same file. According to the content, it
was if the decisions in its sketch recur in the scored rows more often than chance explains (`contract/row_sketch.py`).
This detects a file that contains its train rows, or a copy that s2bl did not make.
"""

from collections.abc import Sequence
from dataclasses import replace

from s2bl_cli.contract.lineage import all_sources
from s2bl_cli.contract.logs.columns import LogColumns, SplitSettings
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.logs.splitting import covers, split_log, split_of
from s2bl_cli.contract.row_sketch import RowSketch, SeenRows
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.candidates import Candidate
from s2bl_cli.evaluation.selection import SelectedRows

_CLUSTERS = "cluster-column"


def with_test_rows(log: Log, candidates: Sequence[Candidate], columns: LogColumns, given: SplitSettings) -> Log:
    """The log with the given test rows. If none are given and the log has no split, the test rows are those left out by
    the policies that were trained on it."""
    if given.test_share is not None:
        return split_log(log, given)
    if log.spec.has("split"):
        return log
    left_out: dict[tuple[SplitSettings, str | None], Candidate] = {}
    for candidate in candidates:
        if (split := _split(candidate)) is not None and _is_of(candidate, log):
            left_out.setdefault((split, _cluster_column(candidate)), candidate)
    if not left_out:
        return log
    if len(left_out) > 1:
        (one, first), (other, second) = list(left_out.items())[:2]
        raise ContractError(
            f"{log.name}: {first.name} was trained with {_text(*one)} and {second.name} with {_text(*other)}, so they "
            f"have left out different rows; evaluate them separately"
        )
    ((split, cluster_column),) = left_out
    if cluster_column == columns.cluster_column:
        return split_log(log, split)
    # Clusters determine which part a row is in, so use those of the training run.
    as_trained = split_log(log.reopened(replace(columns, cluster_column=cluster_column)), split)
    return (
        as_trained
        if columns.cluster_column is None
        else log.with_test_rows(as_trained.test_rows, split, cluster_column)
    )


class SeenByPolicies:
    """The sketches of the policies, compared with the rows of one pass. Policies from one training run share a
    sketch."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        sketches = [sketch for candidate in candidates if (sketch := _sketch(candidate)) is not None]
        self._seen = {sketch.encode(): SeenRows(sketch) for sketch in sketches}

    @property
    def parts(self) -> list[SeenRows]:
        return list(self._seen.values())

    def share(self, candidate: Candidate) -> float | None:
        """The fraction of the scored rows that it was trained on; None if there is no evidence of any."""
        sketch = _sketch(candidate)
        return None if sketch is None else self._seen[sketch.encode()].share


def trained_on(candidate: Candidate, log: Log, rows: SelectedRows, share: float | None) -> str | None:
    """A warning if the policy was trained on scored rows. `share`: their fraction, determined by content."""
    remedy = _remedy(candidate, log, rows)
    if remedy is not None:
        what = f"{candidate.name} was trained on rows of {log.name} that are scored here"
    elif share is not None:
        what = (
            f"{candidate.name} was trained on about {share:.0%} of the scored rows of {log.name} (the same contexts, "
            f"actions and propensities)"
        )
        remedy = "score it on a log that it has not seen"
    else:
        return None
    return f"{what}; its scores are biased upward: {remedy}"


def _remedy(candidate: Candidate, log: Log, rows: SelectedRows) -> str | None:
    """What to do if, according to its lineage, a policy was trained on scored rows, maybe in a copy with another
    mask."""
    if not _is_of(candidate, log):
        return None
    own, has_train_rows = _split(candidate), bool((rows.mask & ~rows.is_test).any())
    if log.split is not None and own is None:
        return f"train it with {log.split.text}"
    if log.split is not None and own is not None and not _covers(candidate, own, log, log.split):
        return f"pass {_text(own, _cluster_column(candidate))}, which it was trained with"
    if not has_train_rows:
        return None
    if rows.is_test.any():
        return "score it on the test rows, with --split test"
    alternative = "" if log.spec.has("split") else ", or train it with --test-share 0.2"
    return f"score it on a log that it has not seen{alternative}"


def _covers(candidate: Candidate, own: SplitSettings, log: Log, split: SplitSettings) -> bool:
    same_units = split.time_column is not None or _cluster_column(candidate) == log.split_clusters
    return same_units and covers(own, split)


def _is_of(candidate: Candidate, log: Log) -> bool:
    if candidate.loaded is None:
        return False
    learned, scored = (
        {source.sha256 for source in all_sources(inputs) if source.role == "logs"}
        for inputs in (candidate.loaded.policy.lineage.inputs, log.sources)
    )
    return bool(learned & scored)


def _sketch(candidate: Candidate) -> RowSketch | None:
    return None if candidate.loaded is None else candidate.loaded.policy.sketch


def _split(candidate: Candidate) -> SplitSettings | None:
    return None if candidate.loaded is None else split_of(candidate.loaded.policy.lineage.settings)


def _cluster_column(candidate: Candidate) -> str | None:
    assert candidate.loaded is not None
    column = candidate.loaded.policy.lineage.settings.get(_CLUSTERS)
    return column if isinstance(column, str) else None


def _text(split: SplitSettings, cluster_column: str | None) -> str:
    clusters = "" if cluster_column is None or split.time_column is not None else f" --{_CLUSTERS} {cluster_column}"
    return split.text + clusters
