"""Runs the plan: finished jobs are kept, failures are recorded, and the rest continues.

The folder is locked while a sweep runs. Its processes keep the lock open. A sweep that continues a killed one therefore
waits until the last of them ends, and no job ever runs twice at the same time.
"""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from s2bl_cli.console import Console, counted
from s2bl_cli.contract.atomic import DISK_FULL
from s2bl_cli.errors import OutputError, RunError, one_line
from s2bl_cli.sweeping.executors import Executor
from s2bl_cli.sweeping.plan import Job, Plan, Task
from s2bl_cli.sweeping.records import FAILED, FINISHED, STARTED, Record, is_finished, read_record, write_record
from s2bl_cli.sweeping.worker import Outcome

_LOCK = ".sweep.lock"
_SECONDS_FOR_LOCK = 20.0
_LOOK_EVERY_SECONDS = 0.5
_NAMED = 3  # maximum number of reasons in a message


@dataclass(frozen=True)
class Progress:
    """The progress of the sweep in a folder."""

    plan: Plan
    folder: str
    records: dict[str, Record | None]  # by job

    @classmethod
    def read(cls, plan: Plan, folder: str) -> "Progress":
        return cls(plan, folder, {job.name: read_record(folder, job) for job in plan.jobs})

    def is_finished(self, task: Task) -> bool:
        return all(is_finished(self.folder, job, self.records[job.name]) for job in task.jobs)

    @property
    def remaining(self) -> list[Task]:
        """Unfinished cells, and the inputs that they lack. A log whose cells are finished may be deleted."""
        needed: set[str] = set()
        remaining = []
        for task in reversed(self.plan.tasks):
            is_wanted = task.is_cell or any(job.name in needed for job in task.jobs)
            if is_wanted and not self.is_finished(task):
                remaining.append(task)
                needed |= task.needs
        return remaining[::-1]

    def check_replaceable(self) -> None:
        """Refuse to replace files that have other settings or that were not made by a sweep."""
        others = [job for task in self.remaining for job in task.jobs if self._is_of_others(job)]
        if others:
            what = "was made with other settings" if self.records[others[0].name] else "exists and is not of a sweep"
            more = f" (and {len(others) - 1:,} more)" if len(others) > 1 else ""
            path = os.path.join(self.folder, others[0].outputs[0])
            raise OutputError(f"{one_line(path)}{more} {what}: give another folder with -o, or replace it with --force")

    def _is_of_others(self, job: Job) -> bool:
        record = self.records[job.name]
        is_other = record is None or (record.digest != job.digest and record.state == FINISHED)
        return is_other and any(os.path.exists(os.path.join(self.folder, output)) for output in job.outputs)


@dataclass
class SweepResult:
    """The result of running the sweep."""

    finished: list[str] = field(default_factory=list)  # tasks finished in this run
    failed: dict[str, str] = field(default_factory=dict)  # task → reason
    not_run: list[Task] = field(default_factory=list)  # they depend on a failed task, or the disk is full

    def message(self, plan: Plan) -> str:
        """The failures in one line, each reason once."""
        cells = {task.name for task in plan.tasks if task.is_cell}
        lost = [task for task in self.not_run if task.is_cell]
        by_reason = Counter(self.failed.values()).most_common()
        reasons = "; ".join(f"{counted(count, 'time')}: {reason}" if len(by_reason) > 1 else reason
                            for reason, count in by_reason[:_NAMED])  # fmt: skip
        more = "" if len(by_reason) <= _NAMED else f"; and {len(by_reason) - _NAMED} other reasons"
        failed_cells = sum(name in cells for name in self.failed)
        parts = [f"{failed_cells} of {counted(len(cells), 'cell')} failed"] if failed_cells else []
        parts += (
            [f"{counted(len(self.failed) - failed_cells, 'log')} failed"] if len(self.failed) > failed_cells else []
        )
        parts += [f"{counted(len(lost), 'cell')} not run"] if lost else []
        return f"{', '.join(parts)}: {reasons}{more} (run the same command to continue)"


