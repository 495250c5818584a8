"""Test rows of a log without a split: by row, by cluster or by time, the same in every command and copy."""

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s2bl_cli.contract.logs.columns import LogColumns, SplitSettings
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.logs.splitting import covers, split_log, split_of
from s2bl_cli.errors import ContractError, SettingError
from s2bl_cli.row_hash import uniform_hash
from s2bl_cli.settings import recorded_changes

WriteLog = Callable[..., Any]


def _test_rows(path: Path, share: float = 0.2, columns: LogColumns | None = None, **settings: Any) -> Any:
    with open_logs([str(path)], columns) as log:
        return split_log(log, SplitSettings(share, **settings)).read(("split", "action")).is_test


def _plain(path: Path, rows: int = 2000, seed: int = 0, **columns: Any) -> pa.Table:
    rng = np.random.default_rng(seed)
    table = pa.table(
        {
            "context": pa.array(rng.standard_normal((rows, 3)).astype(np.float32).tolist(), pa.list_(pa.float32())),
            "action": rng.integers(0, 2, rows),
            "propensity": np.full(rows, 0.5, np.float32),
            "cost": rng.random(rows).astype(np.float32),
            **columns,
        }
    )
    pq.write_table(table, path, row_group_size=300)
    return table


def test_a_share_of_the_rows_is_for_testing(tmp_path: Path) -> None:
    _plain(tmp_path / "log.parquet")
    for share in (0.05, 0.2, 0.5):
        is_test = _test_rows(tmp_path / "log.parquet", share)
        assert abs(is_test.mean() - share) < 4 * np.sqrt(share * (1 - share) / 2000)
    assert (_test_rows(tmp_path / "log.parquet") != _test_rows(tmp_path / "log.parquet", test_seed=1)).any()
    smaller, larger = _test_rows(tmp_path / "log.parquet", 0.1), _test_rows(tmp_path / "log.parquet", 0.3)
    assert not (smaller & ~larger).any()


def test_a_row_stays_on_its_side_in_every_copy(tmp_path: Path, run: Callable[..., Any]) -> None:
    """Masked, reordered, with other rows beside it, with the contexts in columns, and in several files."""
    table = _plain(tmp_path / "log.parquet")
    is_test = _test_rows(tmp_path / "log.parquet")
    assert run("mask", "log.parquet", "--rho", 0.1, "-o", "masked.parquet", "--quiet").code == 0
    assert (_test_rows(tmp_path / "masked.parquet") == is_test).all()
    order = np.random.default_rng(1).permutation(2000)
    pq.write_table(table.take(order), tmp_path / "shuffled.parquet")
    assert (_test_rows(tmp_path / "shuffled.parquet") == is_test[order]).all()
    more = pa.concat_tables([_plain(tmp_path / "other.parquet", 500, seed=1), table])
    pq.write_table(more, tmp_path / "more.parquet")
    assert (_test_rows(tmp_path / "more.parquet")[500:] == is_test).all()
    features = np.array(table["context"].to_pylist())
    wide = {f"x_{i}": features[:, i] for i in range(3)}
    others = {name: table[name] for name in ("action", "propensity", "cost")}
    pq.write_table(pa.table({**wide, **others}), tmp_path / "wide.parquet")
    assert (_test_rows(tmp_path / "wide.parquet", columns=LogColumns(context_columns="x_*")) == is_test).all()
    (tmp_path / "parts").mkdir()
    for i in range(4):
        pq.write_table(table.slice(500 * i, 500), tmp_path / "parts" / f"{i}.parquet")
    assert (_test_rows(tmp_path / "parts") == is_test).all()


