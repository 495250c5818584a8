"""The scores file: tidy Parquet, one row per (policy, log, metric).

A row says which policy (file name and digest), by which method and from which seed it was trained, which log it was
scored on, and the metric's value with its standard error, interval and number of rows. `settings` holds what the policy
was trained on and how, as one JSON object, which `report` expands into columns. What does not apply is null, or not
among the settings: the logging policy has no λ, a foreign log no τ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from s2bl_cli.contract.document import KIND_SCORES
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.tidy_files import TidyFile

LOGGING_POLICY = "logging-policy"  # the method name of the policy that made the log
BIN = "bin"  # the interval of a histogram's share: low and high are the bin's edges, not an interval of the value


@dataclass(frozen=True)
class Score:
    """One row of a scores file. The field order is the column order."""

    policy: str
    policy_sha256: str | None
    log: str
    log_sha256: str
    method: str
    seed: int | None
    split: str
    metric: str
    label: int | None  # the class that a score by class is about, or the number of a histogram's bin
    settings: str  # see settings_text.py
    value: float
    stderr: float | None
    low: float | None
    high: float | None
    level: float | None  # of the interval from low to high, such as 0.95
    interval: str | None  # how it was made: normal, bernstein, …; or bin
    rows: int
    note: str | None  # what to know of the number, in words


_VERSION_1: dict[str, type] = {
    **dict.fromkeys(("dataset", "risk", "reg", "reg_rows", "model"), str),
    **dict.fromkeys(("tau", "rho", "lam", "sharpen", "translation", "nu"), float),
    **dict.fromkeys(("known", "missing"), int),
}
_FILE = TidyFile(Score, KIND_SCORES, "s2bl evaluate", _VERSION_1)
SCHEMA = _FILE.schema


def write_scores(scores: Sequence[Score], lineage: Step, target: str, *, force: bool) -> None:
    _FILE.write(scores, lineage, target, force=force)


def read_scores(names: Sequence[str]) -> tuple[pa.Table, list[Step]]:
    """All rows of the files as one table, and the lineage of each file."""
    return _FILE.read(names)


def read_scores_files(files: Sequence[InputFile]) -> tuple[pa.Table, list[Step]]:
    """As `read_scores`, of files that are open already."""
    return _FILE.read_files(files)
