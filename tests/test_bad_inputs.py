"""Whatever a person gives wrongly, every command answers alike: exit code 2, one line on stderr that says what is
wrong and what to do, nothing on stdout, nothing written, an old output untouched.

The tables below are the whole test: a new way to be wrong is one more row.
"""

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from bad_input_files import (
    LOG,
    PLAIN_LOG,
    POLICY,
    ROWS,
    SCORES,
    edit_document,
    plain_columns,
    read_document,
    write_log_with,
    write_plain_log,
    write_tensors,
    write_valid_files,
)
from privileges import without_privileges
from safetensors.numpy import load_file
from typer.testing import CliRunner

from s2bl_cli.app import VERBS, app
from s2bl_cli.contract.document import KIND_SCORES, VERSIONS

NAN, INF = float("nan"), float("inf")
OLD = b"an output of last week"
NOT_PARQUET, NOT_A_POLICY = "is not a Parquet file", "is not a policy file"
NO_KNOWN_FILE = "is not a log, scores or policy file"

# Where a file can stand: (what it is taken for, by which verb) → the words.
COMMANDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("log", "mask"): ("mask", "BAD", "--rho", "0.5", "-o", "OUT"),
    ("log", "train"): ("train", "BAD", "--method", "wce-s2bl", "--epochs", "1", "-o", "OUT"),
    ("log", "evaluate"): ("evaluate", "POLICY", "--logs", "BAD", "-o", "OUT"),
    ("log", "inspect"): ("inspect", "BAD"),
    ("policy", "evaluate"): ("evaluate", "BAD", "--logs", "LOG", "-o", "OUT"),
    ("policy", "inspect"): ("inspect", "BAD"),
    ("scores", "report"): ("report", "BAD", "-o", "OUT"),
    ("scores", "inspect"): ("inspect", "BAD"),
}
WRITERS = {
    "make-logs": ("make-logs", "--epochs", "0", "-o", "OUT"),
    "mask": ("mask", "LOG", "--rho", "0.5", "-o", "OUT"),
    "train": ("train", "LOG", "--method", "wce-s2bl", "--epochs", "0", "-o", "OUT"),
    "evaluate": ("evaluate", "POLICY", "--logs", "LOG", "-o", "OUT"),
    "report": ("report", "SCORES", "-o", "OUT"),
}
ALL_BUT_MAKE_LOGS = [verb for verb in WRITERS if verb != "make-logs"]  # which first fits a policy to 6,000 images
GOOD_NAMES = {"log": LOG, "policy": POLICY, "scores": SCORES}


@dataclass(frozen=True)
class BadFile:
    """A file that some commands must refuse. `told` are the words that the line must have, beside the file's name."""

    name: str
    taken_for: str  # "log", "policy" or "scores"
    make: Callable[[Path, Path], Any]  # (folder of valid files, path of the bad one)
    told: tuple[str, ...]
    instead: dict[str, tuple[str, ...] | None] = field(default_factory=dict)  # verb → its own words; None: no fault
    names_file: bool = True  # False where the line names what is in the file instead


def absent(valid: Path, bad: Path) -> None:
    pass


def folder(valid: Path, bad: Path) -> None:
    bad.mkdir()


def content(data: bytes) -> Callable[[Path, Path], Any]:
    return lambda valid, bad: bad.write_bytes(data)


def other(name: str) -> Callable[[Path, Path], Any]:
    """A sound file, of another kind."""
    return lambda valid, bad: bad.write_bytes((valid / name).read_bytes())


def cut(name: str, share: float) -> Callable[[Path, Path], Any]:
    def make(valid: Path, bad: Path) -> None:
        data = (valid / name).read_bytes()
        bad.write_bytes(data[: int(share * len(data))])

    return make


def document(name: str, **changes: Any) -> Callable[[Path, Path], Any]:
    return lambda valid, bad: edit_document(valid / name, bad, lambda found: found.update(changes))


def lineage(name: str, **changes: Any) -> Callable[[Path, Path], Any]:
    """Settings that no command of ours was given."""
    return lambda valid, bad: edit_document(
        valid / name, bad, lambda found: found["lineage"]["settings"].update(changes)
    )


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


def plain(**columns: Any) -> Callable[[Path, Path], Any]:
    return lambda valid, bad: write_plain_log(bad, **columns)


def at_row_5(column: str, value: Any) -> Callable[[Path, Path], Any]:
    """Another tool's log with one wrong value."""

    def make(valid: Path, bad: Path) -> None:
        values = plain_columns()[column].to_pylist()
        values[5] = value
        write_plain_log(bad, **{column: pa.array(values, plain_columns()[column].type)})

    return make


