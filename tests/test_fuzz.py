"""Two thousand random wrongs: files with bytes flipped, cut and spliced, documents and values of any kind, flags with
any value. Each run ends well, or with one line and exit code 2 and nothing left behind; what ends well can be read.

Everything is drawn from fixed seeds, so a failure repeats; the file that made it stays in pytest's folder. Values that
are legal but mean much work (a million epochs) stop where the work would begin.
"""

import copy
import json
import os
import re
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from bad_input_files import (
    LOG,
    MLP_POLICY,
    PLAIN_LOG,
    POLICY,
    SCORES,
    read_document,
    write_tensors,
    write_valid_files,
    write_with_document,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from typer.testing import CliRunner

from s2bl_cli.app import VERBS, app, verb_command
from s2bl_cli.datasets.labelled import LabelledData, LabelledPart
from s2bl_cli.errors import RunError
from s2bl_cli.policies.run_settings import RunSettings
from s2bl_cli.registry import Registry

Random = np.random.Generator

LOG_RUNS = (
    "mask IN --rho 0.5 -o out",
    "train IN --method wce-s2bl --epochs 1 -o out",
    "evaluate POLICY --logs IN -o out",
    "inspect IN --json",
)
POLICY_RUNS = ("evaluate IN --logs LOG -o out", "inspect IN")
SCORES_RUNS = ("report IN -o out", "inspect IN")
READERS = {
    LOG: LOG_RUNS,
    PLAIN_LOG: LOG_RUNS,
    POLICY: POLICY_RUNS,
    MLP_POLICY: POLICY_RUNS,
    SCORES: SCORES_RUNS,
}
PAIRS = [(name, line) for name, lines in READERS.items() for line in lines]  # 14
WITH_DOCUMENT = [(name, line) for name, line in PAIRS if name != PLAIN_LOG]  # 10

# 14·40 + 10·40 + 2·200 + 14·15 + 6·105 = 2,200 runs
OF_BYTES, OF_DOCUMENTS, OF_JSON, OF_VALUES, OF_FLAGS = 40, 40, 200, 15, 105


@pytest.fixture(autouse=True)
def _subnormal_numbers() -> Iterator[None]:
    """What --compile builds turns them off for the whole process with some versions of torch: here, and not to stay."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("valid")
    write_valid_files(folder)
    return folder


@pytest.fixture(scope="module")
def bench(valid: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Bench"]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)  # the slowest part of a tiny run
        patch.setattr(torch, "set_num_threads", lambda threads: None)  # would outlast the test
        yield Bench(valid, tmp_path_factory.mktemp("fuzz"), patch)


class Bench:
    """Runs a command in an empty folder, and looks at everything it did."""

    def __init__(self, valid: Path, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.valid = valid
        self.bad = folder / "bad"
        self._here = folder / "here"
        self._here.mkdir()
        patch.chdir(self._here)

    def spoilt(self, name: str) -> Path:
        """Where to write a spoilt copy of a valid file."""
        return self.bad.with_suffix(Path(name).suffix)

    def run(self, words: Sequence[str], spoilt: Path | None = None, told: object = "") -> int:
        places = {"LOG": self.valid / LOG, "POLICY": self.valid / POLICY, "SCORES": self.valid / SCORES, "IN": spoilt}
        words = [str(places.get(word, word)) for word in words]
        result = CliRunner().invoke(app, words, input=b"")
        left = sorted(path.name for path in self._here.iterdir())
        wrong = self._wrong(result, words, left)
        for name in left:
            (self._here / name).unlink()
        if wrong:
            trace = "".join(traceback.format_exception(*result.exc_info)) if result.exc_info else ""
            pytest.fail(f"{wrong}\n{words}\n{told}\n{result.output[:2000]}\n{trace}")
        return int(result.exit_code)

    def _wrong(self, result: Any, words: Sequence[str], left: Sequence[str]) -> str | None:
        if result.exit_code not in (0, 2):
            return f"exit code {result.exit_code}"
        if not isinstance(result.exception, SystemExit | None):
            return "a traceback"
        if not all(c.isprintable() or c == "\n" for c in result.stderr):
            return "stderr that could steer a terminal"
        if result.exit_code == 2:
            if left:
                return f"left behind: {left}"
            if result.stdout_bytes or not re.fullmatch(r"s2bl: .+\n", result.stderr):
                return "not one line on stderr"
            if len(result.stderr) > 5000:
                return "an endless line"
        elif [name for name in left if name.endswith(".tmp")]:
            return f"a temporary file: {left}"
        elif left and words[0] != "report":
            return self._unreadable(left)
        return None

    def _unreadable(self, left: Sequence[str]) -> str | None:
        again = CliRunner().invoke(app, ["inspect", *(f"./{name}" for name in left), "--json"])
        if again.exit_code != 0:
            return f"an output that s2bl itself refuses: {again.output}"
        not_numbers = [
            score for facts in map(json.loads, again.stdout.splitlines()) for score in facts.get("values", [])
            if score["value"] is None
        ]  # fmt: skip
        return f"scores that are no numbers: {not_numbers}" if not_numbers else None


def random_of(*what: object) -> Random:
    """Its own seed for each test, whatever runs before it."""
    return np.random.default_rng([2026, zlib.crc32(repr(what).encode())])


def pick(random: Random, choices: Sequence[Any]) -> Any:
    return choices[int(random.integers(len(choices)))]


# ——— bytes ———


def flip_bit(data: bytearray, at: int, random: Random, others: bytes) -> None:
    data[at] ^= 1 << int(random.integers(8))


def set_bytes(data: bytearray, at: int, random: Random, others: bytes) -> None:
    for _ in range(int(random.integers(1, 20))):
        data[min(len(data) - 1, at + int(random.integers(200)))] = int(random.integers(256))


def cut_off(data: bytearray, at: int, random: Random, others: bytes) -> None:
    del data[at:]


def cut_out(data: bytearray, at: int, random: Random, others: bytes) -> None:
    del data[at : at + int(random.integers(1, 16))]


def put_in(data: bytearray, at: int, random: Random, others: bytes) -> None:
    data[at:at] = random.bytes(int(random.integers(1, 16)))


def splice_own(data: bytearray, at: int, random: Random, others: bytes) -> None:
    start, length = int(random.integers(len(data))), int(random.integers(1, 64))
    data[at : at + length] = data[start : start + length]


def splice_other(data: bytearray, at: int, random: Random, others: bytes) -> None:
    start, length = int(random.integers(len(others))), int(random.integers(1, 64))
    data[at : at + length] = others[start : start + length]


def blank(data: bytearray, at: int, random: Random, others: bytes) -> None:
    length = min(int(random.integers(1, 32)), len(data) - at)
    data[at : at + length] = pick(random, [b"\x00", b"\xff"]) * length


BYTE_WRONGS = (flip_bit, set_bytes, cut_off, cut_out, put_in, splice_own, splice_other, blank)


def spoilt_bytes(content: bytes, others: bytes, random: Random) -> tuple[bytes, str]:
    """Half of the wrongs are at the end, where Parquet keeps what everything else is read by."""
    data = bytearray(content)
    near_end = random.random() < 0.5
    at = len(data) - 1 - int(random.integers(min(len(data), 2500))) if near_end else int(random.integers(len(data)))
    wrong = pick(random, BYTE_WRONGS)
    wrong(data, at, random, others)
    return bytes(data), f"{wrong.__name__} at {at}"


@pytest.mark.parametrize(("name", "line"), PAIRS)
def test_damaged_bytes(bench: Bench, name: str, line: str) -> None:
    random = random_of("bytes", name, line)
    others = b"".join((bench.valid / other).read_bytes() for other in READERS)
    codes = []
    for _ in range(OF_BYTES):
        data, told = spoilt_bytes((bench.valid / name).read_bytes(), others, random)
        path = bench.spoilt(name)
        path.write_bytes(data)
        codes.append(bench.run(line.split(), path, told))
    assert 2 in codes  # else nothing was damaged


# ——— documents ———

# As text, because Python would not write some of them
JSON_VALUES = (
    *("null", "true", "false", "-1", "0", "1", "2", "3", "4", "1.5", "-0.0", "1e999", "-1e999", "NaN", "-Infinity"),
    *("1e308", "1e-320", "2147483648", "9007199254740993", "9223372036854775808", "18446744073709551616"),
    *("1" + "0" * 400, "9" * 4000, "9" * 5000, '""', '"x"', '"\\u0000"', '"\\ud800"', '"\\u202e"', '"a\\nb"'),
    *('"\\u001b[31mred"', '"' + "x" * 5000 + '"', '"９"', '"linear"', '"mlp"', '"logs"', '"policy"', '"scores"'),
    *('"tips"', '"known"', '"make-logs"', '"train"', '"' + "0" * 64 + '"', "[]", "{}", "[[1]]", "[1]", "[0]", "[-1]"),
    *("[true]", '["x"]', "[4, 4]", "[5, 4]", "[2, 2]", "[4096, 4096]", "[16777216]", "[1048576]", "[1.0]", '{"a": 1}'),
    *("[" + "1," * 3000 + "1]", '{"dtype": "uint8", "shape": [4]}', '{"dtype": "float32", "shape": [2, 2]}'),
    *('{"rows": 0, "known": 0}', '{"rows": 1, "known": 2}', '{"command": "train", "settings": {}, "inputs": []}'),
    *("[" * depth + "]" * depth for depth in (20, 200, 900, 5000)),
    '{"a":' * 300 + "1" + "}" * 300,
    "{",
    "",
)
KEYS = ("x", "a b", "", "lam", "seed", "tau", "dataset", "actions", "hidden", "width", "-x", "A", "\x1b[1m", "é")


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a document."""
    yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*way, key))


