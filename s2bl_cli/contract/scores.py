"""The scores file: tidy Parquet, one row a (policy, log, metric), with the columns that `report` groups by.

A row says which policy (file name and digest), what it was trained on and how (dataset, τ, ρ, method, …),
which log it was scored on, and the metric's value with its standard error, interval and number of rows.
What does not apply is null: the logging policy has no method's λ, a foreign log no τ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from s2bl_cli.contract.document import KIND_SCORES
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.tidy_files import TidyFile

LOGGING_POLICY = "logging-policy"  # the method name of the policy that made the log
BIN = "bin"  # the interval of a histogram's share: low and high are the bin's edges, no doubt about the value


@dataclass(frozen=True)
class Score:
    """One row of a scores file. The field order is the column order."""

    policy: str
    policy_sha256: str | None
    log: str
    log_sha256: str
    dataset: str | None
    tau: float | None
    rho: float | None
    method: str
    risk: str | None
    reg: str | None
    reg_rows: str | None
    lam: float | None
    sharpen: float | None  # β of the regulariser's weights
    translation: float | None  # of banditnet's costs
    nu: float | None
    model: str | None
    seed: int | None
    split: str
    metric: str
    label: int | None  # the class that a score by class is about, or the number of a histogram's bin
    value: float
    stderr: float | None
    low: float | None
    high: float | None
    level: float | None  # of the interval from low to high, such as 0.95
    interval: str | None  # how it was made: normal, bernstein, …; or bin
    rows: int
    note: str | None  # what to know of the number, in words
    known: int | None = None  # rows with feedback that the policy learned from
    missing: int | None = None  # rows without feedback that it learned from


_FILE = TidyFile(Score, KIND_SCORES, "s2bl evaluate")
SCHEMA = _FILE.schema


def write_scores(scores: Sequence[Score], lineage: Step, target: str, *, force: bool) -> None:
    _FILE.write(scores, lineage, target, force=force)


def read_scores(names: Sequence[str]) -> tuple[pa.Table, list[Step]]:
    """All rows of the files as one table, and the lineage of each file."""
    return _FILE.read(names)


def read_scores_files(files: Sequence[InputFile]) -> tuple[pa.Table, list[Step]]:
    """As `read_scores`, of files that are open already."""
    return _FILE.read_files(files)
