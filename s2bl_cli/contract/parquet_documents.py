"""The s2bl document of a Parquet file, if it has one: what the file says it is."""

from typing import Any

import pyarrow.parquet as pq

from s2bl_cli.contract.document import KEY, decode_document
from s2bl_cli.contract.input_files import DAMAGED, InputFile, damaged, open_parquet


def read_document(file: InputFile) -> dict[str, Any] | None:
    """The document, of any kind; None for a file that another tool made."""
    with open_parquet(file) as parquet:
        return document_of(parquet, file)


def document_of(parquet: pq.ParquetFile, file: InputFile) -> dict[str, Any] | None:
    """As `read_document`, of a file that is open already."""
    try:
        raw = (parquet.schema_arrow.metadata or {}).get(KEY.encode())
    except DAMAGED as error:
        raise damaged(file.name, error) from error
    return None if raw is None else decode_document(raw, file.name)
