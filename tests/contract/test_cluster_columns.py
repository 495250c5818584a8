"""The cluster of a row: any column of values that can be compared, or the log's own."""

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.errors import ContractError

DAY = datetime.date(2024, 1, 2)


def _clusters(path: Path, **columns: Any) -> list[int] | None:
    with open_logs([str(path)], LogColumns(**columns)) as log:
        cluster = log.read().cluster
    return None if cluster is None else cluster.tolist()


@pytest.mark.parametrize(
    "values",
    [
        pa.array([7, 8, 7, 9], pa.int64()),
        pa.array([7, 8, 7, 9], pa.uint8()),
        pa.array([2**63, 8, 2**63, 9], pa.uint64()),
        pa.array([7.0, 8.5, 7.0, 9.0], pa.float64()),
        pa.array([True, False, True, False]),
        pa.array(["ann", "bob", "ann", ""], pa.string()),
        pa.array(["ann", "bob", "ann", ""], pa.large_string()).dictionary_encode(),
        pa.array([b"\x00" * 16, b"\x01" * 16, b"\x00" * 16, b"\x02" * 16], pa.binary(16)),
        pa.array([DAY, DAY.replace(day=3), DAY, DAY.replace(day=4)]),
        pa.array([datetime.datetime(2024, 1, d, tzinfo=datetime.UTC) for d in (1, 2, 1, 3)]),
        pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.50"), decimal.Decimal("1.50"), decimal.Decimal("0.10")]),
    ],
    ids=lambda values: str(values.type),
)
def test_a_cluster_column_may_be_of_any_type(tmp_path: Path, write_plain: Callable[..., str], values: pa.Array) -> None:
    """Rows 0 and 2 are of one cluster; the other two, and booleans' false ones, are not."""
    path = Path(write_plain(tmp_path / "log.parquet", user=values, row_group=3))
    found = _clusters(path, cluster_column="user")
    assert found is not None
    expected = np.unique(np.array([str(value) for value in values.to_pylist()]), return_inverse=True)[1]
    assert (np.equal.outer(found, found) == np.equal.outer(expected, expected)).all()


def test_whole_numbers_are_the_same_cluster_in_every_type(tmp_path: Path, write_plain: Callable[..., str]) -> None:
    for kind in (pa.int8(), pa.int64(), pa.float32(), pa.float64()):
        path = Path(write_plain(tmp_path / "log.parquet", user=pa.array([3, 4, 3, 5], kind)))
        assert _clusters(path, cluster_column="user") == [3, 4, 3, 5]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            pa.array(["a", None, "b", None]),
            "cluster must not be null: 2 rows, the first is row 1 with null (rows count from 0); fix or drop these "
            "rows",
        ),
        (
            pa.array([[1], [2], [3], [4]]),
            "column 'user' must be numbers, text, dates or times, found list<element: int64> (name another with "
            "--cluster-column, or '' for none) (its columns: context, action, propensity, cost, user)",
        ),
        (
            None,
            "no column 'user' for the cluster: name it with --cluster-column "
            "(its columns: context, action, propensity, cost)",
        ),
    ],
    ids=["nulls", "lists", "no such column"],
)
def test_cluster_columns_that_do_not_fit(
    tmp_path: Path, write_plain: Callable[..., str], values: pa.Array | None, line: str
) -> None:
    path = Path(write_plain(tmp_path / "log.parquet", user=values))
    with pytest.raises(ContractError) as raised:
        _clusters(path, cluster_column="user")
    assert str(raised.value) == f"{path}: {line}"


def test_a_logs_own_cluster_is_used_unasked_and_that_of_another_tool_is_not(
    tmp_path: Path, write_plain: Callable[..., str], run: Callable[..., Any]
) -> None:
    """`cluster` of another tool may be a segment. Through `mask` a named column becomes the log's own."""
    plain = Path(write_plain(tmp_path / "plain.parquet", cluster=[1, 1, 2, 2], user=["a", "a", "b", "c"]))
    assert _clusters(plain) is None
    assert _clusters(plain, cluster_column="cluster") == [1, 1, 2, 2]
    with pytest.raises(ContractError, match="no column 'cluster' for the cluster"):
        _clusters(Path(write_plain(tmp_path / "other.parquet")), cluster_column="cluster")
    named = _clusters(plain, cluster_column="user")
    assert named is not None
    assert run("mask", plain, "--rho", 1, "--cluster-column", "user", "-o", "own.parquet").code == 0
    own = tmp_path / "own.parquet"
    assert pq.read_schema(own).field("cluster").type == pa.int64()
    assert "user" not in pq.read_schema(own).names
    assert _clusters(own) == named
    assert _clusters(own, cluster_column="") is None
    assert "columns" in run("inspect", own, "--json").stdout
    assert '"cluster"' in run("inspect", own, "--json").stdout
