"""Shared fixtures: small logs whose content numpy knows, and the command line run in this process.

The factories take the path to write to and are session-scoped, so that hypothesis can use them.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from score_fixtures import LINEAGE
from typer.testing import CliRunner

from s2bl_cli.app import app
from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.reading import LogArrays
from s2bl_cli.contract.logs.schema import OPTIONAL, LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer
from s2bl_cli.contract.scores import Score, write_scores

FEATURES = ContextSpec("float32", (4,))

# No test depends on how long something takes: the machine may be busy.
settings.register_profile("s2bl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("s2bl")


@pytest.fixture(autouse=True)
def _no_timed_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow command prints lines of progress, which would be among its words."""
    monkeypatch.setattr("s2bl_cli.console._LINE_EVERY_SECONDS", float("inf"))


@pytest.fixture
def full_device(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A disk without room. Root gets one of its own: were the code broken, it would lose the system's."""
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    if os.geteuid() != 0:
        return "/dev/full"
    own = tmp_path_factory.mktemp("device") / "full"
    try:
        os.mknod(own, stat.S_IFCHR | 0o666, os.stat("/dev/full").st_rdev)
        os.close(os.open(own, os.O_WRONLY))
    except OSError:
        pytest.skip("root may not make a device here, and the system's is not risked")
    return str(own)


@dataclass(frozen=True)
class Ran:
    """What a command did, as a shell would see it."""

    code: int
    stdout: str
    stderr: str
    stdout_bytes: bytes


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """`run("mask", path, "--rho", 0.5)`, inside `tmp_path`. An exception that would be a traceback fails the test."""
    monkeypatch.chdir(tmp_path)

    def invoke(*words: object, stdin: bytes | None = None) -> Ran:
        result = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout_bytes.decode(errors="replace"), result.stderr, result.stdout_bytes)

    return invoke


@pytest.fixture
def report(run: Callable[..., Ran], tmp_path: Path) -> Callable[..., Ran]:
    """`report(scores, "--where", "lam=1")`: what the command did with a file of these scores."""

    def reported(scores: list[Score], *flags: object) -> Ran:
        write_scores(scores, LINEAGE, str(tmp_path / "scores.parquet"), force=True)
        return run("report", "scores.parquet", *flags)

    return reported


@pytest.fixture(scope="session")
def write_log() -> Callable[..., LogArrays]:
    """Writes a valid log in the contract's own form and returns what is in it."""
    return _write_log


@pytest.fixture(scope="session")
def write_plain() -> Callable[..., str]:
    """Writes four rows as another tool would, without a document; columns are replaced, added, or left out by None."""
    return _write_plain


def _write_log(
    path: str | Path,
    rows: int = 20,
    *,
    actions: int = 3,
    context: ContextSpec = FEATURES,
    optional: tuple[str, ...] = OPTIONAL,
    test_rows: int = 0,
    known: Any = True,
    row_group: int | None = None,
    seed: int = 0,
    lineage: Step | None = None,
) -> LogArrays:
    """`test_rows` of the rows are of the test split, spread over the log; `known` is a value or an array."""
    arrays = _example_arrays(rows, actions, context, optional, test_rows, known, seed)
    spec = LogSpec(actions, context, optional)
    batch = log_batch(arrays, spec)
    step = lineage or Step("make-logs", {"dataset": "example", "tau": 10.0, "seed": seed}, "0.1.0")
    with log_writer(str(path), spec, step, force=True) as writer:
        for start in range(0, rows, row_group or rows):
            writer.write(batch.slice(start, row_group or rows))
    return arrays


def _example_arrays(
    rows: int,
    actions: int,
    context: ContextSpec,
    optional: tuple[str, ...],
    test_rows: int,
    known: Any,
    seed: int,
) -> LogArrays:
    rng = np.random.default_rng(seed)
    if context.dtype == "uint8":
        contexts = rng.integers(0, 256, (rows, *context.shape), dtype=np.uint8)
    else:
        # From the smallest to the largest magnitudes that float32 has
        contexts = rng.standard_normal((rows, *context.shape)) * 10.0 ** rng.integers(-37, 38, (rows, *context.shape))
        contexts = contexts.astype(np.float32)
    logits = rng.standard_normal((rows, actions))
    pi0 = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
    action = rng.integers(0, actions, rows, dtype=np.int32)
    is_known = np.broadcast_to(np.asarray(known, dtype=bool), rows).copy()
    is_test = np.zeros(rows, dtype=bool)
    is_test[rng.permutation(rows)[:test_rows]] = True
    return LogArrays(
        context=contexts,
        action=action,
        propensity=pi0[np.arange(rows), action],
        cost=np.where(is_known, -rng.random(rows, dtype=np.float32), np.float32(0)),
        known=is_known,
        is_test=is_test,
        label=rng.integers(0, actions, rows, dtype=np.int32) if "label" in optional else None,
        pi0=pi0 if "pi0" in optional else None,
        cluster=rng.integers(-(2**63), 2**63, rows) if "cluster" in optional else None,
    )


def _write_plain(path: str | Path, *, row_group: int | None = None, **columns: Any) -> str:
    defaults: dict[str, Any] = {
        "context": pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], pa.list_(pa.float32())),
        "action": pa.array([0, 1, 0, 1], pa.int32()),
        "propensity": pa.array([0.5, 0.25, 0.5, 0.75], pa.float32()),
        "cost": pa.array([-1, None, 0, -0.5], pa.float32()),
    }
    chosen = {name: values for name, values in {**defaults, **columns}.items() if values is not None}
    pq.write_table(pa.table(chosen), path, row_group_size=row_group)
    return str(path)
