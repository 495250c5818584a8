"""How inputs are opened, and whose fault it is when reading one fails."""

import ast
import errno
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input_files import LOG, PLAIN_LOG, POLICY, SCORES, write_safetensors, write_valid_files
from typer.testing import CliRunner

import s2bl_cli.contract
from s2bl_cli.app import app
from s2bl_cli.contract.input_files import InputFile, open_input
from s2bl_cli.errors import InputFileError

CONTRACT = Path(s2bl_cli.contract.__file__).parent
OPENERS = {
    *("open", "fdopen", "OSFile", "memory_map", "input_stream", "safe_open", "load_file", "read_bytes", "read_text"),
    *("read_table", "read_schema", "read_metadata", "ParquetDataset", "dataset", "read_csv", "read_parquet"),
}
# `atomic.py` opens outputs.
ALLOWED = {"input_files.py": {"open", "OSFile"}, "atomic.py": {"open"}, "parquet_files.py": {"open"}}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


def test_only_input_file_opens_inputs() -> None:
    """`parquet_files.py` calls `InputFile.open`, and hands the handle to pyarrow."""
    for path in CONTRACT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for name, call in calls(tree):
            where = f"{path.name}:{call.lineno}"
            assert name not in OPENERS - ALLOWED.get(path.name, set()), f"{where} opens a file by {name}"
            if name == "ParquetFile":
                assert isinstance(call.args[0], ast.Name), where
                assert call.args[0].id == "handle", f"{where} gives pyarrow something else than an opened handle"
            if path.name == "parquet_files.py" and name == "open":
                assert ast.unparse(call) == "file.open()", where
        if path.name != "input_files.py":
            attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "path"]
            paths = [ast.unparse(node) for node in attributes if ast.unparse(node.value) != "os"]
            assert not paths, f"{path.name} uses the path of an input: {paths}"


def test_a_file_that_goes_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"PAR1")
    with open_input(str(tmp_path / "log")) as file:
        (tmp_path / "log").unlink()
        with pytest.raises(InputFileError) as caught:
            file.sha256()
    assert str(caught.value) == f"{tmp_path}/log cannot be read: No such file or directory"


def test_a_disk_that_fails_is_no_damaged_file(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "log").write_bytes(b"PAR1 and more")
    monkeypatch.setattr(InputFile, "open", lambda file: pa.PythonFile(Broken(b"PAR1 and more"), "r"))
    ran = run("mask", "log", "--rho", 1)
    assert (ran.code, ran.stderr) == (2, "s2bl: log cannot be read: Input/output error\n")


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    """To Linux, a name is any bytes; arguments arrive with surrogates in place of those that are no UTF-8."""
    name = str(tmp_path / "\udcff.parquet")
    with open(name, "wb") as file:
        file.write(b"content")
    with open_input(name) as opened:
        assert (opened.read(), opened.path) == (b"content", name)


# --- our own bugs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("valid")
    write_valid_files(folder)
    pq.write_table(pa.table({"p": pa.array([[0.5, 0.25, 0.25]] * 24)}), folder / "p.parquet")
    return folder


BROKEN = {
    "mask LOG --rho 0.5 -o out.parquet": "s2bl_cli.contract.logs.reading.canonical_batch",
    "mask PLAIN --rho 0.5 -o out.parquet": "s2bl_cli.contract.logs.foreign.conversion._floats",
    "inspect LOG": "s2bl_cli.contract.logs.reading.check_batch",
    "train LOG --epochs 1 -o out": "s2bl_cli.contract.logs.reading.canonical_batch",
    "inspect POLICY": "s2bl_cli.contract.tensor_files._document_text",
    "evaluate POLICY --logs LOG -o out.parquet": "s2bl_cli.contract.policies._decode_policy",
    "evaluate p.parquet --logs LOG -o out.parquet": "s2bl_cli.contract.probabilities.ProbabilityFile._values",
    "report SCORES": "s2bl_cli.contract.tidy_files.TidyFile._check_values",
    "inspect SCORES": "s2bl_cli.contract.tidy_files.TidyFile._check_schema",
}


@pytest.mark.parametrize("error", [TypeError, KeyError, AttributeError, IndexError, ZeroDivisionError])
@pytest.mark.parametrize(("line", "function"), BROKEN.items())
def test_a_bug_of_ours_is_no_damaged_file(
    valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, function: str, error: type[Exception]
) -> None:
    def broken(*values: Any, **more: Any) -> None:
        raise error("a bug")

    monkeypatch.setattr(function, broken)
    monkeypatch.chdir(tmp_path)
    places = {"LOG": LOG, "PLAIN": PLAIN_LOG, "POLICY": POLICY, "SCORES": SCORES}
    words = [places.get(word, word) for word in line.split()]
    result = CliRunner().invoke(app, [str(valid / word) if (valid / word).exists() else word for word in words])
    assert isinstance(result.exception, error)
    assert (result.exit_code, result.stderr) == (1, "")
    assert not list(tmp_path.iterdir())


def test_a_dtype_that_numpy_lacks_is_refused(tmp_path: Path, run: Callable[..., Any]) -> None:
    write_safetensors(tmp_path / "policy", {"w": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, bytes(2))
    ran = run("inspect", "policy")
    assert ran.code == 2
    assert ran.stderr.startswith("s2bl: policy is not a policy file (safetensors: ")