def ours(**columns: Any) -> Callable[[Path, Path], Any]:
    """A log of ours whose columns were changed behind its document's back."""
    return lambda valid, bad: write_log_with(valid / LOG, bad, **columns)


def forged_rows(rows: int) -> Callable[[Path, Path], Any]:
    """A log of ours whose footer states another number of rows than its row groups do."""

    def varint(number: int) -> int:
        return 2 * number if number >= 0 else -2 * number - 1  # thrift's zigzag, for numbers of one byte

    def make(valid: Path, bad: Path) -> None:
        data = (valid / LOG).read_bytes()
        for at in (at for at, byte in enumerate(data) if byte == varint(ROWS)):
            bad.write_bytes(data[:at] + bytes([varint(rows)]) + data[at + 1 :])
            with contextlib.suppress(pa.ArrowException, OSError):
                if pq.read_metadata(bad).num_rows == rows:
                    return
        raise AssertionError("the footer's number of rows was not found")

    return make


def scores(column: str, value: Any) -> Callable[[Path, Path], Any]:
    """Scores of which the first has another value."""
    return lambda valid, bad: write_log_with(valid / SCORES, bad, **{column: lambda old: [value, *old[1:]]})


def tensors(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path, Path], Any]:
    def make(valid: Path, bad: Path) -> None:
        changed = load_file(valid / POLICY)
        change(changed)
        write_tensors(bad, json.dumps(read_document(valid / POLICY)), changed)

    return make


def first_row_5(rule: str, value: str) -> tuple[str, ...]:
    return (rule, f"1 row, the first is row 5 with {value}", "fix or drop these rows")


PROPENSITY, COST = (
    "propensity must be in (0, 1]",
    "cost must be finite, or null if it is missing (polars: fill_nan(None))",
)
NEWER = ("contract version 2", "reads up to 1", "upgrade s2bl")
NEWER_POLICY = ("contract version 3", "reads up to 2", "upgrade s2bl")
NEWER_SCORES = (f"contract version {VERSIONS[KIND_SCORES] + 1}", f"reads up to {VERSIONS[KIND_SCORES]}", "upgrade s2bl")
DAMAGED_LINEAGE = ("its lineage is damaged", "settings do not map option names to plain values", "make the file again")
DAMAGED_FOOTER = ("is a damaged Parquet file", "the row counts in its footer are inconsistent", "copy or make it again")
NO_TEXT = pa.array([b"train\xff"] * ROWS, pa.binary()).view(pa.string())
NO_AVERAGE = (POLICY, "has argmax-accuracy", "which no table can average", "evaluate it again")
PLAIN_SETTINGS = ("settings must map names to numbers, strings and booleans",)
CSV = content(b"context,action,propensity,cost\n1,0,0.5,-1\n")

