"""The column `settings` of scores and histories: a policy's training data and training settings as a JSON object.

    {"dataset":"sample","epochs":10,"lam":1.0,"logs.adverse":false,"mask.rho":0.02,…}

Keys are sorted and nulls are omitted, so equal settings have equal texts. Values are numbers, strings and booleans.
All settings that a lineage records are included, so a new setting of a command needs no change here.
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

MAX_LENGTH = 1 << 20  # characters; typical settings have about 2,000
MAX_COLUMNS = 1000  # different settings per table; no real file has more

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_OF_THE_REGULARISER = ("lam", "sharpen")  # also recorded for a risk alone, where they have no effect


def encode_settings(settings: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in settings.items() if value is not None}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    if len(text) > MAX_LENGTH:
        raise ContractError(f"recorded settings must have at most {MAX_LENGTH:,} characters, found {len(text):,}")
    return text


def decode_settings(text: str, subject: str) -> dict[str, Any]:
    """The settings by name. The file may be untrusted, so only plain values are accepted."""
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
                f"{subject}: settings must map names to numbers, strings and booleans, "
                f"found {_shown(name)} with {_shown(json.dumps(value))}"
            )
    return settings


def train_settings(step: Step) -> dict[str, Any]:
    """The recorded settings of a train step, without λ and β for a risk alone."""
    settings = step_settings(step)
    if settings.get("reg") == "none":
        settings = {name: value for name, value in settings.items() if name not in _OF_THE_REGULARISER}
    return settings


def step_settings(step: Step | None, prefix: str = "") -> dict[str, Any]:
    """The recorded settings of a step; empty without a step."""
    return {} if step is None else named_settings(step.settings, prefix)


def data_settings(step: Step) -> dict[str, Any]:
    """Which data, as far back as the lineage goes: make-logs' dataset and τ, or the foreign file's name; and how the
    log was masked and made."""
    made = step.origin("make-logs")
    settings = {**step_settings(step.origin("mask"), "mask."), **step_settings(made, "logs.")}
    if made is not None:
        return {**settings, "dataset": settings.get("logs.dataset"), "tau": settings.get("logs.tau")}
    while step.inputs and step.inputs[0].step is not None:
        step = step.inputs[0].step
    name = step.inputs[0].name if step.inputs else None
    return {**settings, "dataset": name.removesuffix(".parquet") if name else None}


def named_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by option, with the names of columns: `reg-rows` becomes `reg_rows`."""
    return {
        prefix + name.replace("-", "_"): ",".join(map(str, value)) if isinstance(value, list) else value
        for name, value in settings.items()
        if value is not None
    }


def expanded_settings(table: pa.Table, types: Mapping[str, pa.DataType | None]) -> pa.Table:
    """The table with one column per setting instead of `settings`. Each distinct text is parsed once.

    Columns in `types` always exist, and are null in rows without a value. A column without a type is numeric if all its
    values are numbers, else text. A setting with the name of a column of the table is left out.
    """
    texts = table["settings"].combine_chunks().dictionary_encode()
    documents = [decode_settings(text, "settings") for text in texts.dictionary.to_pylist()]
    names = list(dict.fromkeys((*types, *sorted({name for document in documents for name in document}))))
    if len(names) > MAX_COLUMNS:
        raise ContractError(f"settings must have at most {MAX_COLUMNS:,} different names, found {len(names):,}")
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
        listed = ", ".join(str(value) for value in values if value is not None)
        raise ContractError(f"settings: {name} must be {kind}, found {one_line(listed, 80)}") from error


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def folded_settings(columns: pa.Table) -> pa.Array:
    """One text per row, from a table with one column per setting as in version 1."""
    names = columns.column_names
    text_of = cache(lambda row: encode_settings({n: v for n, v in zip(names, row, strict=True) if _is_finite(v)}))
    return pa.array([text_of(row) for row in zip(*columns.to_pydict().values(), strict=True)], pa.string())


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 1 << 63)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or abs(value) < float("inf")


def _shown(text: str) -> str:
    return repr(one_line(text, 40))
