"""The history file: learning curves as tidy Parquet, one row per (run, epoch, quantity).

A run is one policy trained by `s2bl train`. Its quantities are the loss and its two terms on the epoch's batches, and
with --patience the estimate on held-out rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from s2bl_cli.contract.document import KIND_HISTORY
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.tidy_files import TidyFile


@dataclass(frozen=True)
class HistoryRow:
    """One row of a history file. The field order is the column order."""

    policy: str  # the name of the policy's file
    method: str
    seed: int
    settings: str  # training settings: see settings_text.py
    epoch: int  # from 1
    quantity: str  # loss, risk, regulariser, snips, …
    value: float


_VERSION_1: dict[str, type] = dict.fromkeys(("lam", "sharpen", "nu", "translation"), float)
_FILE = TidyFile(HistoryRow, KIND_HISTORY, "s2bl train --history", _VERSION_1)


def write_history(rows: Sequence[HistoryRow], lineage: Step, target: str, *, force: bool) -> None:
    _FILE.write(rows, lineage, target, force=force)


def read_history(names: Sequence[str]) -> tuple[pa.Table, list[Step]]:
    return _FILE.read(names)


def read_history_files(files: Sequence[InputFile]) -> tuple[pa.Table, list[Step]]:
    """Like `read_history`, for files that are open already."""
    return _FILE.read_files(files)
