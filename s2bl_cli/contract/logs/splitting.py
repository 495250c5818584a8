"""The rows for testing of a log without a column `split`: `train` leaves them out, `evaluate` scores on them.

    by row        a hash of context, action and propensity; of rows that are equal in these, also of their order
    by cluster    a hash of the cluster, if the log has clusters: a cluster is never divided
    by time       the rows after the 1 − share quantile of --time-column

A row stays on its side if other rows are added, removed or reordered, and if feedback is masked; by time, as long as
the quantile stays. A smaller share of the same seed is part of a larger one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from s2bl_cli.contract.logs.arrays import Mask, log_arrays
from s2bl_cli.contract.logs.columns import SplitSettings
from s2bl_cli.contract.logs.reading import Log, all_faults_reported
from s2bl_cli.contract.row_hashes import Hashes, context_hashes, row_hashes
from s2bl_cli.errors import ContractError, one_line
from s2bl_cli.row_hash import GOLDEN, mixed, uniform_hash
from s2bl_cli.settings import recorded

_TEST_ROWS = np.uint64(0x7E57)  # held-out rows of `train` are hashed too, and must not be chosen by the same number


def split_log(log: Log, settings: SplitSettings) -> Log:
    """The log with its test rows chosen; as it is if none are asked for."""
    if settings.test_share is None:
        return log
    if log.spec.has("split"):
        raise ContractError(
            f"{log.name}: --test-share is for logs without a split, but it has a column for it; drop --test-share, or "
            f"ignore the column with --split-column ''"
        )
    if settings.time_column is not None:
        is_test = _last(log, settings.time_column, settings.test_share)
    else:
        with all_faults_reported(log):
            is_test = uniform_hash(_units(log), settings.test_seed) < settings.test_share
    if is_test.all() or not is_test.any():
        purpose = "training" if is_test.any() else "testing"
        raise ContractError(
            f"{log.name}: {settings.text} leaves no rows for {purpose} of {log.rows:,}; pass another share or seed"
        )
    return log.with_test_rows(is_test, settings, log.cluster_column)


def split_of(settings: Mapping[str, Any]) -> SplitSettings | None:
    """The split in the settings of a lineage; None if it has none."""
    known = {name.replace("-", "_"): settings[name] for name in recorded(SplitSettings()) if name in settings}
    return SplitSettings(**known) if isinstance(known.get("test_share"), float) else None


def covers(own: SplitSettings, other: SplitSettings) -> bool:
    """Whether the test rows of one split include those of the other, on the same log with the same clusters."""
    assert own.test_share is not None
    assert other.test_share is not None
    return other.test_share <= own.test_share and replace(own, test_share=other.test_share) == other


def _units(log: Log) -> npt.NDArray[np.int64]:
    """A number per row. Rows with the same number are on the same side of every split."""
    columns = ("cluster",) if log.spec.has("cluster") else ("context", "action", "propensity")
    units, start = np.empty(log.rows, np.uint64), 0
    for batch in log.batches(columns):
        arrays = log_arrays(batch, log.spec)
        part = slice(start, start + batch.num_rows)
        if arrays.cluster is not None:
            units[part] = arrays.cluster.view(np.uint64)
        else:
            units[part] = row_hashes(context_hashes(arrays.context), arrays.action, arrays.propensity)
        start += batch.num_rows
    if not log.spec.has("cluster"):
        # Equal rows are other decisions: were they kept together, a log of few contexts would be split by action.
        units += _occurrence(units) * np.uint64(GOLDEN)
    return mixed(units ^ _TEST_ROWS).view(np.int64)


def _occurrence(hashes: Hashes) -> Hashes:
    """How many equal ones come before each: (rows,)."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    is_first = np.r_[True, ordered[1:] != ordered[:-1]]
    place = np.arange(len(hashes))
    occurrence = np.empty(len(hashes), np.uint64)
    occurrence[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    return occurrence


def _last(log: Log, column: str, share: float) -> Mask:
    times = log.read_column(column, "--time-column")
    if pa.types.is_dictionary(times.type):
        times = pa.chunked_array([part.dictionary_decode() for part in times.chunks])
    missing = pc.sum(pc.is_null(times, nan_is_null=True)).as_py() or 0
    if missing:
        raise ContractError(f"{log.name}: column {column!r} must not be null in any row to split by, found {missing:,}")
    try:
        order = pc.sort_indices(times)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        kind = one_line(times.type, 60)
        raise ContractError(
            f"{log.name}: column {column!r} must be times, dates, numbers or text to split by, found {kind}"
        ) from error
    train_rows = max(1, len(times) - int(share * len(times) + 1e-9))
    last = times[order[train_rows - 1].as_py()]
    after: Mask = pc.greater(times, last).to_numpy(zero_copy_only=False)  # those at the same time stay together
    return after
