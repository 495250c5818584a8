"""Which rows of a log are scored, and their columns except the contexts. A quick pass: contexts are most of a log."""

from dataclasses import dataclass

import numpy as np

from s2bl_cli.contract.logs.reading import Log, all_faults_reported
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.settings import AUTO
from s2bl_cli.metrics.sample import LoggedSample, Mask


@dataclass(frozen=True)
class SelectedRows:
    """The rows of the chosen split, and where in the log they are."""

    split: str
    mask: Mask  # (rows of the log,)
    is_test: Mask  # (rows of the log,)
    sample: LoggedSample

    def chosen_of(self, rows: int) -> Mask:
        """Which rows of a file to score that has as many rows as the log, or the scored ones alone."""
        return np.ones(rows, bool) if rows == self.sample.rows else self.mask


def select_rows(log: Log, split: str) -> SelectedRows:
    """Read all but the contexts and keep the split's rows. Here costs become rewards."""
    with all_faults_reported(log):
        arrays = log.read(("action", "propensity", "cost", "label", "split"))
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
    )
    return SelectedRows(split, mask, arrays.is_test, sample)
