"""Signals that ask a run to stop. The run stops between two steps, so that the checkpoint is complete."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


class Interrupted(Exception):  # noqa: N818 (not an error: the user asked for it)
    """The run was asked to stop, and stopped between two steps."""


@contextlib.contextmanager
def noted_signals() -> Iterator[Callable[[], bool]]:
    """Catch SIGINT, SIGTERM and SIGHUP inside the block; yields a function that returns whether one was received.

    A run that stops with `Interrupted` then ends as the signal would have ended it. A second signal ends it
    immediately.
    """
    received: list[int] = []
    with contextlib.ExitStack() as previous_handlers:

        def note(number: int, frame: FrameType | None) -> None:
            received.append(number)
            previous_handlers.close()

        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                previous_handlers.callback(signal.signal, number, signal.signal(number, note))
        try:
            yield lambda: bool(received)
        except Interrupted:
            signal.raise_signal(received[0])
            raise