BAD_FILES = [
    # Not there, or nothing in it
    BadFile("absent", "log", absent, ("does not exist", "check the name and the folder")),
    BadFile("absent", "policy", absent, ("does not exist", "check the name and the folder")),
    BadFile("absent", "scores", absent, ("does not exist", "check the name and the folder")),
    BadFile("an empty folder", "log", folder, ("is a folder without *.parquet", "files: check the name")),
    BadFile("an empty folder", "scores", folder, ("is a folder without *.parquet", "files: check the name")),
    BadFile("a folder", "policy", folder, ("is a folder",), {"evaluate": ("is a folder without *.safetensors files",)}),
    BadFile("empty", "log", content(b""), ("is empty", "0 bytes")),
    BadFile("empty", "policy", content(b""), ("is empty", "0 bytes")),
    BadFile("empty", "scores", content(b""), ("is empty", "0 bytes")),
    # Cut short, or of another format
    BadFile("truncated", "log", cut(LOG, 0.5), ("is a truncated Parquet file", "copy or make it again")),
    BadFile("truncated", "scores", cut(SCORES, 0.5), ("is a truncated Parquet file", "copy or make it again")),
    BadFile("truncated", "policy", cut(POLICY, 0.9), (NOT_A_POLICY, "s2bl train makes them")),
    BadFile("four bytes", "log", content(b"PAR1"), ("is a damaged Parquet file", "copy or make it again")),
    BadFile("CSV", "log", CSV, (NOT_PARQUET, "looks like CSV", "write_parquet"), {"inspect": (NO_KNOWN_FILE,)}),
    BadFile("CSV", "scores", CSV, (NOT_PARQUET, "looks like CSV", "write_parquet"), {"inspect": (NO_KNOWN_FILE,)}),
    BadFile("CSV", "policy", CSV, (NOT_A_POLICY, "s2bl train makes them"), {"inspect": (NO_KNOWN_FILE,)}),
    BadFile("a zip", "policy", content(b"PK\x03\x04" + bytes(40)), (NOT_A_POLICY,), {"inspect": (NO_KNOWN_FILE,)}),
    # Of another kind (`inspect` takes every kind)
    BadFile("a policy", "log", other(POLICY), (NOT_PARQUET, "looks like a policy"), {"inspect": None}),
    BadFile("scores", "log", other(SCORES), ("is a scores file", "a logs file is needed"), {"inspect": None}),
    BadFile("a log", "policy", other(LOG), ("is a logs file", "a file from s2bl train"), {"inspect": None}),
    BadFile("scores", "policy", other(SCORES), ("is a scores file", "a file from s2bl train"), {"inspect": None}),
    BadFile("a log", "scores", other(LOG), ("is a logs file", "made by s2bl evaluate"), {"inspect": None}),
    BadFile("another's log", "scores", other(PLAIN_LOG), ("not a scores file", "s2bl evaluate"), {"inspect": None}),
    BadFile("a policy", "scores", other(POLICY), (NOT_PARQUET, "looks like a policy"), {"inspect": None}),
    # Of a later contract
    BadFile("newer", "log", document(LOG, version=2), NEWER),
    BadFile("newer", "policy", document(POLICY, version=3), NEWER_POLICY),
    BadFile("newer", "scores", document(SCORES, version=VERSIONS[KIND_SCORES] + 1), NEWER_SCORES),
    BadFile("no JSON", "log", document(LOG, version=NAN), ("document is not JSON", "make the file again")),
    BadFile("no JSON", "policy", document(POLICY, version=NAN), ("document is not JSON", "make the file again")),
    BadFile("no JSON", "scores", document(SCORES, version=NAN), ("document is not JSON", "make the file again")),
    BadFile("a λ of 400 digits", "policy", lineage(POLICY, lam=10**400), DAMAGED_LINEAGE),
    BadFile("a seed of 65 bits", "policy", lineage(POLICY, seed=1 << 64), DAMAGED_LINEAGE),
    BadFile("a deep setting", "log", lineage(LOG, tau=nested(400)), DAMAGED_LINEAGE),
    BadFile("a deep setting", "policy", lineage(POLICY, tau=nested(400)), DAMAGED_LINEAGE),
    BadFile("a deep setting", "scores", lineage(SCORES, tau=nested(400)), DAMAGED_LINEAGE),
    BadFile("text that is no UTF-8", "log", plain(split=NO_TEXT), ("is a damaged Parquet file",)),
    BadFile(
        "text that is no UTF-8",
        "scores",
        lambda valid, bad: pq.write_table(
            pq.read_table(valid / SCORES).drop_columns("log").append_column("log", NO_TEXT[:6]), bad
        ),
        ("is a damaged Parquet file",),
    ),
    BadFile("a footer with a row too many", "log", forged_rows(ROWS + 1), DAMAGED_FOOTER),
    BadFile("a footer with −25 rows", "log", forged_rows(-ROWS - 1), DAMAGED_FOOTER),
    # A log's columns
    BadFile("no propensity", "log", plain(propensity=None), ("no column 'propensity'", "--propensity-column")),
    BadFile("no context", "log", plain(context=None), ("no column 'context'", "--context-columns")),
    BadFile(
        "no rows",
        "log",
        lambda valid, bad: pq.write_table(pq.read_table(valid / LOG)[:0], bad),
        ("it has no",),
        {"inspect": None},
    ),
    BadFile(
        "text as action",
        "log",
        plain(action=pa.array(["a"] * ROWS)),
        ("column 'action' must be whole numbers", "found string"),
    ),
    # A log's values
    BadFile("propensity 0", "log", at_row_5("propensity", 0.0), first_row_5(PROPENSITY, "0.0")),
    BadFile("propensity −0.25", "log", at_row_5("propensity", -0.25), first_row_5(PROPENSITY, "-0.25")),
    BadFile("propensity 1.5", "log", at_row_5("propensity", 1.5), first_row_5(PROPENSITY, "1.5")),
    BadFile("propensity NaN", "log", at_row_5("propensity", NAN), first_row_5(PROPENSITY, "nan")),
    BadFile("propensity null", "log", at_row_5("propensity", None), first_row_5("propensity must not be null", "null")),
    BadFile("action −1", "log", at_row_5("action", -1), first_row_5("action must be in [0, 2] (3 actions)", "-1")),
    BadFile("action null", "log", at_row_5("action", None), first_row_5("action must not be null", "null")),
    BadFile(
        "action ≥ k",
        "log",
        ours(action=lambda old: [*old[:5], 3, *old[6:]]),
        first_row_5("action must be in [0, 2] (3 actions)", "3"),
    ),
    BadFile("cost NaN", "log", at_row_5("cost", NAN), first_row_5(COST, "nan")),
    BadFile("cost ∞", "log", at_row_5("cost", INF), first_row_5(COST, "inf")),
    BadFile("cost −∞", "log", at_row_5("cost", -INF), first_row_5(COST, "-inf")),
    BadFile("cost 1e300", "log", at_row_5("cost", 1e300), first_row_5(COST, "inf")),
    BadFile(
        "contexts of unequal width",
        "log",
        at_row_5("context", [0.5, 0.5, 0.5]),
        first_row_5("context must have 4 values in every row", "3"),
    ),
    BadFile("a context of NaN", "log", at_row_5("context", [0, 0, 0, NAN]), ("context values must be finite", "row 5")),
    BadFile(
        "another split",
        "log",
        at_row_5("split", "dev"),
        first_row_5("split must be train or test (--split-column names another column, or '' for none)", "dev"),
    ),
    BadFile(
        "pi0 that sums to 3",
        "log",
        ours(pi0=lambda old: [np.ones(3, np.float32).tobytes()] * len(old)),
        ("pi0 must be probabilities that sum to 1", "24 rows", "row 0 with 3.0"),
        {"train": None},
    ),
    BadFile(
        "two faults",
        "log",
        plain(propensity=pa.array([2.0] * ROWS), action=pa.array([0, 1, 2] * 7 + [-1] * 3)),
        (f"{PROPENSITY}: 24 rows", "action must be in [0, 2] (3 actions): 3 rows, the first is row 21"),
    ),
    # Sound logs that cannot serve
    BadFile(
        "no known rows",
        "log",
        plain(cost=pa.nulls(ROWS, pa.float64())),
        ("no train row has feedback", "--method wce-only"),
        {"mask": None, "evaluate": None, "inspect": None},
    ),
    BadFile(
        "no train rows",
        "log",
        plain(split=pa.array(["test"] * ROWS)),
        ("no train rows",),
        {"evaluate": None, "inspect": None},
    ),
    BadFile(
        "wider contexts",
        "log",
        plain(context=pa.array([[0.5] * 7] * ROWS)),
        ("does not fit", "4 float32", "7 float32"),
        {"mask": None, "train": None, "inspect": None},
    ),
    # A policy's document and tensors
    BadFile("an unknown model", "policy", document(POLICY, model="tree"), ("'tree'", "linear"), {"inspect": None}),
    BadFile("actions 0", "policy", document(POLICY, actions=0), ("actions", "[1, 16777216]", "found 0")),
    BadFile(
        "a tensor of NaN",
        "policy",
        tensors(lambda t: t["body.1.weight"].fill(NAN)),
        ("tensor body.1.weight contains NaN or infinity", "train the policy again"),
    ),
    BadFile(
        "no weights",
        "policy",
        tensors(lambda t: t.pop("body.1.weight")),
        ("no tensor body.1.weight", "train the policy again"),
        {"inspect": None},
    ),
    BadFile(
        "float64 weights",
        "policy",
        tensors(lambda t: t.update({"body.1.weight": np.zeros((3, 4))})),
        ("must be float32 of shape (3, 4)", "found float64"),
        {"inspect": None},
    ),
    BadFile(
        "huge weights",
        "policy",
        tensors(lambda t: t.update({"body.1.weight": np.full((3, 4), 3e38, np.float32)})),
        ("its probabilities on", "are not numbers", "train the policy again"),
        {"inspect": None},
    ),
    # Scores
    BadFile("value null", "scores", scores("value", None), ("value must not be null: 1 rows", "s2bl evaluate")),
    BadFile("metric null", "scores", scores("metric", None), ("metric must not be null: 1 rows", "s2bl evaluate")),
    BadFile("value NaN", "scores", scores("value", NAN), NO_AVERAGE, {"inspect": None}, names_file=False),
    BadFile("value ∞", "scores", scores("value", INF), NO_AVERAGE, {"inspect": None}, names_file=False),
    BadFile("value 1e300", "scores", scores("value", 1e300), NO_AVERAGE, {"inspect": None}, names_file=False),
    BadFile("settings null", "scores", scores("settings", None), ("settings must not be null: 1 rows",)),
    BadFile("settings no JSON", "scores", scores("settings", "{lam"), ("settings must be JSON (Expecting",)),
    BadFile("settings NaN", "scores", scores("settings", '{"lam":NaN}'), ("settings must be JSON (Out of range",)),
    BadFile("settings 1e999", "scores", scores("settings", '{"lam":1e999}'), ("settings must be JSON (Out of range",)),
    BadFile("settings half a letter", "scores", scores("settings", '{"a":"\\ud800"}'), ("settings must be JSON (",)),
    BadFile("settings so deep", "scores", scores("settings", "[" * 100_000), ("settings must be JSON (",)),
    BadFile(
        "settings no object", "scores", scores("settings", "[1]"), ("settings must be a JSON object, found '[1]'",)
    ),
    BadFile("settings nested", "scores", scores("settings", '{"lam":[1]}'), (*PLAIN_SETTINGS, "'lam' with '[1]'")),
    BadFile("settings with null", "scores", scores("settings", '{"lam":null}'), (*PLAIN_SETTINGS, "with 'null'")),
    BadFile("settings of 65 bits", "scores", scores("settings", f'{{"seed":{1 << 64}}}'), PLAIN_SETTINGS),
    BadFile("settings unnamed", "scores", scores("settings", '{"\\u001b[31m":1}'), PLAIN_SETTINGS),
    BadFile(
        "settings too long",
        "scores",
        scores("settings", f'{{"a":"{"x" * (1 << 20)}"}}'),
        ("settings must have at most 1,048,576 characters, found 1,048,584",),
    ),
    BadFile(
        "too many settings",
        "scores",
        scores("settings", json.dumps({f"a{i}": i for i in range(1001)})),
        ("at most 1,000 different names",),
        {"inspect": None},
        names_file=False,
    ),
    BadFile(
        "a τ of words",
        "scores",
        scores("settings", '{"tau":"warm"}'),
        ("settings: tau must be double", "warm"),
        {"inspect": None},
        names_file=False,
    ),
    BadFile(
        "half a known row",
        "scores",
        scores("settings", '{"known":0.5}'),
        ("settings: known must be int64",),
        {"inspect": None},
        names_file=False,
    ),
    BadFile(
        "a column of another type",
        "scores",
        lambda valid, bad: pq.write_table(
            pq.read_table(valid / SCORES).drop_columns("value").append_column("value", pa.array(["high"] * 6)), bad
        ),
        ("column 'value' must be double, found string", "make it again with s2bl evaluate"),
    ),
    BadFile(
        "no scores",
        "scores",
        lambda valid, bad: pq.write_table(pq.read_table(valid / SCORES)[:0], bad),
        ("it has no rows",),
    ),
]


