"""What is counted once over the whole log, before the first step, for each group of policies."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from s2bl_cli.training.groups import Group, TrainRows

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KnownRows:
    """The costs of the rows with feedback: 12 bytes a row."""

    number: npt.NDArray[np.int64]  # in the log's train rows
    c: npt.NDArray[np.float32]


@dataclass(frozen=True)
class LogFacts:
    """Counts over the train rows. Those that depend on who learns from what have one entry a group."""

    rows: int
    known: KnownRows
    learned_known: tuple[int, ...]  # known rows that the group learns from
    reg_rows: tuple[int, ...]  # rows that the group's regulariser sees
    action_counts: Floats  # (groups, actions) of the regularised rows
    betas: tuple[float, ...]
    sharpened_means: Floats  # (groups, betas) mean of min(p, cap)^β over the regularised rows

    @property
    def action_weight(self) -> Floats:
        """N/m_a: (groups, actions), 0 for an action never logged."""
        rows = np.asarray(self.reg_rows, np.float64)[:, None]
        return np.divide(rows, self.action_counts, out=np.zeros_like(self.action_counts), where=self.action_counts > 0)

    @property
    def lowest_cost(self) -> float:
        return float(self.known.c.min()) if len(self.known.c) else 0.0

    @property
    def highest_cost(self) -> float:
        return float(self.known.c.max()) if len(self.known.c) else 0.0


def count_log(
    parts: Iterable[TrainRows],
    groups: Sequence[Group],
    actions: int,
    *,
    reg_on_known: bool,
    betas: Sequence[float] = (),
    cap: float = 1.0,
) -> LogFacts:
    """One pass over the train rows; contexts are not looked at."""
    known: list[KnownRows] = []
    learned = np.zeros(len(groups), np.int64)
    reg_rows = np.zeros(len(groups), np.int64)
    counts = np.zeros((len(groups), actions))
    sharpened = np.zeros((len(groups), len(betas)))
    at = 0
    for part, numbers in parts:
        at += part.rows
        is_known = np.flatnonzero(part.known)
        known.append(KnownRows(numbers[is_known], part.cost[is_known]))
        for g, group in enumerate(groups):
            learns = group.learns_from(part, numbers)
            learned[g] += learns.sum()
            rows = learns if reg_on_known else slice(None)
            counts[g] += np.bincount(part.action[rows], minlength=actions)
            p = np.minimum(part.propensity[rows].astype(np.float64), cap)
            reg_rows[g] += len(p)
            sharpened[g] += [np.sum(p**beta) for beta in betas]
    joined = KnownRows(*(np.concatenate([getattr(part, name) for part in known]) for name in KnownRows.__annotations__))
    return LogFacts(
        at,
        joined,
        tuple(learned.tolist()),
        tuple(reg_rows.tolist()),
        counts,
        tuple(betas),
        sharpened / np.maximum(reg_rows, 1)[:, None],
    )
