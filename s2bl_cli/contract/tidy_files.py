"""Tidy Parquet files, such as scores and histories: a row is a dataclass, and its fields are the columns.

The s2bl document is in the schema metadata. A target whose name ends in .csv is written as CSV, for other tools; s2bl
does not read CSV.

A field of type `X | None` may be null, a field of type `X` may not. Version 1 of scores and histories had one column
per setting; the reader combines these into the column `settings`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from s2bl_cli.contract.atomic import TABLE_FORMATS, atomic_output
from s2bl_cli.contract.document import KEY, encode_document, expect_kind
from s2bl_cli.contract.input_files import InputFile, open_inputs
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.parquet_files import document_of, open_parquet, parquet_errors
from s2bl_cli.contract.settings_text import decode_settings, folded_settings
from s2bl_cli.errors import ContractError, one_line

_TYPES = {str: pa.string(), float: pa.float64(), int: pa.int64()}
_SETTINGS = "settings"


@dataclass(frozen=True)
class TidyFile:
    """A kind of tidy file: its row type, its name, and the command that makes it."""

    row: type[Any]
    kind: str
    made_by: str
    version_1: Mapping[str, type]  # the columns for settings

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(field.name, _column_type(field.type)) for field in fields(self.row)])

    @property
    def schema_1(self) -> pa.Schema:
        identity = [field for field in self.schema if field.name != _SETTINGS]
        return pa.schema([*identity, *(pa.field(name, _TYPES[kind]) for name, kind in self.version_1.items())])

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(field.name for field in fields(self.row) if not get_args(field.type))

    def write(self, rows: Sequence[Any], lineage: Step, target: str, *, force: bool) -> None:
        schema = self.schema.with_metadata({KEY: encode_document(self.kind, lineage, {})})
        table = pa.Table.from_pylist([asdict(row) for row in rows], schema=schema)
        with atomic_output(target, force=force, formats=TABLE_FORMATS) as file:
            if target.lower().endswith(".csv"):  # CSV has no metadata, so the lineage is lost
                csv.write_csv(table, file)
            else:
                pq.write_table(table, file, compression="zstd", write_page_checksum=True)

    def read(self, names: Sequence[str]) -> tuple[pa.Table, list[Step]]:
        """All rows of the files as one table, and the lineage of each file."""
        with open_inputs(names, folders=True) as files:
            return self.read_files(files)

    def read_files(self, files: Sequence[InputFile]) -> tuple[pa.Table, list[Step]]:
        """Like `read`, for files that are open already."""
        parts = [self._read_file(file) for file in files]
        table = pa.concat_tables([table for table, _ in parts])
        if table.num_rows == 0:
            raise ContractError(f"{one_line(', '.join(file.name for file in files))}: it has no rows")
        return table, [lineage for _, lineage in parts]

    def _read_file(self, file: InputFile) -> tuple[pa.Table, Step]:
        with open_parquet(file) as parquet:
            document = document_of(parquet, file)
            if document is None:
                raise ContractError(
                    f"{file.name}: it is not a {self.kind} file (no s2bl document); {self.made_by} makes them"
                )
            expect_kind(document, self.kind, file.name)
            schema = self.schema_1 if document["version"] == 1 else self.schema
            self._check_schema(parquet.schema_arrow, schema, file.name)
            with parquet_errors(file.name):
                table = parquet.read(columns=schema.names).select(schema.names)
                table.validate(full=True)  # rejects text that is not UTF-8, which callers rely on
        if schema != self.schema:
            table = table.append_column(_SETTINGS, folded_settings(table.select(list(self.version_1))))
        self._check_values(table, file.name)
        return table.select(self.schema.names).cast(self.schema), document["lineage"]

    def _check_values(self, table: pa.Table, subject: str) -> None:
        nulls = {name: table[name].null_count for name in self.required}
        faults = [f"{name} must not be null: {count:,} rows" for name, count in nulls.items() if count]
        if faults:
            raise ContractError(f"{subject}: {'; '.join(faults)}; make it again with {self.made_by}")
        for text in table[_SETTINGS].unique().to_pylist():
            decode_settings(text, subject)

    def _check_schema(self, file_schema: pa.Schema, schema: pa.Schema, subject: str) -> None:
        types = dict(zip(file_schema.names, file_schema.types, strict=True))
        faults = [
            f"column {field.name!r} must be {field.type}, found {one_line(types.get(field.name, 'none'), 40)}"
            for field in schema
            if types.get(field.name) != field.type
        ]
        if faults:
            raise ContractError(f"{subject}: {'; '.join(faults)}; make it again with {self.made_by}")


def _column_type(annotation: Any) -> pa.DataType:
    """The Arrow type of an annotation; the same for `float` and `float | None`."""
    return _TYPES[(get_args(annotation) or (annotation,))[0]]
