"""Where tasks run. An executor has `slots`, and starts, awaits and stops tasks; one module per executor."""

from typing import Protocol

from s2bl_cli.sweeping.plan import Task
from s2bl_cli.sweeping.worker import Outcome


class Executor(Protocol):
    """Runs the tasks of a sweep, each in its own process."""

    def slots(self) -> int:
        """How many tasks can currently run at the same time."""

    def start(self, task: Task) -> None: ...

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """The tasks that have ended. Waits at most `seconds` if none has."""

    def stop(self) -> None:
        """Stop all tasks. Training writes its checkpoint if it can."""
