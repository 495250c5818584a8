"""Run a task in a new process and wait for its outcome. Both executors do this, on this machine or on a node."""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from s2bl_cli.errors import one_line
from s2bl_cli.sweeping.worker import Outcome

_MODULE = "s2bl_cli.sweeping.worker"


def run_request(
    request: str,
    first_job: str,
    *,
    started: Callable[["subprocess.Popen[bytes]"], None] = lambda process: None,
    kept_open: tuple[int, ...] = (),
) -> Outcome:
    """`started` receives the process; `kept_open` are files that it keeps open, such as a lock."""
    try:
        return _run(request, first_job, started, kept_open)
    except OSError as error:  # the system cannot start another process
        return Outcome((), first_job, f"its process could not be started: {one_line(error.strerror or error)}")


def _run(
    request: str,
    first_job: str,
    started: Callable[["subprocess.Popen[bytes]"], None],
    kept_open: tuple[int, ...],
) -> Outcome:
    with tempfile.TemporaryFile() as errors:
        # In its own session: Ctrl-C reaches only the sweep, which then stops its processes in an orderly way.
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, request],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            pass_fds=kept_open,
        )
        started(process)
        assert process.stdout is not None
        assert process.stdin is not None
        with process.stdout, process.stdin:  # stdin must stay open: the process exits when it closes
            line = process.stdout.read()
        code = process.wait()
        errors.seek(0)
        printed = errors.read().decode(errors="replace")
    if line:
        return _decode(line)
    if code in (-signal.SIGTERM, -signal.SIGINT):
        return Outcome()
    return Outcome((), first_job, _crash(code, printed))


def _decode(line: bytes) -> Outcome:
    document: dict[str, Any] = json.loads(line)
    return Outcome(tuple(document["finished"]), document["failed"], document["reason"])


def _crash(code: int, printed: str) -> str:
    """Why a process ended without an outcome."""
    last = one_line((printed.strip().splitlines() or [""])[-1], 300)
    if code == -signal.SIGKILL:
        return "its process was killed; if memory ran out, use fewer --workers"
    word = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return f"its process ended {word}" + (f": {last}" if last else "")
