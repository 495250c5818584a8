"""The architecture: imports point downward, heavy packages load late, registry entries load, nothing unpickles."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from learning_fixtures import blobs, write_arrays
from repository import ROOT
from score_fixtures import row_of

from s2bl_cli import registry
from s2bl_cli.app import VERBS
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.scores import Score, write_scores
from s2bl_cli.registry import Registry

PACKAGE = ROOT / "s2bl_cli"
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
REGISTRIES = [value for value in vars(registry).values() if isinstance(value, Registry)]

# From top to bottom. A package imports from lower layers and from itself, never from others of its layer.
LAYERS = (
    {"__main__"},
    {"app"},
    {"commands"},
    {"sweeping"},
    {"reporting", "inspection", "masking", "evaluation", "training", "logging_policy"},
    {"objectives", "metrics"},
    {"reward_models"},
    {"policies", "features"},
    {"datasets"},
    {"contract"},
    {"console", "settings", "registry", "row_hash", "running_moments"},
    {"errors"},
)


def _layer(package: str) -> int:
    (layer,) = (i for i, packages in enumerate(LAYERS) if package in packages)
    return layer


def _package(module: str) -> str:
    """`s2bl_cli.training.fitting` → `training`; of the package itself, the empty name."""
    return module.removeprefix("s2bl_cli").removeprefix(".").partition(".")[0]


def _imports(path: Path) -> Iterator[str]:
    """Every module that the file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they point"
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                yield whole if whole in MODULES else str(node.module)


def test_every_package_has_its_layer() -> None:
    packages = {_package(module) for module in MODULES} - {""}
    assert packages <= set().union(*LAYERS)
    assert sum(map(len, LAYERS)) == len(set().union(*LAYERS))


def test_imports_point_downward() -> None:
    for module, path in MODULES.items():
        package = _package(module)
        for imported in _imports(path):
            if imported.split(".")[0] != "s2bl_cli" or _package(imported) in ("", package):
                continue
            assert package, f"the package itself imports {imported}"
            assert _layer(_package(imported)) > _layer(package), f"{module} imports {imported}, which is not below it"


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, path in MODULES.items() if not ast.get_docstring(ast.parse(path.read_text()))] == []


UNPICKLERS = {"s2bl_cli.datasets.cifar_files"}  # CIFAR's official layout is pickles
PICKLERS = {"pickle", "_pickle", "pickletools", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def test_no_file_can_run_code() -> None:
    """A pickle can: only CIFAR's files are unpickled, by a list of allowed names, and torch loads weights alone."""
    for module, path in MODULES.items():
        _check_pickles(module, path)


def _check_pickles(module: str, path: Path) -> None:
    tree = ast.parse(path.read_text())
    if module not in UNPICKLERS:
        assert not {name.split(".")[0] for name in _imports(path)} & PICKLERS, module
    bases = {base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and _admits_by_name(node)
             for base in node.bases}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in PICKLERS:
            assert node in bases, f"{module}, line {node.lineno}: only as the base of an unpickler that admits names"
        if isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in ("torch.load", "np.load", "numpy.load"):
            assert node in _weights_only(tree), f"{module}, line {node.lineno}: weights_only=True"
        assert not (isinstance(node, ast.keyword) and node.arg == "allow_pickle"), module


def _admits_by_name(node: ast.ClassDef) -> bool:
    return any(isinstance(part, ast.FunctionDef) and part.name == "find_class" for part in node.body)


def _weights_only(tree: ast.AST) -> list[ast.expr]:
    """What is called with `weights_only=True`."""
    return [
        node.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and any(word.arg == "weights_only" and ast.unparse(word.value) == "True" for word in node.keywords)
    ]


# --- registries ---


@pytest.mark.parametrize(
    ("table", "name"),
    [pytest.param(table, name, id=f"{table.kind}-{name}") for table in (*REGISTRIES, VERBS) for name in table.names],
)
def test_every_registry_entry_leads_somewhere(table: Registry, name: str) -> None:
    assert table.load(name) is not None
    assert table.entries[name].summary


@pytest.mark.parametrize("verb", VERBS.names)
def test_verbs_summary_is_its_docstrings_first_line(verb: str) -> None:
    assert VERBS.entries[verb].summary == VERBS.load(verb).__doc__.splitlines()[0]


# --- what is loaded when ---


def _loaded(folder: Path, *words: str) -> set[str]:
    """The packages that a run of the command loads, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "s2bl_cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in lines}
    assert {"s2bl_cli", "typer"} <= loaded
    return loaded


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = {"torch", "torchvision", "numpy", "pyarrow", "polars", "safetensors"}
    assert not _loaded(tmp_path, "--help") & heavy


@pytest.mark.parametrize("verb", VERBS.names)
def test_help_of_a_verb_loads_no_torch(tmp_path: Path, verb: str) -> None:
    assert not _loaded(tmp_path, verb, "--help") & {"torch", "torchvision", "polars"}


def test_mask_report_and_inspect_never_load_torch(tmp_path: Path) -> None:
    write_arrays(tmp_path / "logs.parquet", blobs(), 3)
    told = {"policy": "p", "log": "l", "log_sha256": "0", "method": "tips", "seed": 0, "split": "test"}
    score = row_of(Score, **told, metric="argmax-accuracy", value=0.5, rows=10)
    write_scores([score], Step("evaluate", {}, "0.1.0"), str(tmp_path / "scores.parquet"), force=False)
    for words in (
        ("mask", "--rho", "0.5", "logs.parquet", "-o", "masked.parquet"),
        ("report", "scores.parquet"),
        ("inspect", "logs.parquet"),
    ):
        loaded = _loaded(tmp_path, *words)
        assert "pyarrow" in loaded  # a real run, not a help
        assert not loaded & {"torch", "torchvision"}, words
