"""The help of a command: `-h` shows the common options and examples, `--help` shows every option in its panel.

Laid out here, not by the framework, so that a page looks the same with every release of it: no word breaks in the
middle, and a default is always the last thing said of an option.
"""

import inspect
import shutil
import textwrap
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from s2bl_cli.settings import COMMON

_WIDEST = 100  # columns; longer lines are hard to read
_NAMES_WIDTH = 28  # columns for an option's names, unless they are longer
_EXAMPLES = "Examples:"
_METAVARS: dict[Any, str] = {int: "INT", float: "FLOAT", str: "TEXT"}
_DEFAULT = " (default: "
_FEW_CHOICES = 60  # characters: longer lists are on the pages of the docs


class HelpCommand(TyperCommand):
    """A command whose `--help` is the whole page."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(whole_page(ctx))


def print_common(ctx: typer.Context, is_asked: bool) -> None:
    """The callback of `-h`."""
    if is_asked:
        typer.echo(common_page(ctx), nl=False)
        raise typer.Exit


def common_page(ctx: typer.Context) -> str:
    """What most people need: the summary, examples, arguments and common options."""
    summary, _, examples = _parts(ctx.command.callback)
    panels = _panels(ctx)
    common = {panel: rows for panel, rows in panels.items() if panel in ("Arguments", COMMON)}
    closing = f"All options: {ctx.command_path} --help\n" if len(common) < len(panels) else ""
    return _page(ctx, [summary], examples, common) + (f"\n{closing}" if closing else "")


def whole_page(ctx: typer.Context) -> str:
    summary, description, examples = _parts(ctx.command.callback)
    return _page(ctx, [summary, *description], examples, _panels(ctx))


def _page(
    ctx: typer.Context, paragraphs: Sequence[str], examples: Sequence[str], panels: dict[str, list[tuple[str, str]]]
) -> str:
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    arguments = " ".join(names for names, _ in panels.get("Arguments", []))
    blocks = [_wrapped(f"Usage: {ctx.command_path} [OPTIONS] {arguments}".rstrip(), width, "  ")]
    blocks += [_wrapped(paragraph, width) for paragraph in paragraphs]
    if examples:
        blocks.append("\n".join([_EXAMPLES, *(f"  {example}" for example in examples)]))
    for panel, rows in panels.items():
        blocks.append("\n".join([f"{panel}:", *(line for row in rows for line in _option_lines(*row, width=width))]))
    return "\n\n".join(blocks) + "\n"


def _parts(verb: Any) -> tuple[str, list[str], list[str]]:
    """A docstring's first line, its other paragraphs, and the commands of its last one, `Examples:`."""
    paragraphs = (inspect.getdoc(verb) or "").split("\n\n")
    examples: list[str] = []
    if paragraphs[-1].startswith(_EXAMPLES):
        examples = [line.strip() for line in paragraphs.pop().splitlines()[1:]]
    summary, *description = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return summary, description, examples


def _panels(ctx: typer.Context) -> dict[str, list[tuple[str, str]]]:
    """Names and help of every parameter, by panel: arguments and common options first."""
    hints = {name: p.annotation for name, p in inspect.signature(ctx.command.callback).parameters.items()}  # type: ignore[arg-type]
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], COMMON: []}
    for parameter in ctx.command.params:
        is_option = parameter.opts[0].startswith("-")
        panel = "Arguments" if not is_option else getattr(parameter, "rich_help_panel", None) or COMMON
        names = _option_names(parameter, hints.get(parameter.name)) if is_option else f"{parameter.metavar}..."
        panels.setdefault(panel, []).append((names, _option_help(parameter, hints.get(parameter.name))))
    return {panel: rows for panel, rows in panels.items() if rows}


def _option_names(parameter: Any, hint: Any) -> str:
    """`-o, --output FILE`; a switch has no value."""
    names = ", ".join(parameter.opts)
    return names if getattr(parameter, "is_flag", False) else f"{names} {metavar(parameter, hint)}"


def metavar(parameter: Any, hint: Any) -> str:
    """What stands for an option's value: as declared, else the last word of its name for choices, else its type."""
    if parameter.metavar:
        return str(parameter.metavar)
    if choices(hint):
        return str(parameter.opts[-1].rpartition("-")[2].upper())
    return next(_METAVARS[kind] for kind in _plain_types(hint) if kind in _METAVARS)


def choices(hint: Any) -> tuple[str, ...]:
    """The values that a Literal allows, at any depth of the annotation."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    return next((values for inner in typing.get_args(hint) if (values := choices(inner))), ())


def _plain_types(hint: Any) -> Iterator[Any]:
    """The types inside Annotated and unions."""
    yield hint
    for inner in typing.get_args(hint):
        yield from _plain_types(inner)


def _option_help(parameter: Any, hint: Any) -> str:
    """The help, then the choices where they are few, then the default. A default that depends on other options is part
    of the help."""
    text, has_default, default = (parameter.help or "").partition(_DEFAULT)
    listed = ", ".join(choices(hint))
    if listed and len(listed) <= _FEW_CHOICES:
        text = f"{text} [{listed}]"
    if has_default:
        return f"{text}{_DEFAULT}{default}"
    if parameter.required or parameter.default is False or parameter.default in (None, "", [], ()):
        return text
    return f"{text}{_DEFAULT}{parameter.default})"


def _option_lines(names: str, text: str, *, width: int) -> list[str]:
    """Names on the left and wrapped help on the right; long names have a line of their own."""
    indent = " " * _NAMES_WIDTH
    lines = _wrapped(text, width, indent, first=indent).splitlines() or [""]
    name_column = f"  {names}"
    if len(name_column) + 2 > _NAMES_WIDTH:
        return [name_column, *lines]
    return [name_column.ljust(_NAMES_WIDTH) + lines[0].removeprefix(indent), *lines[1:]]


def _wrapped(text: str, width: int, indent: str = "", first: str = "") -> str:
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
