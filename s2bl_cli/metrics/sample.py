"""The inputs of metrics: the scored rows of a log, and columns with one number per row and policy.

Columns need π(·|x) of all actions, which does not fit in memory for all rows at once. A single pass over the log
computes the columns that the requested metrics need, batch by batch, and keeps them.

Memory per row and policy: 4 bytes for each of `pi`, `value_hat`, `acted`, `sampled`, `kl`, `reverse_kl` and
`unsupported`, and 1 for `correct`, so at most 29; 12 for a log without labels and without π₀.

π is the policy as it acts (`contract/acts.py`), except in `correct` (argmax) and `sampled` (softmax).

Values are expected rewards. Costs are converted to rewards when the rows are read: r = −c.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

LABEL, REWARD_MODEL, PI0 = "label", "q", "pi0"  # what a column may need: fields of `LogBatch`

TINY = float(np.finfo(np.float32).tiny)

Figure = TypeVar("Figure")
Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Probabilities = npt.NDArray[np.float32]  # (rows, actions)


def log_of(probabilities: Array) -> Array:
    """Logarithm that treats 0 as the smallest positive float32, so that an infinite divergence becomes a large
    number."""
    return np.log(np.maximum(probabilities, TINY))


def numbered(cluster: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Renumber the clusters of some of the rows from 0, counting only those that occur. No number increases."""
    occurs = np.bincount(cluster) > 0
    return (np.cumsum(occurs) - 1)[cluster]


@dataclass(frozen=True)
class LogBatch:
    """Rows of a log, without their contexts. Columns that the log does not have are empty arrays."""

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

    @cached_property
    def is_unsupported(self) -> Probabilities:
        """1 for actions that π₀ cannot take in the context: (rows, actions)."""
        return np.equal(self.pi0, 0).astype(np.float32)


@dataclass(frozen=True)
class PolicyBatch:
    """The same rows, with one policy's probabilities."""

    pi: Probabilities  # (rows, actions), as it acts; empty for a policy if only its draws are known
    log: LogBatch
    plain: Callable[[], Probabilities] | None = None  # the softmax at temperature 1; None if it acts that way

    @cached_property
    def softmax(self) -> Probabilities:
        """(rows, actions)"""
        return self.pi if self.plain is None else self.plain()

    @cached_property
    def log_ratio(self) -> Array:
        """ln π − ln π₀: (rows, actions)."""
        return log_of(self.pi) - self.log.log_pi0


@dataclass(frozen=True)
class Column:
    """One number per row. `of_draws` computes it for a policy whose probabilities are known only for the logged
    actions, as for most logging policies. Without `of_draws`, such a policy does not have the column."""

    name: str
    of_policy: Callable[[PolicyBatch], Array]
    needs: str | None = None
    of_draws: Callable[[LogBatch], Array] | None = None
    dtype: type[np.generic] = np.float32

    def values(self, rows: PolicyBatch) -> Array | None:
        if len(rows.pi):
            return self.of_policy(rows)
        return None if self.of_draws is None else self.of_draws(rows.log)


# π(a|x) for the logged action
PI = Column("pi", lambda rows: rows.pi[rows.log.index, rows.log.action], of_draws=lambda log: log.p)

# q̂(x,π) = Σ_a π(a|x) q̂(x,a); for draws, q̂(x,a) of the logged action, which has that expectation. With w = 1, f + w(r
# − q) is then r: `dr` of the logging policy is the mean reward.
VALUE_HAT = Column(
    "value_hat",
    lambda rows: np.einsum("ra,ra->r", rows.pi, rows.log.q),
    REWARD_MODEL,
    of_draws=lambda log: log.q[log.index, log.action],
)

# whether the most likely action is the label; ties go to the smallest action
CORRECT = Column("correct", lambda rows: rows.softmax.argmax(axis=1) == rows.log.label, LABEL, dtype=np.bool_)

# π(y|x) for the label, from the softmax at temperature 1; for draws, whether the logged action is the label
SAMPLED = Column(
    "sampled",
    lambda rows: rows.softmax[rows.log.index, rows.log.label],
    LABEL,
    of_draws=lambda log: log.action == log.label,
)

# the same for the policy as it acts
ACTED = Column(
    "acted",
    lambda rows: rows.pi[rows.log.index, rows.log.label],
    LABEL,
    of_draws=lambda log: log.action == log.label,
)

# KL(π(·|x)‖π₀(·|x)) and KL(π₀(·|x)‖π(·|x))
KL = Column("kl", lambda rows: np.einsum("ra,ra->r", rows.pi, rows.log_ratio), PI0)
REVERSE_KL = Column("reverse_kl", lambda rows: -np.einsum("ra,ra->r", rows.log.pi0, rows.log_ratio), PI0)


def _unsupported(rows: PolicyBatch) -> Array:
    """The probability of actions that the logging policy cannot take in this context or, if the log does not store π₀,
    of actions that were never logged in any context."""
    if rows.log.has(PI0):
        return np.asarray(np.einsum("ra,ra->r", rows.pi, rows.log.is_unsupported))
    return np.asarray(rows.pi[:, rows.log.never_logged].sum(axis=1))


UNSUPPORTED = Column("unsupported", _unsupported)