def cases() -> list[Any]:
    """Every bad file at every place where it is one."""
    return [
        pytest.param(bad, words, told, id=f"{verb}: {bad.name} for {taken_for}")
        for bad in BAD_FILES
        for (taken_for, verb), words in COMMANDS.items()
        if taken_for == bad.taken_for and (told := bad.instead.get(verb, bad.told)) is not None
    ]


@pytest.fixture(scope="session")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("valid")
    write_valid_files(folder)
    return folder


def filled(words: Sequence[str], valid: Path, bad: Path | None = None, out: object = None) -> list[str]:
    places = {"LOG": valid / LOG, "POLICY": valid / POLICY, "SCORES": valid / SCORES, "BAD": bad, "OUT": out}
    return [str(places.get(word, word)) for word in words]


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def assert_refused(result: Any, told: Sequence[str]) -> None:
    """`result` is CliRunner's or a subprocess's."""
    line = result.stderr
    assert "Traceback" not in line
    assert isinstance(getattr(result, "exception", SystemExit()), SystemExit)
    assert getattr(result, "exit_code", None) == 2 or getattr(result, "returncode", None) == 2, line
    assert line.startswith("s2bl: ")
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert line.replace("\n", "").isprintable()
    assert [words for words in told if words not in line] == [], line
    assert not result.stdout


