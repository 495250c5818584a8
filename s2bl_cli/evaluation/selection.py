"""Selects the rows of a log to score, and reads all columns except the contexts, which take up most of a log."""

from dataclasses import dataclass, replace

import numpy as np

from s2bl_cli.contract.logs.reading import Log, all_faults_reported
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.settings import AUTO
from s2bl_cli.metrics.sample import LoggedSample, Mask


@dataclass(frozen=True)
class SelectedRows:
    """The rows of the chosen split, and their positions in the log."""

    split: str
    mask: Mask  # (rows of the log,)
    is_test: Mask  # (rows of the log,)
    sample: LoggedSample

    def chosen_of(self, rows: int) -> Mask:
        """Which rows to score in a file that has as many rows as the log, or only the scored ones."""
        return np.ones(rows, bool) if rows == self.sample.rows else self.mask


def select_rows(log: Log, split: str) -> SelectedRows:
    """Read everything except the contexts and keep the split's rows. Costs become rewards here."""
    with all_faults_reported(log):
        arrays = log.read(("action", "propensity", "cost", "label", "split", "cluster"))
    if split == AUTO:
        split = "test" if arrays.is_test.any() else "all"
    if split == "test" and not log.spec.has("split"):
        raise ContractError(f"{log.name}: it has no test split (no column 'split'); try --split all")
    mask = {"test": arrays.is_test, "train": ~arrays.is_test, "all": np.ones(arrays.rows, bool)}[split]
    if not mask.any():
        other = "train" if split == "test" else "test"
        raise ContractError(f"{log.name}: it has no rows of the {split} split; try --split {other}")
    chosen = arrays.take(mask)
    sample = LoggedSample(
        action=chosen.action,
        p=chosen.propensity.astype(np.float64),
        r=np.subtract(0, chosen.cost, dtype=np.float64),
        known=chosen.known,
        label=chosen.label,
        actions=log.spec.actions,
        cluster=None if chosen.cluster is None else np.unique(chosen.cluster, return_inverse=True)[1].reshape(-1),
    )
    _check_clusters(log, sample)
    return SelectedRows(split, mask, arrays.is_test, sample)


def _check_clusters(log: Log, sample: LoggedSample) -> None:
    if sample.cluster is not None and sample.known_units == 1:
        raise ContractError(
            f"{log.name}: all scored rows with feedback are of one cluster, but standard errors need two or more; name "
            f"another --cluster-column, or '' if rows are independent"
        )


def with_declared_range(log: Log, rows: SelectedRows, declared: tuple[float, float] | None) -> SelectedRows:
    """The rows with the declared range of their rewards, which must contain all known rewards."""
    if declared is None:
        return rows
    low, high = np.asarray(declared, np.float32)  # the precision of the log's costs
    reward = rows.sample.r.astype(np.float32)
    outside = np.flatnonzero(rows.sample.known & ((reward < low) | (reward > high)))
    if len(outside):
        first = int(outside[0])
        raise ContractError(
            f"{log.name}: a reward must be in [{declared[0]:g}, {declared[1]:g}] (--reward-range): {len(outside):,} of "
            f"the scored rows, the first is row {np.flatnonzero(rows.mask)[first]} with {rows.sample.r[first]:g} (rows "
            f"count from 0); fix these rows, or declare a range that contains all possible rewards"
        )
    return replace(rows, sample=replace(rows.sample, declared_range=declared))
