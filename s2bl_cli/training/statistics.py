"""What is counted in the one pass over the train rows before the first step."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.policies.standardisation import flattened, standardisation
from s2bl_cli.row_hash import uniform_hash
from s2bl_cli.running_moments import RunningMoments
from s2bl_cli.training.candidates import Fold

_SAMPLE_SEED = 0x5A

Floats = npt.NDArray[np.float32]


class TrainRows(NamedTuple):
    """Rows of the train split, and their numbers in the log."""

    rows: LogArrays
    number: npt.NDArray[np.int64]

    def take(self, chosen: npt.NDArray[np.bool_]) -> "TrainRows":
        return TrainRows(self.rows.take(chosen), self.number[chosen])


def joined(parts: list[TrainRows]) -> TrainRows:
    arrays: dict[str, Any] = {
        name: None if value is None else np.concatenate([getattr(part.rows, name) for part in parts])
        for name, value in vars(parts[0].rows).items()
    }
    return TrainRows(LogArrays(**arrays), np.concatenate([part.number for part in parts]))


class KnownColumns(NamedTuple):
    """The rows with feedback, without their contexts: 20 bytes per row."""

    number: npt.NDArray[np.int64]
    action: npt.NDArray[np.int32]
    p: Floats
    c: Floats


@dataclass(frozen=True)
class Statistics:
    """Counts over the train rows."""

    rows: int
    known: KnownColumns
    action_counts: npt.NDArray[np.float64]  # (actions,) over all rows
    shift: Floats  # (features,) the standardisation of the contexts
    scale: Floats
    sample: TrainRows | None  # known rows with contexts, of very many an even sample; None: not asked for

    @cached_property
    def lowest_cost(self) -> float:
        return float(self.known.c.min(initial=np.inf)) if len(self.known.c) else 0.0

    @cached_property
    def highest_cost(self) -> float:
        return float(self.known.c.max(initial=-np.inf)) if len(self.known.c) else 0.0

    def learned(self, fold: Fold) -> npt.NDArray[np.bool_]:
        """Of the known rows, those that policies of the fold learn from."""
        return ~fold.holds_out(self.known.number)

    def learned_count(self, fold: Fold) -> int:
        return int(self.learned(fold).sum())

    def action_weight(self, fold: Fold, *, on_known: bool) -> npt.NDArray[np.float64]:
        """N/m_a over the regularised rows: (actions,), 0 for an action that was never logged."""
        counts = self.action_counts
        if on_known:
            counts = np.bincount(self.known.action[self.learned(fold)], minlength=len(counts)).astype(np.float64)
        weights: npt.NDArray[np.float64] = np.divide(counts.sum(), counts, out=np.zeros_like(counts), where=counts > 0)
        return weights


def count_rows(parts: Iterable[TrainRows], actions: int, *, sample_bytes: int | None) -> Statistics:
    """`sample_bytes`: how large the sample of known rows may be; None: no sample."""
    known: list[KnownColumns] = []
    counts = np.zeros(actions)
    moments = RunningMoments()
    sample: list[TrainRows] = []
    share = 1.0
    rows = 0
    for part, number in parts:
        rows += part.rows
        is_known = np.flatnonzero(part.known)
        known.append(
            KnownColumns(number[is_known], part.action[is_known], part.propensity[is_known], part.cost[is_known])
        )
        counts += np.bincount(part.action, minlength=actions)
        moments.add(flattened(part.context))
        if sample_bytes is not None:
            sample.append(_sampled(TrainRows(part, number).take(part.known), share))
            while sum(part.rows.context.nbytes for part in sample) > sample_bytes:
                share /= 2
                sample = [_sampled(part, share) for part in sample]
    shift, scale = standardisation(moments) if rows else (np.empty(0, np.float32), np.empty(0, np.float32))
    return Statistics(
        rows,
        KnownColumns(*(np.concatenate([getattr(columns, name) for columns in known]) for name in KnownColumns._fields)),
        counts,
        shift,
        scale,
        joined(sample) if sample else None,
    )


def _sampled(rows: TrainRows, share: float) -> TrainRows:
    """Rows by the hash of their number, so that a smaller share is part of a larger one."""
    return rows if share == 1 else rows.take(uniform_hash(rows.number, _SAMPLE_SEED) < share)
