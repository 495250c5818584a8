"""The scores file: tidy Parquet, one row a (policy, log, metric), with the columns that `report` groups by.

A row says which policy (file name and digest), what it was trained on and how (dataset, τ, ρ, method, …),
which log it was scored on, and the metric's value with its standard error, interval and number of rows.
What does not apply is null: the logging policy has no method's λ, a foreign log no τ.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from s2bl_cli.contract.atomic import atomic_output
from s2bl_cli.contract.document import KEY, KIND_SCORES, decode_document, encode_document, expect_kind
from s2bl_cli.contract.input_files import DAMAGED, damaged, open_inputs, open_parquet
from s2bl_cli.contract.lineage import Step
from s2bl_cli.errors import ContractError, one_line

LOGGING_POLICY = "logging-policy"  # the method name of the policy that made the log


@dataclass(frozen=True)
class Score:
    """One row of a scores file. The field order is the column order."""

    policy: str
    policy_sha256: str | None
    log: str
    log_sha256: str
    dataset: str | None
    tau: float | None
    rho: float | None
    method: str
    risk: str | None
    reg: str | None
    reg_rows: str | None
    lam: float | None
    nu: float | None
    model: str | None
    seed: int | None
    split: str
    metric: str
    value: float
    stderr: float | None
    low: float | None
    high: float | None
    rows: int


_REQUIRED = tuple(field.name for field in fields(Score) if not get_args(field.type))
_TYPES = {str: pa.string(), float: pa.float64(), int: pa.int64()}


def _column_type(annotation: Any) -> pa.DataType:
    """The same for `float` and `float | None`."""
    return _TYPES[(get_args(annotation) or (annotation,))[0]]


SCHEMA = pa.schema(
    [pa.field(field.name, _column_type(field.type), nullable=field.name != "value") for field in fields(Score)]
)


def write_scores(scores: Sequence[Score], lineage: Step, target: str, *, force: bool) -> None:
    schema = SCHEMA.with_metadata({KEY: encode_document(KIND_SCORES, lineage, {})})
    table = pa.Table.from_pylist([asdict(score) for score in scores], schema=schema)
    with atomic_output(target, force=force) as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def read_scores(names: Sequence[str]) -> tuple[pa.Table, list[Step]]:
    """All rows of the files as one table, and the lineage of each file."""
    tables, lineages = [], []
    with open_inputs(names, folders=True) as files:
        for file in files:
            with open_parquet(file) as parquet:
                try:
                    schema = parquet.schema_arrow
                    raw = (schema.metadata or {}).get(KEY.encode())
                except DAMAGED as error:
                    raise damaged(file.name, error) from error
                if raw is None:
                    raise ContractError(
                        f"{file.name}: it is no scores file (no s2bl document); s2bl evaluate makes them"
                    )
                document = decode_document(raw, file.name)
                expect_kind(document, KIND_SCORES, file.name)
                _check_schema(schema, file.name)
                try:
                    table = parquet.read(columns=SCHEMA.names).select(SCHEMA.names)
                    table.validate(full=True)  # text that is no UTF-8 would reach those who take it on trust
                except DAMAGED as error:
                    raise damaged(file.name, error) from error
                _check_values(table, file.name)
                tables.append(table.cast(SCHEMA))
                lineages.append(document["lineage"])
    table = pa.concat_tables(tables)
    if table.num_rows == 0:
        raise ContractError(f"{one_line(', '.join(names))}: no scores in it")
    return table, lineages


def _check_values(table: pa.Table, subject: str) -> None:
    nulls = {name: table[name].null_count for name in _REQUIRED}
    faults = [f"{name} must not be null: {count:,} rows" for name, count in nulls.items() if count]
    if faults:
        raise ContractError(f"{subject}: {'; '.join(faults)}; make it again with s2bl evaluate")


def _check_schema(schema: pa.Schema, subject: str) -> None:
    found = dict(zip(schema.names, schema.types, strict=True))
    faults = [
        f"column {field.name!r} must be {field.type}, found {one_line(found.get(field.name, 'none'), 40)}"
        for field in SCHEMA
        if found.get(field.name) != field.type
    ]
    if faults:
        raise ContractError(f"{subject}: {'; '.join(faults)}; make it again with s2bl evaluate")
