"""What is counted before the first step: by hand, and the same of a log in memory and of its parts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning_fixtures import MADE, arrays_of, blobs

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.contract.logs.schema import LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer
from s2bl_cli.errors import ContractError
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import Statistics, TrainingData, TrainRows, count_rows, joined

COLUMNS = ("context", "action", "propensity", "cost", "split")
NOBODY = Fold(0)  # holds out no row


def _small() -> TrainRows:
    """Six rows numbered 10 to 15, of actions 0 0 0 1 2 2; four are known."""
    rows = arrays_of(
        context=np.arange(12, dtype=np.float32).reshape(6, 2),
        action=[0, 0, 0, 1, 2, 2],
        propensity=[0.5, 0.25, 0.005, 0.125, 0.75, 1.0],
        cost=[-1, np.nan, 0.5, np.nan, -3, 0],
    )
    return TrainRows(rows, np.arange(10, 16))


def _count(*parts: TrainRows, actions: int = 4, sample_bytes: int = 0) -> Statistics:
    return count_rows(parts, actions, sample_bytes=sample_bytes)


def test_counts_by_hand() -> None:
    statistics = _count(_small())
    assert statistics.rows == 6
    assert statistics.known.number.tolist() == [10, 12, 14, 15]
    assert statistics.known.action.tolist() == [0, 0, 2, 2]
    assert statistics.known.p == pytest.approx([0.5, 0.005, 0.75, 1.0])
    assert statistics.known.c.tolist() == [-1, 0.5, -3, 0]
    assert statistics.action_counts.tolist() == [3, 1, 2, 0]
    assert statistics.cost_range == (-3, 0.5)
    assert statistics.shift.tolist() == [5, 6]
    assert statistics.scale == pytest.approx([1 / np.arange(0, 12, 2).std()] * 2)
    assert statistics.sample.rows.rows == 0


def test_action_weights_by_hand() -> None:
    """N/m_a of actions 0 0 0 1 2 2 is 2, 6, 3, and 0 for the action that was never logged. Of the known rows' 0 0 2 2
    it is 2, –, 2."""
    statistics = _count(_small())
    assert statistics.action_weight(NOBODY, on_known=False).tolist() == [2, 6, 3, 0]
    assert statistics.action_weight(NOBODY, on_known=True).tolist() == [2, 0, 2, 0]


def test_action_weights_on_known_rows_are_of_those_learned_from() -> None:
    """A fold that holds out row 12 alone learns from actions 0, 2, 2. All rows are regularised whatever is held out."""
    statistics = _count(_small())
    fold = _OnlyRow12(0, 0.0, 0.5)
    assert statistics.learned(fold).tolist() == [True, False, True, True]
    assert statistics.learned_count(fold) == 3
    assert statistics.action_weight(fold, on_known=True).tolist() == [3, 0, 1.5, 0]
    assert statistics.action_weight(fold, on_known=False).tolist() == [2, 6, 3, 0]


class _OnlyRow12(Fold):
    def holds_out(self, numbers: Any) -> Any:
        return numbers == 12


def test_rows_learned_from_are_those_that_the_fold_does_not_hold_out() -> None:
    train_rows = TrainRows(blobs(known=0.5, test_rows=0), 7 * np.arange(400))
    statistics = _count(train_rows, actions=3)
    fold = Fold(3, 0.2, 0.6)
    expected = train_rows.rows.known & ~fold.holds_out(train_rows.number)
    assert statistics.known.number[statistics.learned(fold)].tolist() == train_rows.number[expected].tolist()
    assert 0 < statistics.learned_count(fold) < statistics.learned_count(NOBODY) == len(statistics.known.c)


def test_log_without_feedback_has_costs_of_zero() -> None:
    part = _small()
    hidden = replace(part.rows, known=np.zeros(6, bool), cost=np.zeros(6, np.float32))
    statistics = _count(TrainRows(hidden, part.number))
    assert (len(statistics.known.c), statistics.cost_range) == (0, (0, 0))
    assert statistics.action_weight(NOBODY, on_known=True).tolist() == [0, 0, 0, 0]
    assert statistics.learned_count(NOBODY) == 0


@pytest.mark.parametrize("context", [ContextSpec("float32", (3,)), ContextSpec("uint8", (1, 2, 4))], ids=str)
def test_parts_count_as_the_whole(context: ContextSpec) -> None:
    """Some parts have no row, or none with feedback."""
    rng = np.random.default_rng(0)
    contexts = rng.integers(0, 255, (300, *context.shape)).astype(context.dtype)
    whole = TrainRows(replace(blobs(300, known=0.3, test_rows=0), context=contexts), np.arange(300))
    missing = TrainRows(whole.rows.take(~whole.rows.known), whole.number[~whole.rows.known])
    known = whole.take(whole.rows.known)
    nothing = np.zeros(300, bool)
    expected = _count(joined([missing, known]), actions=3, sample_bytes=1 << 30)
    found = _count(whole.take(nothing), missing, whole.take(nothing), known, actions=3, sample_bytes=1 << 30)
    assert found.rows == expected.rows == 300
    assert found.action_counts.tolist() == expected.action_counts.tolist()
    for one, other in zip(found.known, expected.known, strict=True):
        assert one.tolist() == other.tolist()
    assert found.shift == pytest.approx(expected.shift, rel=1e-6)
    assert found.scale == pytest.approx(expected.scale, rel=1e-6)
    assert (found.sample.rows.context == expected.sample.rows.context).all()


# --- the sample of known rows ---


def test_sample_of_few_rows_is_all_known_rows() -> None:
    part = _small()
    sample = _count(part, sample_bytes=1 << 20).sample
    assert sample.number.tolist() == [10, 12, 14, 15]
    assert sample.rows.context.tolist() == part.rows.context[part.rows.known].tolist()
    assert sample.rows.cost.tolist() == [-1, 0.5, -3, 0]
    assert sample.rows.known.all()


def test_sample_of_many_rows_is_even_and_small_enough() -> None:
    """Of 4,000 known rows of 12 bytes, at most 1,000 fit: about as many of the first half as of the second, and the
    same ones whatever the parts."""
    rows = blobs(4000, test_rows=0)
    whole = TrainRows(rows, np.arange(4000))
    halves = [TrainRows(rows.take(part), whole.number[part]) for part in (whole.number < 2000, whole.number >= 2000)]
    sample, of_halves = (_count(*parts, actions=3, sample_bytes=12_000).sample for parts in ([whole], halves))
    assert of_halves is not None
    assert sample.number.tolist() == of_halves.number.tolist()
    assert 350 < len(sample.number) <= 1000
    assert abs((sample.number < 2000).mean() - 0.5) < 0.1
    assert (sample.rows.context == rows.context[sample.number]).all()


def test_smaller_sample_is_part_of_a_larger_one() -> None:
    whole = TrainRows(blobs(2000, test_rows=0), np.arange(2000))
    small, large = (_count(whole, actions=3, sample_bytes=size).sample for size in (3_000, 13_000))
    assert small is not None
    assert large is not None
    assert set(small.number.tolist()) < set(large.number.tolist())


# --- of a log ---


def _log(path: Path, rows: LogArrays, row_group: int) -> str:
    spec = LogSpec(3, ContextSpec("float32", (3,)), ("label", "pi0", "split"))
    batch = log_batch(rows, spec)
    with log_writer(str(path), spec, MADE, force=True) as writer:
        for start in range(0, rows.rows, row_group):
            writer.write(batch.slice(start, row_group))
    return str(path)


def _data(path: str, *, streamed: bool) -> TrainingData:
    with open_logs([path]) as log:
        return TrainingData(log, COLUMNS, streamed=streamed, sample_known=True)


def test_streamed_log_counts_as_in_memory(tmp_path: Path) -> None:
    """The last row groups are of the test split alone; known rows keep their numbers in the log."""
    rows = blobs(400, known=0.5, test_rows=200)
    shuffled = rows.take(np.r_[100:400, 0:100])  # test rows in the midst
    for arrays in (rows, shuffled):
        path = _log(tmp_path / "log.parquet", arrays, 50)
        memory, streamed = (_data(path, streamed=streamed).statistics for streamed in (False, True))
        train = ~arrays.is_test
        assert memory.rows == streamed.rows == 200
        assert memory.known.number.tolist() == np.flatnonzero(train & arrays.known).tolist()
        for one, other in zip(memory.known, streamed.known, strict=True):
            assert one.tolist() == other.tolist()
        assert memory.action_counts.tolist() == streamed.action_counts.tolist()
        assert memory.action_counts.tolist() == np.bincount(arrays.action[train], minlength=3).tolist()
        assert memory.shift == pytest.approx(arrays.context[train].mean(axis=0), rel=1e-5)
        assert streamed.shift == pytest.approx(memory.shift, rel=1e-6)
        assert streamed.scale == pytest.approx(memory.scale, rel=1e-6)


@pytest.mark.parametrize("streamed", [False, True], ids=["in memory", "streamed"])
def test_log_without_train_rows_is_refused(tmp_path: Path, streamed: bool) -> None:
    tests_only = _log(tmp_path / "tests.parquet", blobs(100, test_rows=100), 50)
    with pytest.raises(
        ContractError, match=r"it has no train rows to learn from \(its rows are all of the test split\)$"
    ):
        _data(tests_only, streamed=streamed)
    empty = _log(tmp_path / "empty.parquet", blobs(100).take(np.zeros(100, bool)), 50)
    with pytest.raises(ContractError, match=r"empty.parquet: it has no rows$"):
        _data(empty, streamed=streamed)
