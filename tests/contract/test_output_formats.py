"""An output is what its name says: CSV where that is possible, else a refusal before any work is done."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bad_input_files import LOG, POLICY, write_valid_files

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("valid")
    write_valid_files(folder)
    return folder


def assert_same_cells(path: Path, parquet: Path) -> None:
    """The CSV has the columns and rows of the Parquet file; a null is an empty cell."""
    table = pq.read_table(parquet)
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    assert header == table.column_names
    expected = [tuple("" if value is None else value for value in row.values()) for row in table.to_pylist()]
    assert len(rows) == len(expected)
    for cells, values in zip(rows, expected, strict=True):
        assert [type(value)(cell) for cell, value in zip(cells, values, strict=True)] == list(values)


@pytest.mark.parametrize("name", ["scores.csv", "SCORES.CSV"])
def test_scores_as_csv(valid: Path, tmp_path: Path, run: Run, name: str) -> None:
    words = ("evaluate", valid / POLICY, "--logs", valid / LOG, "--metrics", "argmax-accuracy,class-accuracy,ips")
    assert run(*words, "-o", name).code == 0
    assert run(*words, "-o", "scores.parquet").code == 0
    assert_same_cells(tmp_path / name, tmp_path / "scores.parquet")
    with open(name, newline="") as file:
        settings = [json.loads(row["settings"]) for row in csv.DictReader(file)]
    assert settings[0]["method"] == "wce-s2bl"


def test_a_history_as_csv(valid: Path, tmp_path: Path, run: Run) -> None:
    for suffix in ("csv", "parquet"):
        flags = ("--reg", "wce", "--epochs", 2, "-o", "policy.safetensors", "--history", f"curves.{suffix}", "--force")
        assert run("train", valid / LOG, *flags).code == 0
    assert_same_cells(tmp_path / "curves.csv", tmp_path / "curves.parquet")


@pytest.mark.parametrize("verb", ["report", "inspect"])
def test_scores_as_csv_are_not_read_again(valid: Path, run: Run, verb: str) -> None:
    assert run("evaluate", valid / POLICY, "--logs", valid / LOG, "-o", "scores.csv").code == 0
    ran = run(verb, "scores.csv")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("s2bl: scores.csv is ")
    assert ran.stderr.endswith(
        ": it looks like scores or a history in CSV, which has no lineage; write them to a .parquet file instead\n"
    )


REFUSED = {
    "evaluate logging --logs LOG -o s.md": "s.md would be written as parquet, not as md: name it s.parquet or s.csv",
    "evaluate uniform --logs LOG -o s.XLS": "s.XLS would be written as parquet, not as xls: name it s.parquet or s.csv",
    "train LOG -o p.pt": "p.pt would be written as safetensors, not as pt: name it p.safetensors",
    "train LOG -o p.parquet": "p.parquet would be written as safetensors, not as parquet: name it p.safetensors",
    "train LOG --history h.txt": "h.txt would be written as parquet, not as txt: name it h.parquet or h.csv",
    "mask LOG --rho 1 -o l.csv": "l.csv would be written as parquet, not as csv: name it l.parquet",
    "make-logs --save-policy p.pkl": "p.pkl would be written as safetensors, not as pkl: name it p.safetensors",
}


@pytest.mark.parametrize(("line", "message"), REFUSED.items())
def test_a_name_of_another_format_is_refused(valid: Path, tmp_path: Path, run: Run, line: str, message: str) -> None:
    places = {"LOG": valid / LOG, "POLICY": valid / POLICY}
    ran = run(*(places.get(word, word) for word in line.split()))
    assert (ran.code, ran.stdout, ran.stderr) == (2, "", f"s2bl: {message}\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["scores", "scores.v2", "scores-rho0.2"])
def test_other_names_are_written_as_parquet(valid: Path, tmp_path: Path, run: Run, name: str) -> None:
    assert run("evaluate", valid / POLICY, "--logs", valid / LOG, "--metrics", "ips", "-o", name).code == 0
    assert pq.read_table(tmp_path / name).num_rows


# --- words of the framework's ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("mask LOG --rho half", "Invalid value for '--rho': must be a number, found 'half' (see: s2bl mask --help)"),
        (
            "mask LOG --seed 1.5",
            "Invalid value for '--seed': must be a whole number, found '1.5' (see: s2bl mask --help)",
        ),
        (
            "inspect LOG --context-dtype int8",
            "Invalid value for '--context-dtype': 'int8' is not one of 'uint8', 'float32' (see: s2bl inspect --help)",
        ),
    ],
)
def test_no_words_of_pydantic(valid: Path, run: Run, flags: str, message: str) -> None:
    ran = run(*(valid / LOG if word == "LOG" else word for word in flags.split()))
    assert (ran.code, ran.stderr) == (2, f"s2bl: {message}\n")
