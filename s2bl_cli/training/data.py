"""The train rows of a log: in memory, or streamed from disk every epoch.

A streamed log is read in parts, each some row groups from all over the log. Batches are drawn from a part as from a
log in memory, while the next one is read on a thread. Two parts are held, whatever the size of the log. The order of
the row groups follows from the epoch alone, so that policies trained side by side or alone see the same parts.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.logs.arrays import log_arrays
from s2bl_cli.contract.logs.decoding import RowGroup
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.errors import ContractError
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.statistics import Statistics, TrainRows, count_rows

PART_BYTES = 32 << 20
SAMPLE_BYTES = 128 << 20  # of known contexts, for cost models: they need no more
_MOST_PARTS = 4  # per row group
_ROW_BYTES = 40  # of a row's other columns in memory

Floats = npt.NDArray[np.float64]


class TrainingData:
    """`streamed` is decided by the caller, once. `columns` never has `label`."""

    def __init__(self, log: Log, columns: tuple[str, ...], *, streamed: bool, sample_known: bool) -> None:
        self._log, self._columns, self.streamed = log, columns, streamed
        self._whole: TrainRows | None = None
        if log.rows == 0:
            raise ContractError(f"{log.name}: it has no rows")
        if streamed:
            self._check_row_groups()
        else:
            arrays = log.read(columns)
            self._whole = TrainRows(arrays.take(~arrays.is_test), np.flatnonzero(~arrays.is_test))
        sample_bytes = (SAMPLE_BYTES if streamed else 1 << 62) if sample_known else None
        self.statistics: Statistics = count_rows(self.scan(), log.spec.actions, sample_bytes=sample_bytes)
        if self.statistics.rows == 0:
            raise ContractError(f"{log.name}: it has no train rows to learn from (its rows are all of the test split)")

    def scan(self, *, contexts: bool = True) -> Iterator[TrainRows]:
        """All train rows, in order. Of a streamed log the contexts can be left out."""
        if self._whole is not None:
            yield self._whole
            return
        columns = self._columns if contexts else tuple(name for name in self._columns if name not in _WIDE)
        first = 0
        for batch in self._log.batches(columns):
            arrays = log_arrays(batch, self._log.spec)
            numbers = np.arange(first, first + batch.num_rows, dtype=np.int64)
            first += batch.num_rows
            yield TrainRows(arrays, numbers).take(~arrays.is_test)

    def parts(self, epoch: int) -> Iterator[TrainRows]:
        """The rows of an epoch: all at once, or part by part."""
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
                del part  # or it would be held until two more are read

    def mean_of_propensities(self, function: Callable[[Floats], Floats], fold: Fold, *, on_known: bool) -> float:
        """Over the regularised rows."""
        if on_known:
            known = self.statistics.known
            return float(np.mean(function(known.p[self.statistics.learned(fold)].astype(np.float64))))
        parts = self.scan(contexts=False)
        return sum(float(function(part.rows.propensity.astype(np.float64)).sum()) for part in parts) / (
            self.statistics.rows
        )

    def steps_per_epoch(self, batch_size: int) -> int:
        """Full batches over all train rows, at least one: the same for every learner, so comparisons are fair."""
        return max(1, self.statistics.rows // batch_size)

    def _check_row_groups(self) -> None:
        size = row_bytes(self._log, self._columns)
        largest = max((group.rows for group in self._log.row_groups), default=0) * size
        if largest > _MOST_PARTS * PART_BYTES:
            raise ContractError(
                f"{self._log.name}: a row group takes {largest >> 20:,} MiB, too much to stream; rewrite the log in "
                f"smaller ones with s2bl mask --rho 1"
            )

    def _row_groups(self, epoch: int) -> list[list[RowGroup]]:
        """The row groups in the epoch's order, as many per part as it holds."""
        row_groups = self._log.row_groups
        size = row_bytes(self._log, self._columns)
        parts: list[list[RowGroup]] = [[]]
        held = 0
        for i in np.random.default_rng(epoch).permutation(len(row_groups)):
            added = row_groups[i].rows * size
            if held + added > PART_BYTES and parts[-1]:
                parts.append([])
                held = 0
            parts[-1].append(row_groups[i])
            held += added
        return parts

    def _read(self, row_groups: list[RowGroup]) -> TrainRows:
        arrays = self._log.read_row_groups(row_groups, self._columns)
        numbers = np.concatenate([np.arange(s.first_row, s.first_row + s.rows, dtype=np.int64) for s in row_groups])
        return TrainRows(arrays, numbers).take(~arrays.is_test)


_WIDE = ("context", "pi0")


def row_bytes(log: Log, columns: tuple[str, ...]) -> int:
    """Of a row in memory."""
    return log.spec.context.byte_width + _ROW_BYTES + (4 * log.spec.actions if "pi0" in columns else 0)


def needs_streaming(log: Log, columns: tuple[str, ...]) -> bool:
    """Whether the log would take more than half of the free memory."""
    return log.rows * row_bytes(log, columns) > available_memory() / 2


def available_memory() -> int:
    """Bytes that a process may still take, as far as the system tells; a lot where it does not."""
    limits = [1 << 40]
    try:
        with open("/proc/meminfo") as file:
            limits += [int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:")]
    except OSError:
        if hasattr(os, "sysconf"):
            limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    try:
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as taken:
            limits.append(int(most.read()) - int(taken.read()))
    except (OSError, ValueError):  # no such limit here
        pass
    return min(limits)