@pytest.mark.parametrize(("bad", "words", "told"), cases())
def test_a_bad_file_is_refused(
    valid: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bad: BadFile,
    words: tuple[str, ...],
    told: tuple[str, ...],
) -> None:
    name = f"bad{Path(GOOD_NAMES[bad.taken_for]).suffix}"
    bad.make(valid, tmp_path / name)
    here, out = tmp_path / "here", tmp_path / "here" / "out"
    here.mkdir()
    monkeypatch.chdir(here)
    line = filled(words, valid, tmp_path / name, out)
    told = (name, *told) if bad.names_file else told
    assert_refused(CliRunner().invoke(app, line), told)
    assert snapshot(here) == {}
    if "OUT" in words:
        out.write_bytes(OLD)
        assert_refused(CliRunner().invoke(app, [*line, "--force"]), told)
        assert snapshot(here) == {"out": OLD}


@pytest.mark.parametrize("verb", ["mask", "train", "evaluate", "inspect"])
def test_stdin_is_refused_like_a_file(valid: Path, tmp_path: Path, verb: str) -> None:
    words = filled(COMMANDS["log", verb], valid, Path("-"), tmp_path / "out")
    assert_refused(
        CliRunner().invoke(app, words, input=b""), ("stdin is empty", "did the command before the pipe fail")
    )
    half = (valid / LOG).read_bytes()[:900]
    assert_refused(CliRunner().invoke(app, words, input=half), ("stdin is a truncated Parquet file",))
    assert snapshot(tmp_path) == {}


