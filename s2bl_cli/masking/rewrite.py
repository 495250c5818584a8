"""The streaming rewrite behind `mask`: two passes over the small columns to choose rows, one to write."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.logs.arrays import log_arrays
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.logs.schema import COLUMNS
from s2bl_cli.contract.logs.writing import log_writer
from s2bl_cli.errors import ContractError, SettingError
from s2bl_cli.masking.selection import NO_LIMIT, Keys, below, row_keys, threshold
from s2bl_cli.masking.settings import MaskSettings
from s2bl_cli.settings import recorded

Mask = npt.NDArray[np.bool_]

_SMALL_COLUMNS = tuple(name for name in COLUMNS if name not in ("context", "pi0"))


@dataclass(frozen=True)
class MaskCounts:
    """What a mask did, in rows."""

    train: int  # train rows written
    known: int  # of these, with feedback
    test: int  # test rows, never masked
    dropped: int  # train rows left out (--missing)
    known_before: int  # train rows with feedback in the input
    wanted: int  # rows that were asked to keep feedback

    @property
    def missing(self) -> int:
        return self.train - self.known


def mask_log(log: Log, settings: MaskSettings, target: str, *, force: bool) -> MaskCounts:
    """Write the log again with feedback hidden. Nothing is ever un-hidden."""
    train_rows, known_before = _count(log)
    wanted = settings.known_target(train_rows)
    _check_enough(log, settings, train_rows, known_before)
    known_below = threshold(wanted, lambda: _keys(log, settings.seed, lambda keys, known: known))
    stay_below = NO_LIMIT
    if settings.missing is not None:
        stay_below = threshold(
            settings.missing,
            lambda: _keys(log, settings.seed, lambda keys, known: ~(known & below(keys, known_below))),
        )
    lineage = step_of("mask", {**recorded(settings), **log.recorded_names}, log.sources)
    first, known, dropped = 0, 0, 0
    with log_writer(target, log.spec, lineage, force=force) as writer:
        for batch in log.batches(extra=True):
            is_train, is_known = _train_and_known(batch, log)
            keys = np.zeros(batch.num_rows, dtype=np.uint64)
            keys[is_train] = row_keys(settings.seed, first, int(is_train.sum()))
            keeps = is_known & below(keys, known_below)
            stays = keeps | below(keys, stay_below) | ~is_train
            writer.write(_with_feedback(batch, np.where(is_train, keeps, is_known), stays))
            first += int(is_train.sum())
            known += int((keeps & is_train).sum())
            dropped += int((~stays).sum())
        train_written = train_rows - dropped
        test_rows = writer.rows - train_written
    return MaskCounts(train_written, known, test_rows, dropped, known_before, wanted)


def _count(log: Log) -> tuple[int, int]:
    """Train rows and those with feedback; every fault of the log is told here, before anything is written."""
    train_rows = known_before = 0
    try:
        for batch in log.batches(_SMALL_COLUMNS):
            is_train, is_known = _train_and_known(batch, log)
            train_rows += int(is_train.sum())
            known_before += int((is_train & is_known).sum())
    except ContractError:
        log.check()  # the contexts may have faults too: tell all at once
        raise
    if train_rows == 0:
        raise ContractError(f"{log.name}: it has no train rows, and only train rows are masked")
    return train_rows, known_before


def _check_enough(log: Log, settings: MaskSettings, train_rows: int, known_before: int) -> None:
    if settings.known is None:
        return
    if settings.known > known_before:
        raise SettingError(
            f"--known {settings.known}: {log.name} has feedback in {known_before} train rows only; "
            f"ask for at most that many"
        )
    if settings.known + (settings.missing or 0) > train_rows:
        raise SettingError(
            f"--known {settings.known} --missing {settings.missing}: {log.name} has {train_rows} train rows in all; "
            f"ask for at most {train_rows - settings.known} missing"
        )


def _keys(log: Log, seed: int, chosen: Callable[[Keys, Mask], Mask]) -> Iterator[Keys]:
    """The keys of the train rows that `chosen(keys, known)` picks, in pieces."""
    first = 0
    for batch in log.batches(("cost", "split")):
        is_train, is_known = _train_and_known(batch, log)
        keys = row_keys(seed, first, int(is_train.sum()))
        first += len(keys)
        yield keys[chosen(keys, is_known[is_train])]


def _train_and_known(batch: pa.RecordBatch, log: Log) -> tuple[Mask, Mask]:
    arrays = log_arrays(batch.select([name for name in ("cost", "split") if name in batch.schema.names]), log.spec)
    return ~arrays.is_test, arrays.known


def _with_feedback(batch: pa.RecordBatch, visible: Mask, stays: Mask) -> pa.RecordBatch:
    """The batch with costs only where visible, and only the rows that stay."""
    cost = pc.if_else(pa.array(visible), batch.column("cost"), pa.scalar(None, pa.float32()))
    batch = batch.set_column(batch.schema.get_field_index("cost"), batch.schema.field("cost"), cost)
    return batch if stays.all() else batch.filter(pa.array(stays))