def test_equal_rows_are_split_like_others(tmp_path: Path) -> None:
    """Of two contexts, two actions and one propensity there are four kinds of rows. Kept together, a kind would be
    tested or trained on, never both, and a context would lack an action."""
    x = np.random.default_rng(0).integers(0, 2, 4000)
    contexts = pa.array([[float(value)] for value in x], pa.list_(pa.float32()))
    table = _plain(tmp_path / "log.parquet", 4000, context=contexts)
    is_test, action = _test_rows(tmp_path / "log.parquet", 0.25), table["action"].to_numpy()
    for kind in range(4):
        chosen = (x == kind // 2) & (action == kind % 2)
        assert abs(is_test[chosen].mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / chosen.sum())


def test_clusters_are_never_divided(tmp_path: Path) -> None:
    user = np.random.default_rng(0).integers(0, 400, 2000)
    _plain(tmp_path / "log.parquet", user=[f"user-{i}" for i in user])
    is_test = _test_rows(tmp_path / "log.parquet", columns=LogColumns(cluster_column="user"))
    shares = np.bincount(user, is_test) / np.maximum(np.bincount(user), 1)
    assert set(shares.tolist()) == {0.0, 1.0}
    assert 0.1 < shares.mean() < 0.3
    by_row = _test_rows(tmp_path / "log.parquet")
    assert (by_row != is_test).any()


def test_test_clusters_are_not_the_ones_that_train_holds_out(tmp_path: Path) -> None:
    """Both are hashes of the cluster by a seed. By the same hash, a test share would take all rows to hold out."""
    user = np.repeat(np.arange(1000), 2)
    _plain(tmp_path / "log.parquet", user=user)
    is_test = _test_rows(tmp_path / "log.parquet", columns=LogColumns(cluster_column="user"))
    held_out = uniform_hash(user, 0) < 0.1
    assert 0.05 < held_out[~is_test].mean() < 0.15


@pytest.mark.parametrize(
    "times",
    [
        list(range(100)),
        [float(i) for i in range(100)],
        [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=i) for i in range(100)],
        [datetime.date(2024, 1, 1) + datetime.timedelta(days=i) for i in range(100)],
        [f"2024-01-{1 + i // 24:02}T{i % 24:02}" for i in range(100)],
    ],
    ids=["whole numbers", "floats", "times", "dates", "text"],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_by_time_the_last_rows_are_for_testing(tmp_path: Path, times: list[Any], encoded: bool) -> None:
    order = np.random.default_rng(0).permutation(100)
    column = pa.array([times[i] for i in order])
    _plain(tmp_path / "log.parquet", 100, ts=column.dictionary_encode() if encoded else column)
    is_test = _test_rows(tmp_path / "log.parquet", 0.2, time_column="ts")
    assert sorted(order[is_test].tolist()) == list(range(80, 100))


def test_rows_of_the_same_time_are_not_divided(tmp_path: Path) -> None:
    """Ten days of ten rows: of a share of 0.25, two whole days."""
    day = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 10))
    _plain(tmp_path / "log.parquet", 100, day=day)
    is_test = _test_rows(tmp_path / "log.parquet", 0.25, time_column="day")
    assert set(day[is_test].tolist()) == {8, 9}
    assert is_test.sum() == 20


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"time_column": "when"}, "no column 'when' for the time: name it with --time-column"),
        ({"time_column": "gap"}, "column 'gap' must not be null in any row to split by, found 3"),
        ({"time_column": "context"}, "column 'context' must be times, dates, numbers or text to split by, found "
         "list<element: float>"),
        ({"time_column": "same"}, "--test-share 0.2 --time-column same leaves no rows for testing of 100; pass another "
         "share or seed"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_by(tmp_path: Path, settings: dict[str, Any], line: str) -> None:
    gap = pa.array([None] * 3 + [1.0] * 97)
    _plain(tmp_path / "log.parquet", 100, gap=gap, same=[1] * 100)
    with pytest.raises(ContractError) as raised:
        _test_rows(tmp_path / "log.parquet", **settings)
    assert str(raised.value) == f"{tmp_path / 'log.parquet'}: {line}"


def test_a_log_with_a_split_is_refused_unless_it_is_ignored(tmp_path: Path, write_log: WriteLog) -> None:
    write_log(tmp_path / "log.parquet", 100, test_rows=20)
    with pytest.raises(ContractError) as raised:
        _test_rows(tmp_path / "log.parquet")
    assert str(raised.value) == (
        f"{tmp_path / 'log.parquet'}: --test-share is for logs without a split, but it has a column for it; drop "
        f"--test-share, or ignore the column with --split-column ''"
    )
    assert _test_rows(tmp_path / "log.parquet", columns=LogColumns(split_column="", cluster_column="")).any()


def test_a_split_log_is_read_like_one_with_a_column(tmp_path: Path, write_log: WriteLog) -> None:
    """In batches, whole, and by row groups in any order; other columns stay as they are."""
    written = write_log(tmp_path / "log.parquet", 500, optional=("label", "pi0"), row_group=64)
    with open_logs([str(tmp_path / "log.parquet")]) as plain:
        log = split_log(plain, SplitSettings(0.3))
        whole, before = log.read(), plain.read()
        assert not before.is_test.any()
        assert 0.2 < whole.is_test.mean() < 0.4
        assert log.spec.optional == ("label", "pi0", "split")
        for name in ("context", "action", "propensity", "cost", "label", "pi0"):
            assert np.array_equal(getattr(whole, name), getattr(written, name))
        groups = list(reversed(log.row_groups))
        numbers = np.concatenate([np.arange(g.first_row, g.first_row + g.rows) for g in groups])
        assert np.array_equal(log.read_row_groups(groups).is_test, whole.is_test[numbers])
        assert log.recorded_names == {"test-share": 0.3}
        assert log.sources == plain.sources


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"test_seed": 1}, "--test-seed says which rows are for testing: say how many with --test-share"),
        ({"time_column": "ts"}, "--time-column says which rows are for testing: say how many with --test-share"),
        ({"test_share": 0.0}, "--test-share must be in (0, 1), found 0.0"),
        ({"test_share": 1.0}, "--test-share must be in (0, 1), found 1.0"),
    ],
)
def test_settings_of_a_split(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as raised:
        SplitSettings(**settings)
    assert str(raised.value) == line


def test_a_split_is_read_from_a_lineage() -> None:
    for settings in (SplitSettings(0.2), SplitSettings(0.2, 3), SplitSettings(0.1, time_column="ts")):
        assert split_of({"lam": 1.0, **recorded_changes(settings)}) == settings
    assert split_of({"lam": 1.0}) is None
    assert split_of({"test-share": None}) is None


def test_which_split_includes_which() -> None:
    own = SplitSettings(0.2, 3)
    assert covers(own, own)
    assert covers(own, replace(own, test_share=0.1))
    assert not covers(own, replace(own, test_share=0.3))
    assert not covers(own, replace(own, test_seed=4))
    assert not covers(own, SplitSettings(0.2, time_column="ts"))