def spoilt_document(document: Any, random: Random) -> bytes:
    """A value replaced, taken out or put in, up to three times."""
    whole = {"": copy.deepcopy(document)}
    fillings = []
    for _ in range(1 if random.random() < 0.7 else 3):
        *way, last = pick(random, list(places(whole))[1:])
        parent: Any = whole
        for key in way:
            parent = parent[key]
        marker = f"@{len(fillings)}@"
        fillings.append(pick(random, JSON_VALUES))
        kind = random.integers(6)
        if kind == 0 and way:
            del parent[last]
        elif kind == 1 and isinstance(parent[last], dict):
            parent[last][pick(random, KEYS)] = marker
        elif kind == 1 and isinstance(parent[last], list):
            parent[last].append(marker)
        else:
            parent[last] = marker
    text = json.dumps(whole[""])
    for number, filling in enumerate(fillings):
        text = text.replace(f'"@{number}@"', filling)
    return text.encode()


@pytest.mark.parametrize(("name", "line"), WITH_DOCUMENT)
def test_spoilt_documents(bench: Bench, name: str, line: str) -> None:
    random = random_of("documents", name, line)
    document, codes = read_document(bench.valid / name), []
    for _ in range(OF_DOCUMENTS):
        text = spoilt_document(document, random)
        write_with_document(bench.valid / name, bench.spoilt(name), text)
        codes.append(bench.run(line.split(), bench.spoilt(name), text[:2000]))
    assert set(codes) == {0, 2}  # some wrongs are harmless