@contextlib.contextmanager
def locked(folder: str) -> Iterator[tuple[int, ...]]:
    """Lock the folder. Yields the descriptor that its processes keep open; none if the disk does not support locks."""
    import fcntl

    with open(os.path.join(folder, _LOCK), "ab") as file:
        deadline = time.monotonic() + _SECONDS_FOR_LOCK
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise OutputError(
                        f"{one_line(folder)} is in use by another sweep: wait for it, or give another folder with -o"
                    ) from None
                time.sleep(0.2)
            except OSError:  # a network disk without locks
                yield ()
                return
            else:
                yield (file.fileno(),)
                return


def run_sweep(progress: Progress, executor: Executor, console: Console) -> SweepResult:
    """Run what remains. Re-raises whatever stops it, such as KeyboardInterrupt, after its processes have ended."""
    waiting = progress.remaining
    total = len(waiting)
    missing = {job.name for task in waiting for job in task.jobs}
    running: list[Task] = []
    result = SweepResult()
    ended = False
    try:
        with console.progress("sweep", total, "tasks") as advance:
            while (waiting and not ended) or running:
                ready = [task for task in waiting if not ended and not task.needs & missing]
                for task in ready[: max(0, executor.slots() - len(running))]:
                    executor.start(task)
                    waiting.remove(task)
                    running.append(task)
                if not running:
                    break  # the rest depends on failed tasks
                for task, outcome in executor.wait(_LOOK_EVERY_SECONDS):
                    running.remove(task)
                    missing -= set(outcome.finished)
                    _note(task, outcome, result, console)
                    _record_crash(progress.folder, task, outcome)
                    ended = ended or DISK_FULL in (outcome.reason or "")
                _show(advance, result, running)
    except BaseException:
        executor.stop()
        console.warn("stopped; to continue, run the same command")
        raise
    executor.stop()
    result.not_run = waiting
    return result


def _note(task: Task, outcome: Outcome, result: SweepResult, console: Console) -> None:
    if outcome.failed is not None:
        reason = outcome.reason or "unknown"
        if reason not in result.failed.values():
            console.warn(f"{outcome.failed} failed: {reason}")
        result.failed[task.name] = reason
    elif len(outcome.finished) == len(task.jobs):
        result.finished.append(task.name)
    else:
        result.failed[task.name] = "its process was stopped from outside"


def _record_crash(folder: str, task: Task, outcome: Outcome) -> None:
    """Record the reason for a process that crashed and could not do so itself."""
    if outcome.reason is not None:
        for job in task.jobs:
            record = read_record(folder, job)
            if record is not None and record.state == STARTED:
                with contextlib.suppress(OutputError):  # the final message has the reason too
                    write_record(folder, job, replace(record, state=FAILED, reason=outcome.reason))


def _show(advance: Callable[[int, str], None], result: SweepResult, running: list[Task]) -> None:
    failed = f", {len(result.failed)} failed" if result.failed else ""
    advance(len(result.finished) + len(result.failed), f"{len(running)} running{failed}")


def make_folders(folder: str, plan: Plan) -> None:
    try:
        for name in sorted({os.path.dirname(job.name) for job in plan.jobs}):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
    except OSError as error:
        raise OutputError(f"{one_line(folder)} cannot be written: {one_line(error.strerror or error)}") from error


def stage_times(progress: Progress) -> dict[str, tuple[int, float, float]]:
    """By stage: the number of finished jobs, their seconds, and the peak memory in MB."""
    times: dict[str, tuple[int, float, float]] = {}
    for job in progress.plan.jobs:
        record = progress.records[job.name]
        if record is not None and record.state == FINISHED:
            jobs, seconds, peak = times.get(job.stage, (0, 0.0, 0.0))
            times[job.stage] = (jobs + 1, seconds + (record.seconds or 0), max(peak, record.peak_mb or 0))
    return times


def check_result(result: SweepResult, plan: Plan) -> None:
    if result.failed or result.not_run:
        raise RunError(result.message(plan))
