"""The record of a job: a small JSON file next to its outputs, with its state, command, time and any failure reason.

    {"state": "finished", "digest": "…", "command": "s2bl mask …", "starts": 1, "seconds": 0.9, …}

A job is finished if its record says so and has the job's digest, and if the outputs exist. Records are written
atomically, after the outputs.
"""

import json
import os
from dataclasses import asdict, dataclass, fields

from s2bl_cli.contract.atomic import atomic_output
from s2bl_cli.sweeping.plan import Job

STARTED, FINISHED, FAILED = "started", "finished", "failed"


@dataclass(frozen=True)
class Record:
    state: str
    digest: str
    command: str
    starts: int = 1  # how often the job was started
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_mb: float | None = None  # resident memory of the process
    reason: str | None = None  # why it failed
    printed: str = ""  # warnings of the command


def record_path(folder: str, job: Job) -> str:
    return os.path.join(folder, f"{job.name}.json")


def read_record(folder: str, job: Job) -> Record | None:
    """None if there is no record or it cannot be read: the job then runs again."""
    try:
        with open(record_path(folder, job), "rb") as file:
            document = json.load(file)
        names = {field.name for field in fields(Record)}
        return Record(**{name: value for name, value in document.items() if name in names})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def write_record(folder: str, job: Job, record: Record) -> None:
    text = json.dumps({k: v for k, v in asdict(record).items() if v not in (None, "")}, ensure_ascii=False, indent=1)
    with atomic_output(record_path(folder, job), force=True) as file:
        file.write(text.encode() + b"\n")


def is_finished(folder: str, job: Job, record: Record | None) -> bool:
    return (
        record is not None
        and record.state == FINISHED
        and record.digest == job.digest
        and all(os.path.exists(os.path.join(folder, output)) for output in job.outputs)
    )