@dataclass(frozen=True)
class LoggedSample:
    """The scored rows of a log, without their contexts."""

    action: Ints  # (rows,)
    p: Floats  # (rows,)
    r: Floats  # (rows,) 0 if missing
    known: Mask  # (rows,)
    label: Ints | None
    actions: int
    q: npt.NDArray[np.float32] | None = None  # (rows,) q̂(x,a) of the logged action; None without a reward model
    observed: npt.NDArray[np.float32] | None = None  # (rows,) P(known | x, a); None without a model of missingness
    declared_range: tuple[float, float] | None = None  # the smallest and the largest possible reward; None: unknown
    cluster: npt.NDArray[np.int64] | None = None  # (rows,) numbers from 0; None if rows are independent

    @property
    def rows(self) -> int:
        return len(self.action)

    @cached_property
    def known_cluster(self) -> npt.NDArray[np.int64] | None:
        """The clusters of the known rows."""
        return None if self.cluster is None else numbered(self.cluster[self.known])

    @property
    def known_units(self) -> int:
        """The number of clusters with feedback or, without clusters, of rows with feedback."""
        if self.known_cluster is None:
            return int(self.known.sum())
        return int(self.known_cluster.max(initial=-1)) + 1

    def cluster_of(self, rows: int) -> npt.NDArray[np.int64] | None:
        """The clusters for an estimate with this number of rows: all rows, or the known ones."""
        return self.cluster if rows == self.rows else self.known_cluster

    @cached_property
    def rows_by_class(self) -> dict[int, npt.NDArray[np.int64]]:
        """The rows of every class that occurs."""
        assert self.label is not None
        order = np.argsort(self.label, kind="stable")
        classes, starts = np.unique(self.label[order], return_index=True)
        return dict(zip(classes.tolist(), np.split(order, starts[1:]), strict=True))


@dataclass(frozen=True)
class KnownRows:
    """The rows with feedback and one policy, in the notation of the estimators:

        r    reward of the logged action             w    π(a|x)/p, the importance weight
        p    propensity of the logged action         q    q̂(x,a), the reward that a model expects of the logged action
        π    π(a|x) of the logged action             f    q̂(x,π) = Σ_a π(a|x) q̂(x,a)

    The parameters of an estimator are chosen on the rows `tuned_on`. Terms of these rows and of those rows then have
    the same parameters and can be compared.
    """

    r: Floats  # (n,), like all fields except the last two
    p: Floats
    pi: Floats
    q: Floats  # empty without a reward model
    f: Floats
    nu: float  # truncation ν
    tuned_on: "KnownRows | None" = None  # None: these
    known: Mask | None = (
        None  # (N,) mask of these rows among all rows; None with a model of missingness, which uses the others
    )
    f_of_all: npt.NDArray[np.float32] | None = None  # (N,)
    declared_range: tuple[float, float] | None = None  # of the rewards; None: not declared

    @property
    def tuning(self) -> "KnownRows":
        return self.tuned_on or self

    @property
    def n(self) -> int:
        return len(self.r)

    @cached_property
    def w(self) -> Floats:
        return self.pi / self.p

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """The declared range of the rewards, or the smallest and the largest reward of these rows."""
        return self.declared_range or (float(self.r.min()), float(self.r.max()))

    @property
    def reward_span(self) -> float:
        """The largest possible reward minus the smallest."""
        low, high = self.reward_range
        return high - low

    @property
    def reward_span_with_0(self) -> float:
        """The same with 0 included in the range, because w·r is 0 if π is 0."""
        low, high = self.reward_range
        return max(0.0, high) - min(0.0, low)

    def scaled(self, low: float, span: float) -> "KnownRows":
        """The same rows with rewards (r − low)/span in [0, 1]; rewards are 0 if the span is 0."""
        r = ((self.r - low) / span).clip(0, 1) if span > 0 else np.zeros(self.n)
        return replace(self, r=r, declared_range=(0.0, 1.0))

    @property
    def largest_weight(self) -> float:
        """The largest weight that any policy can have in these rows: π ≤ 1."""
        return 1 / float(self.p.min())


@dataclass(frozen=True)
class ScoredPolicy:
    """The rows with a policy's columns. Values that several metrics need are computed once, on first use."""

    sample: LoggedSample
    columns: Mapping[str, Array]  # (rows,) each, by the column's name
    nu: float = 0.001
    level: float = 0.95
    concerns: tuple[str, ...] = ()  # additional reasons not to trust values from the log
    _kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, figure: "Callable[[ScoredPolicy], Figure]") -> "Figure":
        """Compute a figure for this policy. Metrics that need the same figure share it."""
        if figure not in self._kept:
            self._kept[figure] = figure(self)
        kept: Figure = self._kept[figure]
        return kept

    def has(self, column: Column) -> bool:
        return column.name in self.columns

    def values(self, column: Column) -> Floats:
        return self.columns[column.name].astype(np.float64)

    @cached_property
    def pi(self) -> Floats:
        return self.values(PI)

    @cached_property
    def w(self) -> Floats:
        """The weights of all rows, with feedback or without."""
        return self.pi / self.sample.p

    @cached_property
    def log_ratio(self) -> Floats:
        """ln π − ln p of the logged actions."""
        return log_of(self.pi) - log_of(self.sample.p)

    @cached_property
    def known_rows(self) -> KnownRows:
        return self._rows(self.sample.r, self.sample.known)

    @cached_property
    def predicted_rows(self) -> KnownRows | None:
        """All rows, with predicted rewards, if there is a model of missingness."""
        if self.sample.observed is None or self.sample.q is None:
            return None
        return self._rows(self.sample.q.astype(np.float64), np.ones(self.sample.rows, bool))

    def _rows(self, reward: Floats, chosen: Mask) -> KnownRows:
        q, f = self.sample.q, self.columns.get(VALUE_HAT.name)
        return KnownRows(
            r=reward[chosen],
            p=self.sample.p[chosen],
            pi=self.columns[PI.name][chosen].astype(np.float64),
            q=np.empty(0) if q is None else q[chosen].astype(np.float64),
            f=np.empty(0) if f is None else f[chosen].astype(np.float64),
            nu=self.nu,
            known=chosen if self.sample.observed is None else None,
            f_of_all=f,
            declared_range=self.sample.declared_range,
        )
