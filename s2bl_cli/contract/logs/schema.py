"""The log's columns, contract version 1.

| column       | type                                 | meaning                                             |
|--------------|--------------------------------------|-----------------------------------------------------|
| `context`    | fixed_size_binary; metadata dtype, shape, names | a uint8 image or float32 features        |
| `action`     | int32, from 0                        | the action that the logging policy chose            |
| `propensity` | float32, in (0, 1]                   | the probability of that choice                      |
| `cost`       | float32, null = feedback is missing  | lower is better                                     |
| `label`      | int32, optional                      | the true class, used only by `evaluate`             |
| `pi0`        | fixed_size_binary(4·actions), optional | the whole logging distribution, float32           |
| `split`      | dictionary of string, optional       | `train` (the default) or `test`                     |
| `cluster`    | int64, optional                      | rows of one cluster, such as a user, are dependent  |

Other columns are passed through unchanged. Contexts are binary because lists are slow: a 60,000×784 uint8 log is read
about 20 times faster.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from s2bl_cli.contract.context_spec import ContextSpec, decode_context_spec
from s2bl_cli.contract.document import KEY, KIND_LOGS, encode_document
from s2bl_cli.contract.lineage import Step
from s2bl_cli.errors import ContractError

REQUIRED = ("context", "action", "propensity", "cost")
OPTIONAL = ("label", "pi0", "split", "cluster")
COLUMNS = REQUIRED + OPTIONAL

SPLIT_TYPE = pa.dictionary(pa.int8(), pa.string())
SPLITS = ("train", "test")


@dataclass(frozen=True)
class LogSpec:
    """Properties of a whole log: number of actions, context, optional columns.

    `action_names` are names of the actions, such as a table's labels; empty if they are unknown.
    """

    actions: int
    context: ContextSpec
    optional: tuple[str, ...] = ()  # those of OPTIONAL that the log has, in that order
    extra: tuple[tuple[str, pa.DataType], ...] = ()  # columns that are passed through
    action_names: tuple[str, ...] = ()  # one per action, or empty

    def has(self, column: str) -> bool:
        return column in REQUIRED or column in self.optional

    def column_type(self, column: str) -> pa.DataType:
        return {
            "context": pa.binary(self.context.byte_width),
            "action": pa.int32(),
            "propensity": pa.float32(),
            "cost": pa.float32(),
            "label": pa.int32(),
            "pi0": pa.binary(4 * self.actions),
            "split": SPLIT_TYPE,
            "cluster": pa.int64(),
        }[column]

    def without_extra(self) -> "LogSpec":
        return replace(self, extra=())

    def schema(self, lineage: Step | None = None) -> pa.Schema:
        """The canonical Arrow schema; with a lineage, the schema to write."""
        fields = [
            pa.field(name, self.column_type(name), nullable=name == "cost", metadata=self._field_metadata(name))
            for name in COLUMNS
            if self.has(name)
        ]
        fields += [pa.field(name, kind) for name, kind in self.extra]
        return pa.schema(fields, metadata=None if lineage is None else {KEY: self._document(lineage)})

    def _document(self, lineage: Step) -> str:
        names = {"action_names": list(self.action_names)} if self.action_names else {}
        return encode_document(KIND_LOGS, lineage, {"actions": self.actions, **names})

    def _field_metadata(self, name: str) -> dict[str, str] | None:
        if name != "context":
            return None
        names = {"names": json.dumps(list(self.context.names))} if self.context.names else {}
        return {"dtype": self.context.dtype, "shape": json.dumps(list(self.context.shape)), **names}


def declared_context(field: pa.Field, subject: str) -> ContextSpec | None:
    """The context's dtype and shape from the field's metadata; None if it declares neither."""
    metadata: dict[bytes, bytes] = field.metadata or {}
    if b"dtype" not in metadata and b"shape" not in metadata:
        return None
    try:
        value: dict[str, Any] = {
            "dtype": metadata.get(b"dtype", b"").decode(),
            "shape": json.loads(metadata.get(b"shape", b"null")),
            "names": json.loads(metadata.get(b"names", b"null")),
        }
    except (ValueError, RecursionError) as error:
        raise ContractError(
            f"{subject}: the context column's dtype and shape cannot be read; make the file again"
        ) from error
    return decode_context_spec(value, subject)
