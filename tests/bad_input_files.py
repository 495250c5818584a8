"""Tiny valid files of every kind, and ways to spoil them. Builders only: no tests here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file
from score_fixtures import row_of
from typer.testing import CliRunner

from s2bl_cli.app import app
from s2bl_cli.contract import scores as contract_scores
from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.document import KEY
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.reading import LogArrays
from s2bl_cli.contract.logs.schema import LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer
from s2bl_cli.contract.scores import Score

ROWS, ACTIONS, FEATURES = 24, 3, 4

LOG, PLAIN_LOG, POLICY, MLP_POLICY, SCORES = (
    "log.parquet",
    "plain.parquet",
    "policy.safetensors",
    "mlp.safetensors",
    "scores.parquet",
)


def write_valid_files(folder: Path) -> None:
    """A log of ours, a log as another tool would write it, two policies and their scores."""
    write_log(folder / LOG)
    write_plain_log(folder / PLAIN_LOG)
    train = ("train", folder / LOG, "--method", "wce-s2bl", "--epochs", 1, "-o")
    succeed(*train, folder / POLICY)
    succeed(*train, folder / MLP_POLICY, "--model", "mlp", "--hidden", "5,4", "--seed", 1)
    policies = (folder / POLICY, folder / MLP_POLICY)
    metrics = ("--metrics", "argmax-accuracy,sampled-accuracy")
    succeed("evaluate", *policies, "--logs", folder / LOG, *metrics, "-o", folder / SCORES)


def succeed(*words: object) -> None:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output


def write_log(path: Path, rows: int = ROWS) -> None:
    """In the contract's own form, all optional columns, three row groups; every third row is a test row."""
    random = np.random.default_rng(7)
    logits = random.standard_normal((rows, ACTIONS))
    pi0 = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
    action = random.integers(0, ACTIONS, rows, dtype=np.int32)
    known = np.arange(rows) % 2 == 0
    arrays = LogArrays(
        context=random.standard_normal((rows, FEATURES)).astype(np.float32),
        action=action,
        propensity=pi0[np.arange(rows), action],
        cost=np.where(known, -random.random(rows, dtype=np.float32), np.float32(0)),
        known=known,
        is_test=np.arange(rows) % 3 == 0,
        label=random.integers(0, ACTIONS, rows, dtype=np.int32),
        pi0=pi0,
    )
    spec = LogSpec(ACTIONS, ContextSpec("float32", (FEATURES,)), ("label", "pi0", "split"))
    made = Step("make-logs", {"dataset": "example", "tau": 10.0, "seed": 7, "logging-model": "linear"}, "0.1.0")
    batch = log_batch(arrays, spec)
    with log_writer(str(path), spec, made, force=True) as writer:
        for start in range(0, rows, 8):
            writer.write(batch.slice(start, 8))


def plain_columns(rows: int = ROWS) -> dict[str, pa.Array]:
    """The columns of a log that another tool made."""
    random = np.random.default_rng(8)
    return {
        "context": pa.array(random.random((rows, FEATURES)).tolist(), pa.list_(pa.float64())),
        "action": pa.array(np.arange(rows) % ACTIONS, pa.int64()),
        "propensity": pa.array(np.full(rows, 0.25), pa.float64()),
        "cost": pa.array([None if i % 2 else -0.5 for i in range(rows)], pa.float64()),
        "label": pa.array(np.arange(rows) % ACTIONS, pa.int64()),
        "split": pa.array(["test" if i % 3 == 0 else "train" for i in range(rows)]),
        "note": pa.array([f"row {i}" for i in range(rows)]),
    }


def write_plain_log(path: Path, **changed: Any) -> None:
    """Columns replaced or added by `changed`; None leaves one out."""
    columns = {**plain_columns(), **changed}
    pq.write_table(pa.table({name: values for name, values in columns.items() if values is not None}), path)


def read_document(path: Path) -> Any:
    if path.suffix == ".safetensors":
        return json.loads(safetensors_header(path.read_bytes())["__metadata__"][KEY])
    return json.loads(pq.read_schema(path).metadata[KEY.encode()])


def write_with_document(source: Path, target: Path, document: bytes) -> None:
    """The same file with another document, which may be no JSON at all."""
    if source.suffix == ".safetensors":
        header = safetensors_header(source.read_bytes())
        header["__metadata__"][KEY] = document.decode(errors="surrogateescape")
        write_safetensors(target, header, safetensors_data(source.read_bytes()))
    else:
        table = pq.read_table(source)
        pq.write_table(table.replace_schema_metadata({KEY: document}), target)


def edit_document(source: Path, target: Path, edit: Callable[[Any], Any]) -> None:
    """The same file with its document as `edit` leaves it."""
    document = read_document(source)
    edit(document)
    write_with_document(source, target, json.dumps(document).encode())


def safetensors_header(content: bytes) -> Any:
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


def safetensors_data(content: bytes) -> bytes:
    return content[8 + int.from_bytes(content[:8], "little") :]


def write_safetensors(target: Path, header: Any, data: bytes) -> None:
    """By hand: the library would refuse to write what a stranger might."""
    text = json.dumps(header, ensure_ascii=False).encode(errors="surrogateescape")
    target.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_tensors(target: Path, document: str, tensors: dict[str, Any]) -> None:
    save_file(tensors, target, metadata={KEY: document})


def write_log_with(source: Path, target: Path, **columns: Any) -> None:
    """A log of ours with some columns replaced by values of the same type, its document as it was."""
    table = pq.read_table(source)
    for name, change in columns.items():
        at, field = table.schema.get_field_index(name), table.schema.field(name)
        values = pa.array(change(table[name].to_pylist()), field.type)
        table = table.set_column(at, field.with_nullable(True), values)
    pq.write_table(table, target)


def write_scores(path: Path) -> None:
    """The scores of one policy, without training one."""
    told = {"policy": POLICY, "log": LOG, "log_sha256": "ef" * 32, "method": "wce-s2bl", "seed": 0, "split": "test"}
    score = row_of(Score, **told, metric="argmax-accuracy", value=0.5, rows=8, lam=1.0, epochs=10)
    contract_scores.write_scores([score], Step("evaluate", {}, "0.1.0"), str(path), force=True)