plain_json = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
any_json = st.recursive(
    plain_json, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=8
)
LINEAGE_KEYS = ("command", "settings", "inputs")
known_keys = st.sampled_from(
    ["kind", "version", "actions", "context", "model", "hidden", "width", "training", "lineage", *LINEAGE_KEYS]
)


@settings(
    max_examples=OF_JSON,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(pair=st.sampled_from(WITH_DOCUMENT), whole=any_json, parts=st.none() | st.dictionaries(known_keys, any_json))
def test_documents_of_any_json(bench: Bench, pair: tuple[str, str], whole: Any, parts: dict[str, Any] | None) -> None:
    """Anything at all instead of the document, or instead of some of what it and its lineage have."""
    name, line = pair
    document = whole
    if parts is not None:
        document = read_document(bench.valid / name)
        document["lineage"] |= {key: value for key, value in parts.items() if key in LINEAGE_KEYS}
        document |= {key: value for key, value in parts.items() if key not in LINEAGE_KEYS}
    text = json.dumps(document).encode()
    write_with_document(bench.valid / name, bench.spoilt(name), text)
    bench.run(line.split(), bench.spoilt(name), text)


# ——— values ———

NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 3e38, -3e38, 1e300, float("nan"), float("inf"), float("-inf"))
WHOLE_NUMBERS = (0, -1, 1, 3, 2**31 - 1, -(2**31))
TEXTS = ("", "train", "test", "x" * 3000, "\x1b[31m", "a|b", "\u202e", "\0", "é", "logging-policy", "wce-s2bl")


