"""The streaming rewrite of `mask`: one pass over costs and splits chooses rows, one pass over all columns writes them.

Between the passes, memory has one bit per train row: whether its feedback is known. Keys are hashes of row numbers, so
they are recomputed in each pass. The digests of the inputs, for the lineage, take one more read of the bytes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.logs.arrays import Mask, is_known_row, is_test_row
from s2bl_cli.contract.logs.reading import Log, all_faults_reported
from s2bl_cli.contract.logs.writing import log_writer
from s2bl_cli.errors import ContractError, SettingError
from s2bl_cli.masking.selection import NO_LIMIT, Keys, below, row_keys, threshold
from s2bl_cli.masking.settings import MaskSettings
from s2bl_cli.settings import recorded


@dataclass(frozen=True)
class MaskCounts:
    """The result of masking, in rows."""

    train: int  # train rows written
    known: int  # of these, with feedback
    test: int  # test rows, never masked
    dropped: int  # train rows dropped because of --missing
    known_before: int  # train rows with feedback in the input
    requested: int  # train rows that should keep feedback

    @property
    def missing(self) -> int:
        return self.train - self.known


class TrainRows:
    """Which train rows have feedback, as one bit per row."""

    def __init__(self, log: Log) -> None:
        self._known_bits: list[tuple[int, npt.NDArray[np.uint8]]] = []  # per batch: number of train rows, bits
        self.known = 0
        for batch in _cost_and_split(log):
            known = is_known_row(batch)[~is_test_row(batch)]
            self._known_bits.append((len(known), np.packbits(known)))
            self.known += int(known.sum())
        self.rows = sum(rows for rows, _ in self._known_bits)
        if self.rows == 0:
            raise ContractError(f"{log.name}: it has no train rows, but only train rows are masked")

    def keys(self, seed: int, choose: Callable[[Keys, Mask], Mask]) -> Iterator[Keys]:
        """The keys of the rows that `choose(keys, known)` selects, batch by batch."""
        first = 0
        for rows, bits in self._known_bits:
            keys = row_keys(seed, first, rows)
            yield keys[choose(keys, np.unpackbits(bits, count=rows).astype(bool))]
            first += rows


def mask_log(log: Log, settings: MaskSettings, target: str, *, force: bool) -> MaskCounts:
    """Write a copy of the log with feedback hidden. Missing feedback stays missing."""
    train = TrainRows(log)
    requested = settings.known_target(train.rows)
    _check_enough(log, settings, train)
    known_below = threshold(requested, lambda: train.keys(settings.seed, lambda keys, known: known))
    stay_below = NO_LIMIT
    if settings.missing is not None:
        stay_below = threshold(
            settings.missing,
            lambda: train.keys(settings.seed, lambda keys, known: ~(known & below(keys, known_below))),
        )
    lineage = step_of("mask", {**recorded(settings), **log.recorded_names}, log.sources)
    first, known, dropped = 0, 0, 0
    with log_writer(target, log.spec, lineage, force=force) as writer:
        for batch in log.batches(extra=True):
            is_train, is_known = ~is_test_row(batch), is_known_row(batch)
            keys = np.zeros(batch.num_rows, dtype=np.uint64)
            keys[is_train] = row_keys(settings.seed, first, int(is_train.sum()))
            keeps = is_known & below(keys, known_below)
            stays = keeps | below(keys, stay_below) | ~is_train
            writer.write(_with_feedback(batch, np.where(is_train, keeps, is_known), stays))
            first += int(is_train.sum())
            known += int((keeps & is_train).sum())
            dropped += int((~stays).sum())
        train_written = train.rows - dropped
        test_rows = writer.rows - train_written
    return MaskCounts(train_written, known, test_rows, dropped, train.known, requested)


def _cost_and_split(log: Log) -> Iterator[pa.RecordBatch]:
    """The columns that decide which rows are masked. If they have faults, the faults of all columns are reported."""
    with all_faults_reported(log):
        yield from log.batches(("cost", "split"))


def _check_enough(log: Log, settings: MaskSettings, train: TrainRows) -> None:
    if settings.known is None:
        return
    if settings.known > train.known:
        raise SettingError(
            f"--known {settings.known}: {log.name} has only {train.known} train rows with feedback; "
            f"pass at most that many"
        )
    if settings.known + (settings.missing or 0) > train.rows:
        raise SettingError(
            f"--known {settings.known} --missing {settings.missing}: {log.name} has {train.rows} train rows in total; "
            f"pass at most --missing {train.rows - settings.known}"
        )


def _with_feedback(batch: pa.RecordBatch, visible: Mask, stays: Mask) -> pa.RecordBatch:
    """The rows that stay, with costs only in visible rows."""
    cost = pc.if_else(pa.array(visible), batch.column("cost"), pa.scalar(None, pa.float32()))
    batch = batch.set_column(batch.schema.get_field_index("cost"), batch.schema.field("cost"), cost)
    return batch if stays.all() else batch.filter(pa.array(stays))
