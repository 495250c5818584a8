"""Train rows from a log that is larger than memory: row groups in a new order each epoch, a buffer at a time.

A buffer is some row groups drawn from all over the log; batches are drawn from it as from a log in memory
while the next one is read on a thread. Two buffers are held, whatever the size of the log. The order of the row groups
depends on the epoch alone, so that policies trained side by side or alone see the same buffers.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from s2bl_cli.contract.logs.reading import Log, Stretch, log_arrays
from s2bl_cli.errors import ContractError
from s2bl_cli.training.fitting import Part
from s2bl_cli.training.groups import TrainRows, uniform_hash
from s2bl_cli.training.rows import Rows
from s2bl_cli.training.sampling import epoch_steps

BUFFER_BYTES = 32 << 20
_MOST_BUFFERS = 4  # to a row group
_KNOWN_BYTES = 128 << 20  # of known contexts, for cost models: they need no more
_ROW_BYTES = 40  # of a row's other columns in memory
_SAMPLE_SEED = 0x5A


class StreamedLog:
    """A log that is read anew each epoch. (`ResidentLog` has the same methods.)"""

    def __init__(self, log: Log, columns: tuple[str, ...], buffer_bytes: int = BUFFER_BYTES) -> None:
        self._log, self._columns = log, columns
        self._row_bytes = row_bytes(log, columns)
        self._buffer_bytes = buffer_bytes
        largest = max(stretch.rows for stretch in log.stretches) * self._row_bytes if log.stretches else 0
        if largest > _MOST_BUFFERS * buffer_bytes:
            raise ContractError(
                f"{log.name}: a row group of it takes {largest >> 20:,} MiB, too much to stream; rewrite it in smaller "
                f"ones with s2bl mask --rho 1"
            )
        self._train_rows = self._known = 0
        for rows, _ in self.scan():
            self._train_rows += rows.rows
            self._known += int(rows.known.sum())

    def scan(self, *, contexts: bool = False) -> Iterator[TrainRows]:
        """All train rows, in order; contexts only where they are asked for."""
        columns = self._columns if contexts else tuple(name for name in self._columns if name not in _WIDE)
        at = 0
        for batch in self._log.batches(columns):
            arrays = log_arrays(batch, self._log.spec)
            numbers = np.arange(at, at + batch.num_rows, dtype=np.int64)
            at += batch.num_rows
            yield TrainRows(arrays, numbers).take(~arrays.is_test)

    def known_rows(self) -> TrainRows:
        """Those with feedback; of very many, an even sample."""
        share = min(1.0, _KNOWN_BYTES / max(1, self._known * self._row_bytes))
        kept = [
            part.take(part.rows.known & (uniform_hash(part.number, _SAMPLE_SEED) < share))
            for part in self.scan(contexts=True)
        ]
        return _joined([part for part in kept if part.rows.rows] or kept[:1])

    def steps_to_an_epoch(self, batch_size: int) -> int:
        return epoch_steps(self._train_rows, batch_size)

    def epochs(self, rows_of: Callable[[TrainRows], Rows], batch_size: int) -> Callable[[int], Iterator[Part]]:
        """The parts of an epoch by its number: a buffer each."""

        def parts(epoch: int) -> Iterator[Part]:
            seen = 0
            for part in self._read_ahead(self._buffers(epoch)):
                before, seen = seen, seen + part.rows.rows
                # Whole batches over the epoch, wherever a buffer ends.
                steps = seen // batch_size - before // batch_size
                if part.rows.rows and seen == self._train_rows:
                    steps = max(steps, self.steps_to_an_epoch(batch_size) - before // batch_size)
                rows = rows_of(part)
                del part  # whoever takes the rows decides how long they are held
                if steps:
                    yield Part(rows, steps)
                del rows

        return parts

    def _buffers(self, epoch: int) -> list[list[Stretch]]:
        """The row groups in the epoch's order, as many to a buffer as it holds."""
        stretches = self._log.stretches
        order = np.random.default_rng(epoch).permutation(len(stretches))
        buffers: list[list[Stretch]] = [[]]
        held = 0
        for place in order:
            size = stretches[place].rows * self._row_bytes
            if held + size > self._buffer_bytes and buffers[-1]:
                buffers.append([])
                held = 0
            buffers[-1].append(stretches[place])
            held += size
        return buffers

    def _read_ahead(self, buffers: list[list[Stretch]]) -> Iterator[TrainRows]:
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(self._read, buffers[0])
            for following in [*buffers[1:], None]:
                part = coming.result()
                if following is not None:
                    coming = pool.submit(self._read, following)
                yield part
                del part

    def _read(self, stretches: list[Stretch]) -> TrainRows:
        arrays = self._log.read_stretches(stretches, self._columns)
        numbers = np.concatenate([np.arange(s.first_row, s.first_row + s.rows, dtype=np.int64) for s in stretches])
        return TrainRows(arrays, numbers).take(~arrays.is_test)


_WIDE = ("context", "pi0")


def _joined(parts: list[TrainRows]) -> TrainRows:
    arrays: dict[str, Any] = {
        name: None if value is None else np.concatenate([getattr(part.rows, name) for part in parts])
        for name, value in vars(parts[0].rows).items()
    }
    return TrainRows(type(parts[0].rows)(**arrays), np.concatenate([part.number for part in parts]))


def row_bytes(log: Log, columns: tuple[str, ...]) -> int:
    """Of a row in memory."""
    return log.spec.context.byte_width + _ROW_BYTES + (4 * log.spec.actions if "pi0" in columns else 0)


def is_better_streamed(log: Log, columns: tuple[str, ...]) -> bool:
    """Whether holding the log would fill half of the memory that is left."""
    return log.rows * row_bytes(log, columns) > available_memory() / 2


def available_memory() -> int:
    """Bytes that a process may still take, as far as the system tells; a lot where it does not."""
    found = [1 << 40]
    try:
        with open("/proc/meminfo") as file:
            found += [int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:")]
    except OSError:
        if hasattr(os, "sysconf"):
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    try:
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as taken:
            found.append(int(most.read()) - int(taken.read()))
    except (OSError, ValueError):  # no such limit here
        pass
    return min(found)
