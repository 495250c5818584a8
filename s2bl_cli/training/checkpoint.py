"""What a run keeps to go on from: finished candidates, and the state of those in training.

A run that goes on takes the same steps as one that never stopped, to the last bit: the order of the rows follows from
seed and epoch, so that policies, optimizer and the number of the next step are all there is to keep.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from s2bl_cli.contract.checkpoints import damaged_checkpoint, read_checkpoint, write_checkpoint
from s2bl_cli.contract.lineage import Step

# What a crafted file can raise on the way back into a run.
_MALFORMED = (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError, RuntimeError)


class Checkpoint:
    """The content is one nested dictionary. Without a path nothing is kept."""

    def __init__(
        self, path: str | None = None, *, every_epochs: int | None = None, every_minutes: float | None = None
    ) -> None:
        self.path = path
        self._every_epochs, self._every_minutes = every_epochs, every_minutes
        self._written_at = time.monotonic()
        self._run: Callable[[], Step] | None = None
        self.content: dict[str, Any] = {"streamed": None, "stages": {}, "current": None}

    def resume(self, run: Callable[[], Step]) -> bool:
        """Go on from the file; False if there is none."""
        if self.path is None or not os.path.exists(self.path):
            return False
        content = read_checkpoint(self.path, run())
        with self.checked():
            self.content = {name: content[name] for name in self.content}
        return True

    def start(self, run: Callable[[], Step], *, streamed: bool) -> None:
        """`run`: what a checkpoint must share with the run that goes on from it. Costs a read of the log."""
        self._run = run
        self.content["streamed"] = streamed

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """Around whatever uses content that a file gave."""
        try:
            yield
        except _MALFORMED as error:
            raise damaged_checkpoint(str(self.path)) from error

    def is_due(self, epoch: int) -> bool:
        if self.path is None:
            return False
        minutes = (time.monotonic() - self._written_at) / 60
        by_epochs = self._every_epochs is not None and epoch % self._every_epochs == 0
        return by_epochs or (self._every_minutes is not None and minutes >= self._every_minutes)

    def write(self) -> None:
        if self.path is not None and self._run is not None:
            write_checkpoint(self._run(), self.content, self.path)
            self._written_at = time.monotonic()

    def remove(self) -> None:
        """The run is done: nothing is left to go on from."""
        if self.path is not None and os.path.exists(self.path):
            os.unlink(self.path)
