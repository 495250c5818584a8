"""Columns: numbers per row and policy that need π(·|x) of all actions, which no memory has room for at once.

The one pass over a log's rows computes the columns that the wanted metrics read, batch by batch, and keeps them. All
metrics are computed from columns. Memory per row and policy: 4 bytes for each of `pi`, `value_hat`, `sampled`, `kl`,
`reverse_kl` and `unsupported`, 1 for `correct`, so at most 25; 12 for a log without labels and without π₀.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

LABEL, REWARD_MODEL, PI0 = "label", "q", "pi0"  # what a column may need: fields of `LogBatch`

TINY = float(np.finfo(np.float32).tiny)

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Probabilities = npt.NDArray[np.float32]  # (rows, actions)


def log_of(probabilities: Array) -> Array:
    """0 counts as the smallest positive float32, so that a divergence that is infinite comes out large."""
    logarithms: Array = np.log(np.maximum(probabilities, TINY))
    return logarithms


@dataclass(frozen=True)
class LogBatch:
    """Rows of a log, without their contexts. What the log does not have is an empty array."""

    action: Ints  # (rows,)
    p: npt.NDArray[np.float32]  # (rows,)
    label: Ints  # (rows,)
    q: Probabilities  # (rows, actions) the reward model's predictions
    pi0: Probabilities  # (rows, actions)
    never_logged: Mask  # (actions,)

    def has(self, need: str | None) -> bool:
        return need is None or len(getattr(self, need)) > 0

    @cached_property
    def index(self) -> npt.NDArray[np.int64]:
        return np.arange(len(self.action))

    @cached_property
    def log_pi0(self) -> Array:
        return log_of(self.pi0)


@dataclass(frozen=True)
class PolicyBatch:
    """The same rows, with one policy's probabilities."""

    pi: Probabilities  # (rows, actions); empty for a policy of which only the draws are known
    log: LogBatch

    @cached_property
    def log_ratio(self) -> Array:
        """ln π − ln π₀: (rows, actions)."""
        ratio: Array = log_of(self.pi) - self.log.log_pi0
        return ratio


@dataclass(frozen=True)
class Column:
    """One number per row. `of_draws` is for a policy of which only the logged actions' probabilities are known, as
    of most logging policies; without it such a policy does not have the column."""

    name: str
    of_policy: Callable[[PolicyBatch], Array]
    needs: str | None = None
    of_draws: Callable[[LogBatch], Array] | None = None
    dtype: type[np.generic] = np.float32

    def values(self, rows: PolicyBatch) -> Array | None:
        if len(rows.pi):
            return self.of_policy(rows)
        return None if self.of_draws is None else self.of_draws(rows.log)


# π(a|x) of the logged action
PI = Column("pi", lambda rows: rows.pi[rows.log.index, rows.log.action], of_draws=lambda log: log.p)

# q̂(x,π) = Σ_a π(a|x) q̂(x,a)
VALUE_HAT = Column("value_hat", lambda rows: np.einsum("ra,ra->r", rows.pi, rows.log.q), REWARD_MODEL)

# whether the likeliest action is the label; ties go to the smallest action
CORRECT = Column("correct", lambda rows: rows.pi.argmax(axis=1) == rows.log.label, LABEL, dtype=np.bool_)

# π(y|x) of the label; of draws, whether the logged action is the label
SAMPLED = Column(
    "sampled",
    lambda rows: rows.pi[rows.log.index, rows.log.label],
    LABEL,
    of_draws=lambda log: log.action == log.label,
)

# KL(π(·|x)‖π₀(·|x)) and KL(π₀(·|x)‖π(·|x))
KL = Column("kl", lambda rows: np.einsum("ra,ra->r", rows.pi, rows.log_ratio), PI0)
REVERSE_KL = Column("reverse_kl", lambda rows: -np.einsum("ra,ra->r", rows.log.pi0, rows.log_ratio), PI0)

# the probability of actions that were never logged
UNSUPPORTED = Column("unsupported", lambda rows: rows.pi[:, rows.log.never_logged].sum(axis=1))
