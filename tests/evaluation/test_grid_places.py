"""`evaluate --as`: another tool's policy beside the methods of s2bl, in one table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.scores import read_scores
from s2bl_cli.contract.settings_text import decode_settings

Run = Callable[..., Any]


def _write_files(run: Run, write_log: Callable[..., Any], folder: Path) -> None:
    """A log of 40 rows, 10 of them test rows; and probabilities of its rows."""
    write_log(folder / "log.parquet", 40, test_rows=10, optional=("label", "split"))
    pq.write_table(pa.table({f"p{a}": np.full(40, p) for a, p in enumerate((0.5, 0.3, 0.2))}), folder / "mine.parquet")


def test_a_policy_of_another_tool_has_its_place_in_the_grid(
    run: Run, tmp_path: Path, write_log: Callable[..., Any]
) -> None:
    _write_files(run, write_log, tmp_path)
    flags = ("--logs", "log.parquet", "--metrics", "labels", "--quiet")
    for rho in (0.5, 1):
        assert run("mask", "--rho", rho, "log.parquet", "-o", f"m{rho}.parquet").code == 0
        assert run("train", "--method", "tips", f"m{rho}.parquet", "-o", f"p{rho}.safetensors").code == 0
    assert run("evaluate", "p0.5.safetensors", "p1.safetensors", *flags, "-o", "ours.parquet").code == 0
    ran = run("evaluate", "mine.parquet", *flags, "--as", "method=mine,rho=0.5,seed=3,depth=2", "-o", "theirs.parquet")
    assert ran.code == 0, ran.stderr
    table, (lineage,) = read_scores([str(tmp_path / "theirs.parquet")])
    (row, *_) = [row for row in table.to_pylist() if row["method"] == "mine"]
    assert (row["policy"], row["seed"]) == ("mine.parquet", 3)
    settings = decode_settings(row["settings"], "")
    assert (settings["rho"], settings["depth"], settings["dataset"]) == (0.5, 2, "example")
    assert "--as method=mine,rho=0.5,seed=3,depth=2" in command_lines(lineage)[-1]
    report = run("report", "ours.parquet", "theirs.parquet")
    lines = [line for line in report.stdout.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in lines[0].split("|")[4:6]] == ["Truncated IPS", "mine"]
    assert [line.split("|")[3].strip() for line in lines[2:]] == ["0.5", "1"]
    assert [line.split("|")[5].strip() == "–" for line in lines[2:]] == [False, True]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("mine", "--as must be NAME=VALUE with distinct names, such as method=mine,rho=0.02,seed=0, found 'mine'"),
        ("method=a,method=b", "--as must be NAME=VALUE with distinct names"),
        ("rho=0.02", "--as needs a method with a name of its own, such as method=mine, found None"),
        ("method=tips", "--as needs a method with a name of its own, such as method=mine, found tips"),
        ("method=mine,seed=x", "--as: seed must be a whole number of 0 or more, found x"),
        ("method=mine,rho=low", "--as: rho must be a number, found 'low'"),
    ],
)
def test_wrong_places_are_one_line(
    run: Run, tmp_path: Path, write_log: Callable[..., Any], place: str, message: str
) -> None:
    _write_files(run, write_log, tmp_path)
    ran = run("evaluate", "mine.parquet", "--logs", "log.parquet", "--as", place)
    assert (ran.code, ran.stderr.count("\n")) == (2, 1)
    assert message in ran.stderr


@pytest.mark.parametrize("policies", [["uniform"], ["mine.parquet", "too.parquet"]])
def test_a_place_is_for_one_file(run: Run, tmp_path: Path, write_log: Callable[..., Any], policies: list[str]) -> None:
    _write_files(run, write_log, tmp_path)
    (tmp_path / "too.parquet").write_bytes((tmp_path / "mine.parquet").read_bytes())
    ran = run("evaluate", *policies, "--logs", "log.parquet", "--as", "method=mine")
    number = 0 if policies == ["uniform"] else 2
    assert ran.stderr == f"s2bl: --as is for one file of action probabilities, found {number}: give one\n"
