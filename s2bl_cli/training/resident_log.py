"""The train rows in memory, once, in the dtype of the file."""

from collections.abc import Callable, Iterator

import numpy as np

from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.training.fitting import Part
from s2bl_cli.training.groups import TrainRows
from s2bl_cli.training.rows import Rows
from s2bl_cli.training.sampling import epoch_steps


class ResidentLog:
    """A log that fits into memory. (`StreamedLog` has the same methods.)"""

    def __init__(self, log: Log, columns: tuple[str, ...]) -> None:
        arrays = log.read(columns)
        self._train = TrainRows(arrays.take(~arrays.is_test), np.flatnonzero(~arrays.is_test))

    def scan(self, *, contexts: bool = False) -> Iterator[TrainRows]:
        """All train rows, in order; a stream hands out contexts only where they are asked for."""
        yield self._train

    def known_rows(self) -> TrainRows:
        """Those with feedback."""
        return self._train.take(self._train.rows.known)

    def steps_to_an_epoch(self, batch_size: int) -> int:
        return epoch_steps(self._train.rows.rows, batch_size)

    def epochs(self, rows_of: Callable[[TrainRows], Rows], batch_size: int) -> Callable[[int], Iterator[Part]]:
        """The parts of an epoch by its number: here one, which stays on the device."""
        part = Part(rows_of(self._train), self.steps_to_an_epoch(batch_size))
        return lambda epoch: iter((part,))
