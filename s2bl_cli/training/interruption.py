"""Signals that ask a run to stop: noted, and obeyed between two steps, so that nothing is left half done."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupted(Exception):  # noqa: N818 (no error: somebody asked for it)
    """The run was asked to stop, and stopped between two steps."""


class Interruption:
    """Which signal came, if one did."""

    def __init__(self) -> None:
        self.number: int | None = None

    def requested(self) -> bool:
        return self.number is not None

    def exit(self) -> None:
        """End the command the way the signal would have."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.number is not None:
            raise SystemExit(128 + self.number)


@contextlib.contextmanager
def noted_signals() -> Iterator[Interruption]:
    """Note SIGINT, SIGTERM and SIGHUP while inside. A second one does what it always does."""
    interruption = Interruption()
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        interruption.number = number
        for other, handler in before.items():
            signal.signal(other, handler)

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
            before[number] = signal.signal(number, note)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