def spoilt_table(source: Path, target: Path, random: Random) -> str:
    """Some cells of a log or of scores replaced by what their type allows."""
    table = pq.read_table(source)
    column = pick(random, table.schema.names)
    kind, values = table.schema.field(column).type, table[column].to_pylist()
    for row in random.permutation(len(values))[: int(random.integers(1, 4))]:
        values[row] = pick(random, [None, *_of_type(kind, values[row], random)])
    field = table.schema.field(column).with_nullable(True)
    table = table.set_column(table.schema.get_field_index(column), field, pa.array(values, kind))
    pq.write_table(table, target)
    return f"{column}: {values}"


def _of_type(kind: pa.DataType, old: Any, random: Random) -> Sequence[Any]:
    if pa.types.is_integer(kind):
        return WHOLE_NUMBERS
    if pa.types.is_floating(kind):
        return NUMBERS
    if pa.types.is_fixed_size_binary(kind):
        return (random.bytes(len(old)), np.full(len(old) // 4, pick(random, NUMBERS[:9]), np.float32).tobytes())
    if pa.types.is_list(kind):
        return ([], [None] * len(old), old[1:], old * 2, [pick(random, NUMBERS)] * len(old))
    return TEXTS


def spoilt_tensors(source: Path, target: Path, random: Random) -> str:
    """One of a policy's tensors replaced, renamed, reshaped, retyped or left out."""
    tensors = load_file(source)
    name = pick(random, sorted(tensors))
    old = tensors.pop(name)
    kind = int(random.integers(7))
    if kind == 0:
        tensors[name + pick(random, ["x", "\x1b[31m", "é", ""])] = old
    elif kind == 1:
        tensors[name] = old.reshape(-1, 1)
    elif kind == 2:
        tensors[name] = old.astype(pick(random, [np.float64, np.float16, np.int64, np.uint8, np.bool_]))
    elif kind == 3:
        tensors[name] = np.frombuffer(random.bytes(old.nbytes), old.dtype).reshape(old.shape)
    elif kind == 4:
        tensors[name] = old[:0]
    elif kind == 5:
        tensors[name] = np.full_like(old, pick(random, NUMBERS[:9]))
    write_tensors(target, json.dumps(read_document(source)), tensors)
    return f"{name}: wrong {kind}"


@pytest.mark.parametrize(("name", "line"), PAIRS)
def test_wrong_values(bench: Bench, name: str, line: str) -> None:
    random = random_of("values", name, line)
    spoil = spoilt_tensors if name in (POLICY, MLP_POLICY) else spoilt_table
    for _ in range(OF_VALUES):
        told = spoil(bench.valid / name, bench.spoilt(name), random)
        bench.run(line.split(), bench.spoilt(name), told)


setting_names = (
    st.sampled_from(["lam", "tau", "known", "dataset", "reg", "value", "method", "settings", "seed"]) | st.text()
)


@settings(
    max_examples=OF_JSON,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    line=st.sampled_from(SCORES_RUNS),
    one=st.dictionaries(setting_names, plain_json, max_size=4) | any_json,
    other=st.dictionaries(setting_names, plain_json, max_size=4),
)
def test_settings_of_any_json(bench: Bench, line: str, one: Any, other: Any) -> None:
    """In two of the rows, so that a setting may be a number in one and a text in the other."""
    table = pq.read_table(bench.valid / SCORES)
    texts = [json.dumps(one), json.dumps(other), *table["settings"].to_pylist()[2:]][: table.num_rows]
    at = table.schema.get_field_index("settings")
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(texts, pa.string())), bench.spoilt(SCORES))
    bench.run(line.split(), bench.spoilt(SCORES), texts)


# ——— flags ———

