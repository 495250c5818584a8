"""The process of a task: `python -m s2bl_cli.sweeping.worker REQUEST` runs its jobs one after the other.

One process per task keeps memory constant over a sweep, survives a crash of native code, and imports torch only once
for the training and evaluation of a cell. Each job is the command that a person would type, run by the same program.
The outcome is one JSON line on stdout. The process ends when its parent does: it reads a pipe on stdin, which closes
when the parent is gone, for whatever reason.
"""

import contextlib
import io
import json
import os
import resource
import runpy
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass, replace
from typing import Any

from s2bl_cli.errors import S2blError, one_line
from s2bl_cli.sweeping.plan import Job, Task
from s2bl_cli.sweeping.records import FAILED, FINISHED, STARTED, Record, is_finished, read_record, write_record

_PRINTED = 4000  # characters that a record keeps
_SIGNALLED = 128  # exit codes from here on mean that a signal stopped the command


@dataclass(frozen=True)
class Outcome:
    """The outcome of a task. If it neither finished nor failed, it was stopped, and runs again the next time."""

    finished: tuple[str, ...] = ()  # names of jobs
    failed: str | None = None  # the name of the job
    reason: str | None = None


def encode_request(folder: str, task: Task) -> str:
    return json.dumps({"folder": folder, "name": task.name, "jobs": [asdict(job) for job in task.jobs]})


def _decode_request(text: str) -> tuple[str, list[Job]]:
    request: dict[str, Any] = json.loads(text)
    return request["folder"], [_decode_job(job) for job in request["jobs"]]


def _decode_job(document: dict[str, Any]) -> Job:
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in document.items()}
    return Job(**fields)


def run_jobs(folder: str, jobs: list[Job]) -> Outcome:
    """Run the unfinished jobs until one fails."""
    finished: list[str] = []
    for job in jobs:
        try:
            reason = _run_job(folder, job)
        except S2blError as error:  # from a record that cannot be written
            reason = str(error)
        if reason is not None:
            return Outcome(tuple(finished), job.name if reason else None, reason or None)
        finished.append(job.name)
    return Outcome(tuple(finished))


def _run_job(folder: str, job: Job) -> str | None:
    """None if the job finished, otherwise the reason for its failure; empty if it was stopped."""
    before = read_record(folder, job)
    if is_finished(folder, job, before):
        return None
    if before is not None and before.digest != job.digest and job.checkpoint is not None:
        with contextlib.suppress(FileNotFoundError):  # left over from a training run with other settings
            os.unlink(os.path.join(folder, job.checkpoint))
    record = Record(
        STARTED, job.digest, job.text(os.path.basename(folder)), starts=1 + (before.starts if before else 0)
    )
    write_record(folder, job, record)
    started, cpu = time.monotonic(), _cpu_seconds()
    code, printed = _run_command(job.command(folder))
    record = replace(
        record,
        seconds=round(time.monotonic() - started, 2),
        cpu_seconds=round(_cpu_seconds() - cpu, 2),
        peak_mb=_peak_mb(),
        printed=printed[-_PRINTED:],
    )
    if code == 0:
        write_record(folder, job, replace(record, state=FINISHED))
        return None
    if code >= _SIGNALLED:
        return ""
    reason = _reason(printed)
    with contextlib.suppress(S2blError):  # the disk may be full: the outcome has the reason too
        write_record(folder, job, replace(record, state=FAILED, reason=reason))
    return reason


def _run_command(words: list[str]) -> tuple[int, str]:
    """The exit code of the command and its stderr."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        sys.argv = ["s2bl", *words]
        try:
            runpy.run_module("s2bl_cli", run_name="__main__")
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1 if left.code else 0
        except Exception:  # a bug: the traceback goes into the record, and the sweep continues
            traceback.print_exc()
            code = 1
    return code, printed.getvalue()


def _reason(printed: str) -> str:
    """The error message of the command, without the program name."""
    lines = [line for line in printed.splitlines() if line.strip()] or ["it failed without a message"]
    own = [line.removeprefix("s2bl: ") for line in lines if line.startswith("s2bl: ")]
    return one_line((own or lines)[-1], 1000)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _peak_mb() -> float:
    """Peak resident memory of this process; Linux reports kilobytes, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)


def _end_with_parent() -> None:
    def wait() -> None:
        os.read(0, 1)  # nothing is ever written: this returns when the pipe is closed
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    _end_with_parent()
    outcome = run_jobs(*_decode_request(sys.argv[1]))
    sys.stdout.write(json.dumps(asdict(outcome)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
