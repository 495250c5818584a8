"""Where tasks run. An executor has `slots`, and starts, awaits and stops tasks; one file each."""

from typing import Protocol

from s2bl_cli.sweeping.plan import Task
from s2bl_cli.sweeping.worker import Outcome


class Executor(Protocol):
    """Runs tasks of a sweep, each in a process of its own."""

    def slots(self) -> int:
        """How many tasks can run at a time, now."""

    def start(self, task: Task) -> None: ...

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """The tasks that have ended; at most so long if none has."""

    def stop(self) -> None:
        """End all tasks. A training writes its checkpoint, where it can."""
