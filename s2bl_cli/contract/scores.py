"""The scores file: tidy Parquet, one row per (policy, log, metric).

A row has the policy (file name and digest), its training method and seed, the log it was scored on, and the metric's
value with its standard error, interval and number of rows. `settings` is a JSON object with the policy's training data
and training settings, which `report` expands into columns. Values that do not apply are null, or absent from the
settings: the logging policy has no λ, and a log of another tool has no τ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from s2bl_cli.contract.document import KIND_SCORES
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.tidy_files import TidyFile

LOGGING_POLICY = "logging-policy"  # the method name of the logging policy
BIN = "bin"  # kind of interval of a histogram's share: low and high are the edges of the bin


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
    label: int | None  # the class, for a score by class; the bin number, for a histogram
    settings: str  # see settings_text.py
    value: float
    stderr: float | None
    low: float | None
    high: float | None
    level: float | None  # confidence level of the interval from low to high, such as 0.95
    interval: str | None  # kind of interval: normal, bernstein, …; or bin
    rows: int
    note: str | None  # remark on the value, such as the reason of a verdict


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
    """Like `read_scores`, for files that are open already."""
    return _FILE.read_files(files)
