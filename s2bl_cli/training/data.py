"""The train rows of a log, in memory or streamed from disk every epoch, and the statistics computed before the first
step.

A streamed log is read in parts, each made up of row groups from all over the log. Batches are drawn from a part as they
would be from a log in memory, while a thread reads the next part. Only two parts are in memory, whatever the size of
the log. The order of the row groups depends only on the epoch, so policies see the same parts whether they are trained
together or alone.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.logs.arrays import LogArrays, log_arrays
from s2bl_cli.contract.logs.decoding import RowGroup
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.row_sketch import RowSketch, SketchBuilder
from s2bl_cli.errors import ContractError
from s2bl_cli.policies.contexts import ContextMoments
from s2bl_cli.row_hash import uniform_hash
from s2bl_cli.training.candidates import Fold

PART_BYTES = 32 << 20
SAMPLE_BYTES = 128 << 20  # of known contexts, for reward models: they need no more
_SAMPLE_SEED = 1 << 32 | 0x5A  # beyond the seeds of users, whose folds must not follow the sample
_MOST_PARTS = 4  # per row group
_ROW_BYTES = 40  # memory used by a row's other columns
_WIDE = ("context", "pi0")

Floats = npt.NDArray[np.float64]


class TrainRows(NamedTuple):
    """Rows of the train split, and their numbers. These are cluster numbers if the log has clusters, and row numbers
    otherwise. Rows with the same number are held out together."""

    rows: LogArrays
    number: npt.NDArray[np.int64]
    o: npt.NDArray[np.float32] | None = None  # 1/P(known | x, a) of the known rows; None: not modelled, so 1

    def take(self, chosen: npt.NDArray[np.bool_]) -> "TrainRows":
        return TrainRows(self.rows.take(chosen), self.number[chosen], None if self.o is None else self.o[chosen])

    def learned(self, fold: Fold) -> npt.NDArray[np.bool_]:
        """The rows whose feedback policies of the fold learn from."""
        return self.rows.known & ~fold.holds_out(self.number)


WeightModel = Callable[[TrainRows], npt.NDArray[np.float32]]  # 1/P(known | x, a) of the known rows, 1 for others


def joined(parts: list[TrainRows]) -> TrainRows:
    arrays: dict[str, Any] = {
        name: None if value is None else np.concatenate([getattr(part.rows, name) for part in parts])
        for name, value in vars(parts[0].rows).items()
    }
    return TrainRows(LogArrays(**arrays), np.concatenate([part.number for part in parts]))


class KnownColumns(NamedTuple):
    """The rows with feedback, without their contexts: 24 bytes per row."""

    number: npt.NDArray[np.int64]
    action: npt.NDArray[np.int32]
    p: npt.NDArray[np.float32]
    c: npt.NDArray[np.float32]
    o: npt.NDArray[np.float32]  # weights: 1/P(known | x, a), or 1


class Contrast(NamedTuple):
    """A sample of rows with feedback and one of rows without; empty if not requested."""

    rows: TrainRows
    known_share: float  # fraction of the known rows that is sampled
    missing_share: float


@dataclass(frozen=True)
class Statistics:
    """Counts over the train rows."""

    rows: int
    known: KnownColumns
    action_counts: npt.NDArray[np.float64]  # (actions,) over all rows
    shift: npt.NDArray[np.float32]  # (features,) the standardisation of the contexts
    scale: npt.NDArray[np.float32]
    sample: TrainRows  # known rows with contexts, evenly sampled if there are very many; empty if not requested
    contrast: Contrast
    sketch: RowSketch  # identifies the policy's train rows later

    @cached_property
    def cost_range(self) -> tuple[float, float]:
        """The lowest and highest known cost."""
        costs = self.known.c
        return (float(costs.min()), float(costs.max())) if len(costs) else (0.0, 0.0)

    def learned(self, fold: Fold) -> npt.NDArray[np.bool_]:
        """A mask of the known rows that policies of the fold learn from."""
        return ~fold.holds_out(self.known.number)

    def learned_count(self, fold: Fold) -> int:
        return int(self.learned(fold).sum())

    def without_held_out(self, fold: Fold) -> "Statistics":
        """The same statistics without the feedback that policies of the fold must not learn from."""
        learned = self.learned(fold)
        return replace(self, known=KnownColumns._make(column[learned] for column in self.known))

    def mean_o(self, fold: Fold) -> float:
        """The mean weight of the known rows that policies of the fold learn from."""
        o = self.known.o[self.learned(fold)]
        return float(o.mean(dtype=np.float64)) if len(o) else 1.0

    def action_weight(self, fold: Fold, *, on_known: bool) -> npt.NDArray[np.float64]:
        """N/m_a over the regularised rows: (actions,), 0 for an action that was never logged."""
        counts = self.action_counts
        if on_known:
            learned = self.learned(fold)
            o = self.known.o[learned].astype(np.float64)
            counts = np.asarray(np.bincount(self.known.action[learned], o, len(counts)), np.float64)
        weights: npt.NDArray[np.float64] = np.divide(counts.sum(), counts, out=np.zeros_like(counts), where=counts > 0)
        return weights


class _Sample:
    """A sample of limited size, chosen by the hash of the row number, so a smaller sample is a subset of a larger
    one."""

    def __init__(self, limit: int) -> None:
        self._limit, self._parts, self._chosen = limit, list[TrainRows](), 0
        self.share = 1.0  # of the hashes, those that are sampled

    def add(self, rows: TrainRows, chosen: npt.NDArray[np.bool_]) -> None:
        """Add those of the chosen rows that belong to the sample."""
        count = sum(part.rows.rows for part in self._parts)
        self._chosen += int(chosen.sum())
        if self._limit == 0:
            chosen = np.zeros_like(chosen)
        elif self.share < 1 or count + int(chosen.sum()) > self._limit:
            hashed = uniform_hash(rows.number, _SAMPLE_SEED)
            while count + int((chosen & (hashed < self.share)).sum()) > self._limit:
                self.share /= 2
                self._parts = [part.take(uniform_hash(part.number, _SAMPLE_SEED) < self.share) for part in self._parts]
                count = sum(part.rows.rows for part in self._parts)
            chosen = chosen & (hashed < self.share)
        self._parts.append(rows.take(chosen))

    @property
    def rows(self) -> TrainRows:
        return joined(self._parts)

    @property
    def sampled_share(self) -> float:
        """Of the chosen rows, those in the sample: not quite `share`, because clusters are sampled whole."""
        return sum(part.rows.rows for part in self._parts) / max(1, self._chosen)


def count_rows(
    parts: Iterable[TrainRows], actions: int, *, sample_bytes: int = 0, contrast_rows: int = 0
) -> Statistics:
    """`sample_bytes`: maximum size of the sample of known rows. `contrast_rows`: maximum number of known rows, and of
    missing ones, in the contrast."""
    columns: list[KnownColumns] = []
    counts = np.zeros(actions)
    moments = ContextMoments()
    sketch = SketchBuilder()
    known, missing = _Sample(contrast_rows), _Sample(contrast_rows)
    sample: _Sample | None = None
    for part in parts:
        rows, is_known = part.rows, part.rows.known
        ones = np.ones(int(is_known.sum()), np.float32)
        columns.append(
            KnownColumns(
                part.number[is_known], rows.action[is_known], rows.propensity[is_known], rows.cost[is_known], ones
            )
        )
        counts += np.bincount(rows.action, minlength=actions)
        moments.add(rows.context)
        sketch.add(rows.context, rows.action, rows.propensity)
        sample = sample or _Sample(sample_bytes // max(1, rows.context[:1].nbytes))
        sample.add(part, is_known)
        known.add(part, is_known)
        missing.add(part, ~is_known)
    assert sample is not None
    return Statistics(
        int(counts.sum()),
        KnownColumns(*map(np.concatenate, zip(*columns, strict=True))),
        counts,
        *moments.standardisation,
        sample.rows,
        Contrast(joined([known.rows, missing.rows]), known.sampled_share, missing.sampled_share),
        sketch.sketch,
    )


class TrainingData:
    """The caller decides once whether the log is `streamed`. `columns` never includes `label`. `contrast_rows`: maximum
    number of rows with feedback, and of rows without, in the contrast."""

    def __init__(
        self, log: Log, columns: tuple[str, ...], *, streamed: bool, sample_known: bool, contrast_rows: int = 0
    ) -> None:
        self._log, self._columns, self.streamed = log, columns, streamed
        self._model_o: WeightModel | None = None
        self._row_bytes = row_bytes(log, columns)
        self._whole: TrainRows | None = None
        if log.rows == 0:
            raise ContractError(f"{log.name}: it has no rows")
        if streamed:
            self._check_row_groups()
        else:
            arrays = log.read(columns)
            self._whole = _train_rows(arrays, np.arange(arrays.rows, dtype=np.int64))
        sample_bytes = SAMPLE_BYTES if streamed else 1 << 62
        self.statistics = count_rows(
            self.scan(),
            log.spec.actions,
            sample_bytes=sample_bytes if sample_known else 0,
            contrast_rows=contrast_rows,
        )
        if self.statistics.rows == 0:
            raise ContractError(f"{log.name}: it has no train rows to learn from (its rows are all of the test split)")

    def weigh_known(self, model: WeightModel) -> None:
        """Weight known rows by the model from now on. This takes one pass over the contexts."""
        self._model_o = model
        if self._whole is not None:
            self._whole = self._weighed(self._whole)
        statistics = self.statistics
        o = [part.o[part.rows.known] for part in self.scan() if part.o is not None]
        known = statistics.known._replace(o=np.concatenate(o))
        self.statistics = replace(statistics, known=known, sample=self._weighed(statistics.sample))

    def take_contrast(self) -> Contrast:
        """Return the contrast and release it."""
        contrast = self.statistics.contrast
        nothing = contrast.rows.take(np.zeros(contrast.rows.rows.rows, bool))
        self.statistics = replace(self.statistics, contrast=contrast._replace(rows=nothing))
        return contrast

    def _weighed(self, rows: TrainRows) -> TrainRows:
        return rows if self._model_o is None else rows._replace(o=self._model_o(rows))

    @property
    def has_pi0(self) -> bool:
        """Whether rows have the logging policy's probabilities of all actions."""
        return "pi0" in self._columns

    @property
    def has_clusters(self) -> bool:
        return "cluster" in self._columns and self._log.spec.has("cluster")

    def scan(self, *, contexts: bool = True) -> Iterator[TrainRows]:
        """All train rows, in order. Contexts can be skipped if the log is streamed."""
        if self._whole is not None:
            yield self._whole
            return
        columns = self._columns if contexts else tuple(name for name in self._columns if name not in _WIDE)
        first = 0
        for batch in self._log.batches(columns):
            arrays = log_arrays(batch, self._log.spec)
            numbers = np.arange(first, first + batch.num_rows, dtype=np.int64)
            first += batch.num_rows
            part = _train_rows(arrays, numbers)
            yield self._weighed(part) if contexts else part

    def parts(self, epoch: int) -> Iterator[TrainRows]:
        """The rows of an epoch: all at once, or one part at a time."""
        if self._whole is not None:
            yield self._whole
            return
        parts = self._row_groups(epoch)
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(self._read, parts[0])
            for following in [*parts[1:], None]:
                part = coming.result()
                if following is not None:
                    coming = pool.submit(self._read, following)
                yield part
                del part  # free it before two more parts are read

    def mean_of_propensities(self, function: Callable[[Floats], Floats], fold: Fold, *, on_known: bool) -> float:
        """The mean over the regularised rows."""
        if on_known:
            known, learned = self.statistics.known, self.statistics.learned(fold)
            return float(np.average(function(known.p[learned].astype(np.float64)), weights=known.o[learned]))
        propensities = (part.rows.propensity.astype(np.float64) for part in self.scan(contexts=False))
        return sum(float(function(p).sum()) for p in propensities) / self.statistics.rows

    def _check_row_groups(self) -> None:
        largest = max((group.rows for group in self._log.row_groups), default=0) * self._row_bytes
        if largest > _MOST_PARTS * PART_BYTES:
            raise ContractError(
                f"{self._log.name}: a row group takes {largest >> 20:,} MiB, too much to stream; rewrite the log in "
                f"smaller ones with s2bl mask --rho 1"
            )

    def _row_groups(self, epoch: int) -> list[list[RowGroup]]:
        """The row groups in the epoch's order, grouped into parts that fit in memory."""
        row_groups = self._log.row_groups
        parts: list[list[RowGroup]] = [[]]
        part_bytes = 0
        for i in np.random.default_rng(epoch).permutation(len(row_groups)):
            added = row_groups[i].rows * self._row_bytes
            if part_bytes + added > PART_BYTES and parts[-1]:
                parts.append([])
                part_bytes = 0
            parts[-1].append(row_groups[i])
            part_bytes += added
        return parts

    def _read(self, row_groups: list[RowGroup]) -> TrainRows:
        arrays = self._log.read_row_groups(row_groups, self._columns)
        numbers = np.concatenate([np.arange(s.first_row, s.first_row + s.rows, dtype=np.int64) for s in row_groups])
        return self._weighed(_train_rows(arrays, numbers))


def _train_rows(arrays: LogArrays, numbers: npt.NDArray[np.int64]) -> TrainRows:
    return TrainRows(arrays, numbers if arrays.cluster is None else arrays.cluster).take(~arrays.is_test)


def row_bytes(log: Log, columns: tuple[str, ...]) -> int:
    """The size of a row in memory."""
    return log.spec.context.byte_width + _ROW_BYTES + (4 * log.spec.actions if "pi0" in columns else 0)


def needs_streaming(log: Log, columns: tuple[str, ...]) -> bool:
    """Whether the log would take more than half of the free memory."""
    return log.rows * row_bytes(log, columns) > available_memory() / 2


def available_memory() -> int:
    """Bytes of free memory; 1 TiB if the system does not report it."""
    limits = [1 << 40]
    try:
        with open("/proc/meminfo") as file:
            limits += [int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:")]
    except OSError:
        if hasattr(os, "sysconf"):
            limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    with (
        contextlib.suppress(OSError, ValueError),  # no such limit on this system
        open("/sys/fs/cgroup/memory.max") as most,
        open("/sys/fs/cgroup/memory.current") as taken,
    ):
        limits.append(int(most.read()) - int(taken.read()))
    return min(limits)