LONG = "x" * 300
BAD_OUTPUTS = {
    "in a folder that is not there": ("none/out", ("the folder", "does not exist", "create it first")),
    "a folder": ("folder", ("is a folder", "-o takes the name of a file")),
    "a link into nowhere": ("link", ("link cannot be written", "the folder", "none does not exist")),
    "a name that is too long": (LONG, ("cannot be written", "name too long")),
    "a name with NUL": ("a\0b", ("-o takes the name of a file", "a\\x00b'")),
    "below a file": ("file/out", ("the folder", "does not exist")),
}


@pytest.mark.parametrize("verb", WRITERS)
@pytest.mark.parametrize(("name", "told"), BAD_OUTPUTS.values(), ids=BAD_OUTPUTS.keys())
def test_an_output_that_cannot_be_is_refused(
    valid: Path, tmp_path: Path, verb: str, name: str, told: tuple[str, ...]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(OLD)
    (tmp_path / "link").symlink_to(tmp_path / "none" / "out")
    before = snapshot(tmp_path)
    words = filled(WRITERS[verb], valid, out=f"{tmp_path}/{name}")
    for more in ([], ["--force"]):
        assert_refused(CliRunner().invoke(app, [*words, *more]), told)
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("verb", WRITERS)
def test_an_output_without_a_name_is_refused(
    valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(CliRunner().invoke(app, filled(WRITERS[verb], valid, out="")), ("-o takes the name of a file",))
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize("verb", WRITERS)
def test_an_output_that_exists_is_refused_without_force(valid: Path, tmp_path: Path, verb: str) -> None:
    out = tmp_path / "out"
    out.write_bytes(OLD)
    result = CliRunner().invoke(app, filled(WRITERS[verb], valid, out=out))
    assert_refused(result, (str(out), "exists already", "--force"))
    assert snapshot(tmp_path) == {"out": OLD}


@pytest.mark.parametrize("verb", ALL_BUT_MAKE_LOGS)
def test_a_full_disk_is_told(valid: Path, verb: str, full_device: str) -> None:
    result = CliRunner().invoke(app, filled(WRITERS[verb], valid, out=full_device))
    assert_refused(result, (f"{full_device} cannot be written", "the disk is full", "-o"))
    assert stat.S_ISCHR(os.stat(full_device).st_mode)


NO_ROOM = """
import json, resource, signal, sys
from typer.testing import CliRunner
from s2bl_cli.app import app

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))  # stdout is a pipe, which has no such limit
results = {}
for verb, words in json.loads(sys.argv[1]).items():
    result = CliRunner().invoke(app, words)
    results[verb] = [result.exit_code, result.stdout, result.stderr]
print(json.dumps(results))
"""


@pytest.fixture(scope="session")
def without_room(valid: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What each verb did where no file may grow beyond 64 bytes; in one process, because torch loads slowly."""
    folder = tmp_path_factory.mktemp("full")
    words = {}
    for verb in ALL_BUT_MAKE_LOGS:
        (folder / verb).write_bytes(OLD)
        words[verb] = [*filled(WRITERS[verb], valid, out=folder / verb), "--force"]
        words[f"{verb} anew"] = filled(WRITERS[verb], valid, out=folder / f"{verb}-anew")
    ran = subprocess.run([sys.executable, "-c", NO_ROOM, json.dumps(words)], capture_output=True, text=True, check=True)
    return folder, json.loads(ran.stdout)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no resource limits")
@pytest.mark.parametrize("verb", ALL_BUT_MAKE_LOGS)
def test_a_write_that_fails_half_way_leaves_the_old_file(without_room: tuple[Path, dict[str, Any]], verb: str) -> None:
    folder, results = without_room
    for name in (verb, f"{verb} anew"):
        code, stdout, stderr = results[name]
        result = subprocess.CompletedProcess([], code, stdout, stderr)
        assert_refused(result, (str(folder), "cannot be written", "File too large"))
    assert snapshot(folder) == dict.fromkeys(ALL_BUT_MAKE_LOGS, OLD)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are another matter there")
def test_a_place_without_permission_is_told(valid: Path, tmp_path: Path) -> None:
    closed, secret = tmp_path / "closed", tmp_path / "secret.parquet"
    closed.mkdir()
    closed.chmod(0o555)
    secret.write_bytes((valid / SCORES).read_bytes())
    secret.chmod(0)

    def report(*words: object) -> Any:
        command = [sys.executable, "-m", "s2bl_cli", "report", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=without_privileges)

    unread = report(secret)
    if unread.returncode == 0:
        pytest.skip("root cannot give up its privileges here")
    assert_refused(unread, ("secret.parquet cannot be opened", "Permission denied"))
    unwritten = report(valid / SCORES, "-o", closed / "out.md")
    assert_refused(unwritten, ("closed/out.md cannot be written", "no permission to write into"))
    assert snapshot(closed) == {}


def test_too_little_memory_is_told(valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of torch's own allocator, which raises no MemoryError."""
    monkeypatch.setattr("s2bl_cli.training.gradient_learner.build_network", lambda spec: torch.empty(1 << 60))
    result = CliRunner().invoke(app, filled(WRITERS["train"], valid, out=tmp_path / "out"))
    assert_refused(result, ("not enough memory", "use a smaller log or model"))
    assert snapshot(tmp_path) == {}


def test_a_fault_of_ours_is_not_dressed_up_as_yours(valid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("s2bl_cli.training.gradient_learner.build_network", broken)
    result = CliRunner().invoke(app, filled(WRITERS["train"], valid, out="out"))
    assert isinstance(result.exception, RuntimeError)
    assert result.exit_code == 1


# Where typer refuses a flag, only the subject and our own words are checked: the rest is typer's, and changes with it.
BAD_FLAGS: list[tuple[str, tuple[str, ...]]] = [
    ("mask LOG --rho 1.5", ("--rho must be in [0, 1], found 1.5",)),
    ("mask LOG --rho -0.1", ("--rho must be in [0, 1], found -0.1",)),
    ("mask LOG --rho nan", ("--rho must be in [0, 1], found nan",)),
    ("mask LOG --rho inf", ("--rho must be in [0, 1], found inf",)),
    ("mask LOG --rho=-inf", ("--rho must be in [0, 1], found -inf",)),
    ("mask LOG --rho half", ("--rho", "s2bl mask --help")),
    ("mask LOG --rho=", ("--rho", "s2bl mask --help")),
    ("mask LOG --hide 1.5", ("--hide must be in [0, 1], found 1.5",)),
    ("mask LOG", ("exactly one of --rho, --hide and --known", "found none", "--rho 0.2")),
    ("mask LOG --rho 0.5 --hide 0.5", ("exactly one of", "found --rho and --hide")),
    ("mask LOG --rho 0.5 --missing 3", ("--missing needs --known",)),
    ("mask LOG --known 9", ("--known 9", "only 8 train rows with feedback")),
    ("mask LOG --known 8 --missing 9", ("--known 8 --missing 9", "16 train rows in total", "at most --missing 8")),
    ("mask LOG --known -1", ("--known must be 0 or more, found -1",)),
    ("mask LOG --rho 0.5 --seed -1", ("--seed must be in [0, 4294967295], found -1",)),
    ("mask LOG --rho 0.5 --seed 4294967296", ("--seed must be in [0, 4294967295], found 4294967296",)),
    ("mask LOG --rho 7 --seed -1", ("--rho must be in [0, 1], found 7.0", "--seed must be in")),
    ("mask LOG --rho 0.5 --json -o -", ("--json and -o - both write to stdout",)),
    ("mask LOG --rho 0.5 --rhoo 1", ("--rhoo", "s2bl mask --help")),
    ("mask --rho 0.5", ("s2bl mask --help",)),
    ("mask - - --rho 0.5", ("- (stdin) can be given only once",)),
    ("mask no*.parquet --rho 0.5", ("no*.parquet matches no file",)),
    ("mask LOG --rho 0.5 --context-shape 0x4", ("--context-shape must be 1 to 4 whole numbers", "'0x4'")),
    (f"mask LOG --rho 0.5 --context-shape {'9' * 5000}", ("--context-shape must be 1 to 4 whole numbers",)),
    ("mask LOG --rho 0.5 --context-dtype int8", ("--context-dtype", "s2bl mask --help")),
    ("mask LOG --rho 0.5 --actions 0", ("--actions must be in [1, 16777216], found 0",)),
    ("mask LOG --rho 0.5 --actions 16777216", ("pi0 must have 67108864 bytes",)),
    ("mask LOG --rho 0.5 --reward-column r", ("no column 'r' for the reward", "--reward-column")),
    ("mask LOG --rho 0.5 --cost-column a --reward-column b", ("--cost-column and --reward-column exclude each other",)),
    ("mask LOG --rho 0.5 --context-columns [\udcffc]ontext", ("--context-columns must be text in UTF-8",)),
    ("train LOG --epochs -1", ("--epochs must be in [0, 100000], found -1",)),
    ("train LOG --epochs 1.5", ("--epochs", "s2bl train --help")),
    (f"train LOG --seed {'9' * 5000}", ("--seed", "s2bl train --help")),
    ("train LOG --lr 0", ("--lr must be in (0, 1000], found 0.0",)),
    ("train LOG --lr nan", ("--lr must be in (0, 1000], found nan",)),
    ("train LOG --nu 2", ("--nu must be in [0, 1], found 2",)),
    ("train LOG --lam inf", ("--lam must be in [0, 1e+09], found inf",)),
    ("train LOG --batch-size 0", ("--batch-size must be in [1, 1048576], found 0",)),
    ("train LOG --threads 0", ("--threads must be in [1, 1024], found 0",)),
    ("train LOG --model tree", ("--model", "s2bl train --help")),
    ("train LOG --risk all", ("--risk", "s2bl train --help")),
    ("train LOG --model mlp --hidden 0", ("--hidden must be 1 to 16 layer widths", "found '0'")),
    (f"train LOG --model mlp --hidden {'9' * 5000}", ("--hidden must be 1 to 16 layer widths",)),
    ("train LOG --model mlp --hidden 5,x", ("--hidden must be 1 to 16 layer widths", "found '5,x'")),
    ("train LOG --method wce-s2bl --reg kl", ("--method wce-s2bl means --reg wce", "--reg kl was given")),
    ("train LOG --risk none --reg none", ("--risk none and --reg none leave nothing to learn from",)),
    ("train LOG --device tpu", ("--device", "s2bl train --help")),
    ("evaluate POLICY", ("--logs", "s2bl evaluate --help")),
    ("evaluate POLICY --logs LOG --split dev", ("--split", "s2bl evaluate --help")),
    ("evaluate POLICY --logs LOG --label-column y", ("no column 'y' for the label", "--label-column")),
    ("report SCORES --where lam", ("--where must be COLUMN=VALUE", "'lam'")),
    ("report SCORES --where lambda=1", ("--where must be COLUMN=VALUE", "'lambda=1'")),
    ("report SCORES --where lam=low", ("--where lam=… needs a number", "'low'")),
    ("report SCORES --where lam=123", ("no score of a policy matches --where 'lam=123'", "s2bl inspect")),
    ("report SCORES --metric luck", ("no score of luck", "argmax-accuracy", "pass --metric")),
    ("report SCORES --tolerance 1", ("--tolerance needs --baseline",)),
    ("report SCORES --tolerance -1 --baseline SCORES", ("--tolerance must be 0 or more, found -1.0",)),
    ("report SCORES --figure weights", ("--figure weights needs --plot FILE or --format html",)),
    ("report SCORES --against paper --table main", ("--against paper has a fixed table: remove --table main",)),
    ("report SCORES --plot figure.gif", ("--plot must end in .svg, .png, .pdf, found 'figure.gif'",)),
    ("report SCORES --check nonsense", ("--check must be like 'wce-s2bl >= tips + 2', found 'nonsense'",)),
    ("report SCORES --group-by value", ("--group-by must be columns of", "found 'value'")),
    ("report SCORES --format word", ("--format", "s2bl report --help")),
    ("report SCORES --table round", ("--table", "s2bl report --help")),
    ("inspect", ("s2bl inspect --help",)),
    ("make-logs --tau 0", ("--tau must be in (0, 1e+06], found 0.0",)),
    ("make-logs --tau nan", ("--tau must be in (0, 1e+06], found nan",)),
    ("make-logs --dataset imagenet", ("--dataset", "sample")),
    ("guess LOG", ("guess", "s2bl --help")),
]


@pytest.mark.parametrize(("line", "told"), BAD_FLAGS, ids=[line[:60] for line, _ in BAD_FLAGS])
def test_a_bad_flag_is_refused(
    valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(CliRunner().invoke(app, filled(line.split(), valid)), told)
    assert snapshot(tmp_path) == {}


def test_every_verb_is_in_the_tables() -> None:
    reading = set(VERBS.names) - {"methods", "sweep"}  # they take no file
    assert {words[0] for words in [*COMMANDS.values(), *WRITERS.values()]} == reading
    assert {line.split()[0] for line, _ in BAD_FLAGS} >= reading
