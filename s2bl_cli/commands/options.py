"""Options from settings dataclasses, and the options that all commands share."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import typer

from s2bl_cli.commands.config_files import use_columns, use_config
from s2bl_cli.commands.help_pages import print_common
from s2bl_cli.console import Console
from s2bl_cli.console import counted as counted  # re-exported for the commands
from s2bl_cli.settings import Declaration, declaration, flag, members

LOG_PANEL = "Input columns"
TEST_PANEL = "Test rows"
RUN_PANEL = "Run"


def output_option(default: str, target: str = "File to write") -> Any:
    """`-o FILE`; `default` is the name of the file without it."""
    return typer.Option("-o", "--output", help=f"{target}, or - for stdout (default: {default})", metavar="FILE")


def shown(target: str) -> str:
    """The name of an output in a message."""
    return "stdout" if target == "-" else target


Force = Annotated[bool, typer.Option("--force", help="Overwrite existing outputs", rich_help_panel=RUN_PANEL)]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", help="Print only warnings and errors to stderr", rich_help_panel=RUN_PANEL),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print a machine-readable summary to stdout", rich_help_panel=RUN_PANEL)
]
LogsArgument = Annotated[
    list[str],
    typer.Argument(
        help="Log: Parquet files, globs or folders; - for stdin",
        metavar="LOGS",
        show_default=False,
    ),
]


def console_of(*, quiet: bool, as_json: bool, output: str | None) -> Console:
    console = Console(quiet=quiet, as_json=as_json)
    console.check_streams(output)
    return console


Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        help="TOML file that sets any of these options",
        metavar="FILE",
        is_eager=True,
        callback=use_config,
        rich_help_panel=RUN_PANEL,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        help='TOML file with the log\'s column names, such as action-column = "banner"',
        metavar="FILE",
        is_eager=True,
        callback=use_columns,
    ),
]
CommonHelp = Annotated[
    bool,
    typer.Option(
        "-h",
        help="Show the common options and examples",
        is_eager=True,
        callback=print_common,
        rich_help_panel=RUN_PANEL,
    ),
]


def with_shared_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb with the options of every command: -h, --config, and --columns if it reads logs."""
    signature = inspect.signature(verb)
    shared: dict[str, Any] = {"config": Config, "common_help": CommonHelp}
    if "action_column" in signature.parameters:
        shared["columns_file"] = Columns
    parameters = [
        *signature.parameters.values(),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in shared.items()
        ),
    ]

    @functools.wraps(verb)
    def with_shared(**values: Any) -> Any:
        return verb(**{name: value for name, value in values.items() if name not in shared})

    with_shared.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_shared.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del with_shared.__wrapped__
    return with_shared


def settings_as_flags(**panels: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that replaces each parameter whose type is a settings dataclass by the options of that dataclass.

    `panels` maps a parameter to the help panel of its options. The command receives the dataclass, built from them
    (by its `from_options`, if it has one), whose checks run then.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = typing.get_type_hints(command, include_extras=True)
        groups = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name in groups:
                parameters += _flags(groups[parameter.name], panels.get(parameter.name))
            else:
                parameters.append(
                    parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
                )

        def with_settings(values: dict[str, Any]) -> dict[str, Any]:
            for name, group in groups.items():
                fields = {field.name: _pop_value(field, values) for field in dataclasses.fields(group)}
                make: Any = getattr(group, "from_options", group)
                values[name] = make(**fields)
            return values

        @functools.wraps(command)
        def with_flags(**values: Any) -> None:
            command(**with_settings(values))

        with_flags.with_settings = with_settings  # type: ignore[attr-defined]
        with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del with_flags.__wrapped__
        return with_flags

    return decorate


def check_words(name: str, verb: Callable[..., Any], words: Sequence[str]) -> None:
    """Parse the words of a command and check its settings, without running it."""
    single = typer.Typer(add_completion=False)
    single.command(name)(verb)
    context = typer.main.get_command(single).make_context(f"s2bl {name}", list(words))
    verb.with_settings(dict(context.params))  # type: ignore[attr-defined]


def _pop_value(field: "dataclasses.Field[Any]", values: dict[str, Any]) -> Any:
    """Remove the values of the field's options from `values`, and return the field's value."""
    field_members = members(field)
    if field_members is None:
        return values.pop(field.name)
    texts = {name: values.pop(name) for name in field_members}
    return {name: text for name, text in texts.items() if text is not None}


def _flags(group: Any, panel: str | None) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(group)
    flags = []
    for field in dataclasses.fields(group):
        field_members = members(field)
        if field_members is None:
            flags.append(_flag(field.name, hints[field.name], field.default, declaration(field), panel))
        else:
            flags += [_flag(name, str | None, None, declared, panel) for name, declared in field_members.items()]
    return flags


def _flag(name: str, hint: Any, default: Any, declared: Declaration, panel: str | None) -> inspect.Parameter:
    if declared.choices is not None:
        choices: Any = Literal[declared.choices()]
        hint = choices | None if default is None else choices
    option = typer.Option(
        flag(name),
        help=declared.help,
        metavar=declared.metavar,
        show_default=default is not None,
        rich_help_panel=declared.panel or panel,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option])
