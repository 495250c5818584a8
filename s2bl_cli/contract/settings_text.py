"""The column `settings` of scores and histories: what a policy was trained on and how, as one JSON object.

    {"dataset":"sample","epochs":10,"lam":1.0,"logs.adverse":false,"mask.rho":0.02,…}

Keys are sorted and nulls left out, so that equal settings are equal texts. Values are numbers, texts and booleans.
A new setting of a command needs no line here: whatever a lineage records is in it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from s2bl_cli.contract.document import strict_json
from s2bl_cli.contract.lineage import Step
from s2bl_cli.errors import ContractError, one_line

MAX_LENGTH = 1 << 20  # of a text; a real one has about two thousand characters
MAX_COLUMNS = 1000  # different settings of a table; of more, the file is no honest one

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_OF_THE_REGULARISER = ("lam", "sharpen")  # recorded for a risk alone too, where they mean nothing


def encode_settings(settings: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in settings.items() if value is not None}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    if len(text) > MAX_LENGTH:
        raise ContractError(f"the recorded settings have {len(text):,} characters, and {MAX_LENGTH:,} can be kept")
    return text


def decode_settings(text: str, subject: str) -> dict[str, Any]:
    """The settings by name. The file may be a stranger's: anything but plain values is refused."""
    if len(text) > MAX_LENGTH:
        raise ContractError(f"{subject}: settings must have at most {MAX_LENGTH:,} characters, found {len(text):,}")
    try:
        settings = strict_json(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{subject}: settings must be JSON ({one_line(error, 80)})") from error
    if not isinstance(settings, dict):
        raise ContractError(f"{subject}: settings must be a JSON object, found {_shown(text)}")
    for name, value in settings.items():
        if not _NAME.fullmatch(name) or not _is_plain(value):
            raise ContractError(
                f"{subject}: settings must be numbers, texts and booleans by name, "
                f"found {_shown(name)} with {_shown(json.dumps(value))}"
            )
    return settings


def train_settings(step: Step) -> dict[str, Any]:
    """What a train step recorded. A risk alone has no λ and no β, whatever was recorded."""
    settings = step_settings(step)
    if settings.get("reg") == "none":
        settings = {name: value for name, value in settings.items() if name not in _OF_THE_REGULARISER}
    return settings


def step_settings(step: Step | None, prefix: str = "") -> dict[str, Any]:
    """The recorded settings of a step. No step has none."""
    return {} if step is None else named_settings(step.settings, prefix)


def named_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by flag, named as columns are: `reg-rows` is `reg_rows`."""
    return {
        prefix + name.replace("-", "_"): ",".join(map(str, value)) if isinstance(value, list) else value
        for name, value in settings.items()
        if value is not None
    }


def expanded_settings(table: pa.Table, types: Mapping[str, pa.DataType | None]) -> pa.Table:
    """The table with one column per setting instead of `settings`. Each of the distinct texts is parsed once.

    `types` are of columns that are there in any case, null where no row has a value. Columns without a type take their
    values': numbers, else text. A setting that is called like a column of the table is left out.
    """
    texts = table["settings"].combine_chunks().dictionary_encode()
    documents = [decode_settings(text, "settings") for text in texts.dictionary.to_pylist()]
    names = list(dict.fromkeys((*types, *sorted({name for document in documents for name in document}))))
    if len(names) > MAX_COLUMNS:
        raise ContractError(f"settings: {len(names):,} different ones, and {MAX_COLUMNS:,} can be shown")
    for name in names:
        if name not in table.column_names:
            column = _column(name, [document.get(name) for document in documents], types.get(name))
            table = table.append_column(name, column.take(texts.indices))
    return table.drop_columns("settings")


def _column(name: str, values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    is_text = any(isinstance(value, str | bool) for value in values)
    if kind == pa.string() or (kind is None and is_text):
        return pa.array([None if value is None else _text(value) for value in values], pa.string())
    is_seed = name.endswith("seed") and all(isinstance(value, int | None) for value in values)
    kind = kind or (pa.int64() if is_seed else pa.float64())
    try:
        return pa.array(values).cast(kind, safe=pa.types.is_integer(kind))
    except pa.ArrowException as error:
        found = ", ".join(str(value) for value in values if value is not None)
        raise ContractError(f"settings: {name} must be {kind}, found {one_line(found, 80)}") from error


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def folded_settings(columns: pa.Table) -> pa.Array:
    """One text per row of columns that are a setting each, as version 1 had them."""
    names = columns.column_names
    text_of = cache(lambda row: encode_settings({n: v for n, v in zip(names, row, strict=True) if _is_finite(v)}))
    return pa.array([text_of(row) for row in zip(*columns.to_pydict().values(), strict=True)], pa.string())


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 1 << 63)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or abs(value) < float("inf")


def _shown(text: str) -> str:
    return repr(one_line(text, 40))