FLAG_VALUES = (
    *(
        "",
        "0",
        "1",
        "-1",
        "2",
        "7",
        "0.5",
        "1.5",
        "-0",
        "+1",
        "1e-5",
        "1e-300",
        "1e300",
        "1e999",
        "1e",
        "0x10",
        "1_000",
    ),
    *(
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "0.1.2",
        "0.9999999999999999",
        "1.0000000000000002",
        " 5 ",
        "\t3",
        "3\n",
    ),
    *("9" * 40, "9" * 400, "9" * 4000, "9" * 5000, "-" + "9" * 5000, "0" * 5000 + "1", "１２", "٣", "²", "½", "ＮＡＮ"),
    *("64", "65", "1024", "1025", "65536", "65537", "100000", "100001", "16777216", "16777217", "2147483648"),
    *(
        "4294967295",
        "4294967296",
        "18446744073709551616",
        "a",
        "x" * 5000,
        "\0",
        "a\0b",
        "a\0b/*",
        "\x1b[31m",
        "\u202e",
    ),
    *(
        "\ud800",
        "\udcff",
        "é",
        "-",
        "--",
        "-x",
        "--help",
        ".",
        "none/x",
        "/dev/null",
        "*",
        "[",
        "[z-a]",
        "x_*",
        "'",
        "\\",
    ),
    *(
        "context",
        "action",
        "cost",
        "label",
        "pi0",
        "split",
        "propensity",
        "action,cost",
        "context,context",
        "[\udcffc]ontext",
        ",",
        " , ",
    ),
    *("4", "2x2", "2×2", "1x1x1x1x4", "0x4", "4x", "x", "uint8", "float32", "64,64", "5,,5", "5,-5", "1," * 16 + "1"),
    *("auto", "cpu", "cuda", "all", "known", "test", "train", "main", "sample", "mlp", "linear", "wce", "kl", "none"),
    *(
        "tips",
        "wce-only",
        "lam=1",
        "lam=nan",
        "lam=１",
        "rows=1e400",
        "seed=0",
        "method=\udcff",
        "metric=",
        "=",
        "a=b=c",
    ),
    *("True", "false", "null", "{}", "{0}", "%s", "$HOME", "log.parquet", "out"),
)
STARTS = {
    "make-logs": "--epochs 0",
    "mask": "LOG --rho 0.5",
    "train": "LOG --method wce-s2bl --epochs 1",
    "evaluate": "POLICY --logs LOG",
    "report": "SCORES",
    "sweep": "--dry-run",
    "methods": "tips",
    "inspect": "LOG",
}


def is_much(value: str) -> bool:
    """Whether a number in it is too large to be worked through here."""
    return any(len(number) > 9 or int(number) > 64 for number in re.findall(r"\d+", value.replace("_", "")))


def wrong_flags(verb: str, random: Random) -> tuple[list[str], bool]:
    """A command line with one or two flags or arguments of those the verb has; and whether it means much work."""
    parameters = [parameter for parameter in verb_command(verb).params if parameter.name != "help"]
    words, drawn = STARTS[verb].split(), []
    for _ in range(1 if random.random() < 0.6 else 2):
        parameter, value = pick(random, parameters), pick(random, FLAG_VALUES)
        flag = pick(random, [name for name in parameter.opts if name.startswith("-")] or [""])
        drawn.append(value)
        if parameter.param_type_name == "argument":
            words[0] = value
        elif parameter.is_flag:
            words.append(flag if random.random() < 0.8 else f"{flag}={value}")
        elif flag.startswith("--") and random.random() < 0.5:
            words.append(f"{flag}={value}")
        else:
            words += [flag, value]
    return [verb, *words], any(map(is_much, drawn))


@pytest.fixture
def stop_much_work(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Whether the next run ends where it would start to compute. Every data set is twenty small images, twice."""
    start, load = RunSettings.start, Registry.load
    images = random_of("images").integers(0, 256, (20, 1, 4, 4), dtype=np.uint8)
    part = LabelledPart(images, np.arange(20, dtype=np.int32) % 3)
    few = LabelledData("few", 3, part, part)
    state = {"much": False}

    def start_or_stop(self: RunSettings, *words: Any, **more: Any) -> torch.device:
        if state["much"]:
            raise RunError("stopped here: this would be much work")
        return start(self, *words, **more)

    def load_few(self: Registry, name: str) -> Any:
        return (lambda *words, **more: few) if self.kind == "dataset" and name in self.names else load(self, name)

    monkeypatch.setattr(RunSettings, "start", start_or_stop)
    monkeypatch.setattr(Registry, "load", load_few)
    return lambda much: state.update(much=much)


@pytest.mark.parametrize("verb", VERBS.names)
def test_wrong_flags(bench: Bench, stop_much_work: Callable[[bool], None], verb: str) -> None:
    random, codes = random_of("flags", verb), []
    for _ in range(OF_FLAGS):
        words, much = wrong_flags(verb, random)
        stop_much_work(much)
        codes.append(bench.run(words))
    assert set(codes) == {0, 2}  # some values are right
