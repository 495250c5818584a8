"""Options from TOML files: `--config` sets any option of a command, `--columns` the column names of a log.

    # run.toml                          # columns.toml
    epochs = 20                         action-column = "banner"
    lam = [0.1, 1]                      propensity-column = "probability"
    [evaluate]                          reward-column = "reward"
    interval = "bootstrap"

A table named after a command, such as `[evaluate]`, applies only to that command. The command line overrides both
files, and `--columns` overrides `--config`. Values are checked as if they were given on the command line.
"""

import dataclasses
import tomllib
from collections.abc import Collection, Mapping
from typing import Any

import typer

from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.errors import SettingError, did_you_mean, one_line
from s2bl_cli.settings import flag

_NOT_FROM_FILES = ("config", "columns_file", "common_help")


def use_config(ctx: typer.Context, name: str | None) -> None:
    """The callback of `--config`."""
    if name is not None:
        # --columns may be parsed before or after --config, so its values are kept.
        ctx.default_map = {**_defaults(ctx, "--config", name, None), **(ctx.default_map or {})}


def use_columns(ctx: typer.Context, name: str | None) -> None:
    """The callback of `--columns`."""
    if name is not None:
        names = {field.name for field in dataclasses.fields(LogColumns)}
        ctx.default_map = {**(ctx.default_map or {}), **_defaults(ctx, "--columns", name, names)}


def _defaults(ctx: typer.Context, source: str, name: str, only: Collection[str] | None) -> dict[str, Any]:
    """Map parameter names to values, for the options that the file sets for this command."""
    document = _read_document(source, name)
    tables = {key: value for key, value in document.items() if isinstance(value, Mapping)}
    flat = {key: value for key, value in document.items() if key not in tables}
    allowed = {
        parameter.name: parameter
        for parameter in ctx.command.params
        if parameter.opts[0].startswith("-")
        and parameter.name not in _NOT_FROM_FILES
        and (only is None or parameter.name in only)
    }
    commands = getattr(ctx.parent and ctx.parent.command, "commands", {})
    faults = [f"[{one_line(table, 40)}] is not the name of a command" for table in tables if table not in commands]
    values = {}
    for key, value in {**flat, **tables.get(ctx.info_name or "", {})}.items():
        parameter = next((option for option in allowed.values() if flag(key) in option.opts), None)
        if parameter is None:
            faults.append(f"no option {flag(key)}{_suggestion(key, allowed.values())}")
        elif isinstance(value, Mapping) or not _is_valid(value, parameter):
            faults.append(f"{key} has an invalid value for {flag(key)}: {one_line(value, 60)}")
        else:
            values[str(parameter.name)] = _as_typed(value, parameter)
    if faults:
        raise SettingError(f"{source} {one_line(name, 99)}: {'; '.join(faults)} (see: {ctx.command_path} --help)")
    return values


def _read_document(source: str, name: str) -> dict[str, Any]:
    from s2bl_cli.contract.input_files import open_input

    with open_input(name) as file:
        raw = file.start(1 << 20)
    try:
        return tomllib.loads(raw.decode())
    except ValueError as error:  # includes text that is not UTF-8
        raise SettingError(
            f"{source} {one_line(name, 99)} must be TOML, with lines such as epochs = 20: {one_line(error, 120)}"
        ) from error


def _suggestion(key: str, options: Collection[Any]) -> str:
    names = [name.lstrip("-") for option in options for name in option.opts]
    return did_you_mean(key.replace("_", "-"), names)


def _is_valid(value: Any, parameter: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    is_switch = bool(getattr(parameter, "is_flag", False))
    return all(isinstance(item, bool) if is_switch else isinstance(item, str | int | float) for item in items) and all(
        is_switch or not isinstance(item, bool) for item in items
    )


def _as_typed(value: Any, parameter: Any) -> Any:
    """Convert a value to what the command line would give: text, or a list of texts for a repeatable option."""
    if isinstance(value, bool):
        return value
    texts = [str(item) for item in (value if isinstance(value, list) else [value])]
    return texts if parameter.multiple else ",".join(texts)
