"""Which rows of a log are scored, and their columns but for the contexts. A quick pass: contexts are most of a log."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.logs.arrays import log_arrays
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.settings import AUTO

_COLUMNS = ("action", "propensity", "cost", "label", "split")

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SelectedRows:
    """The rows of the chosen split, without contexts; and where in the log they are."""

    split: str
    mask: Mask  # (rows of the log,)
    has_train_rows: bool
    action: npt.NDArray[np.int32]  # (rows,) from here on
    p: npt.NDArray[np.float64]
    reward: npt.NDArray[np.float64]  # −cost, 0 where missing
    known: Mask
    label: npt.NDArray[np.int32] | None

    @property
    def rows(self) -> int:
        return len(self.action)


@contextmanager
def all_faults_told(log: Log) -> Iterator[None]:
    """A pass over some of the columns tells their faults alone: whoever mends them would meet the others next."""
    try:
        yield
    except ContractError:
        log.check()
        raise


def select_rows(log: Log, split: str) -> SelectedRows:
    """Read all but the contexts and keep the split's rows."""
    parts: list[dict[str, npt.NDArray[Any]]] = []
    with all_faults_told(log):
        for batch in log.batches(_COLUMNS):
            rows = log_arrays(batch, log.spec)
            named = {"action": rows.action, "p": rows.propensity, "cost": rows.cost, "known": rows.known}
            parts.append({**named, "is_test": rows.is_test, **({} if rows.label is None else {"label": rows.label})})
    if not parts:
        raise ContractError(f"{log.name}: it has no rows")
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    is_test = whole["is_test"]
    if split == AUTO:
        split = "test" if is_test.any() else "all"
    if split == "test" and not log.spec.has("split"):
        raise ContractError(f"{log.name}: it has no test split (no column 'split'); try --split all")
    mask = {"test": is_test, "train": ~is_test, "all": np.ones(len(is_test), bool)}[split]
    if not mask.any():
        other = "train" if split == "test" else "test"
        raise ContractError(f"{log.name}: it has no rows of the {split} split; try --split {other}")
    return SelectedRows(
        split=split,
        mask=mask,
        has_train_rows=bool((mask & ~is_test).any()),
        action=whole["action"][mask],
        p=whole["p"][mask].astype(np.float64),
        reward=-whole["cost"][mask].astype(np.float64),
        known=whole["known"][mask],
        label=whole["label"][mask] if "label" in whole else None,
    )
