"""The help of a command: `-h` shows the common options and examples, `--help` shows every option in its panel.

The layout does not depend on the version of typer. Words and short formulas are never broken, and the default is
always the last part of an option's help.
"""

import inspect
import re
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
DEFAULT = " (default: "
_FEW_CHOICES = 60  # characters; `-h` leaves out longer lists
_UNBREAKABLE = re.compile(r"(?<= )(- )|( [−+=·×>]=? )")  # `- for stdin`, `1 − ρ`
_NO_BREAK_SPACE = "\u00a0"

Panels = dict[str, list[tuple[str, str]]]  # title → names and help of each row


class HelpCommand(TyperCommand):
    """A command whose `--help` prints the whole page."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(whole_page(ctx))


def print_common(ctx: typer.Context, is_requested: bool) -> None:
    """The callback of `-h`."""
    if is_requested:
        typer.echo(common_page(ctx), nl=False)
        raise typer.Exit


def common_page(ctx: typer.Context) -> str:
    """The short page: summary, examples, arguments and common options."""
    summary, _, examples = _parts(ctx.command.callback)
    panels = _panels(ctx, _FEW_CHOICES)
    common = {panel: rows for panel, rows in panels.items() if panel in ("Arguments", COMMON)}
    closing = f"All options: {ctx.command_path} --help\n" if len(common) < len(panels) else ""
    return _page(_usage(ctx, panels), [summary], examples, common) + (f"\n{closing}" if closing else "")


def whole_page(ctx: typer.Context) -> str:
    """The full page: summary, description, examples and every option in its panel."""
    summary, description, examples = _parts(ctx.command.callback)
    panels = _panels(ctx)
    return _page(_usage(ctx, panels), [summary, *description], examples, panels)


def group_page(ctx: typer.Context, commands: dict[str, str]) -> str:
    """The page of `s2bl` itself: its commands with their summaries, and its options."""
    summary, _, examples = _parts(ctx.command.callback)
    options = [(", ".join(option.opts), option.help.rstrip(".")) for option in ctx.command.params]  # type: ignore[attr-defined]
    panels = {
        "Commands": [(name, text.rstrip(".")) for name, text in commands.items()],
        "Options": [*options, ("-h, --help", "Show this page")],
    }
    closing = f"Options of a command: {ctx.command_path} COMMAND -h (common) or --help (all)\n"
    return _page(f"{ctx.command_path} [OPTIONS] COMMAND", [summary], examples, panels) + f"\n{closing}"


def _usage(ctx: typer.Context, panels: Panels) -> str:
    return " ".join([ctx.command_path, "[OPTIONS]", *(names for names, _ in panels.get("Arguments", []))])


def _page(usage: str, paragraphs: Sequence[str], examples: Sequence[str], panels: Panels) -> str:
    width = page_width()
    blocks = [wrapped(f"Usage: {usage}", width, "  ")]
    blocks += [wrapped(paragraph, width) for paragraph in paragraphs]
    if examples:
        blocks.append("\n".join([_EXAMPLES, *(f"  {example}" for example in examples)]))
    for panel, rows in panels.items():
        blocks.append("\n".join([f"{panel}:", *(line for row in rows for line in option_lines(*row, width))]))
    return "\n\n".join(blocks) + "\n"


def _parts(command: Any) -> tuple[str, list[str], list[str]]:
    """Split a docstring into its first line, its other paragraphs, and the commands of the last one, `Examples:`."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    examples: list[str] = []
    if paragraphs[-1].startswith(_EXAMPLES):
        examples = [line.strip() for line in paragraphs.pop().splitlines()[1:]]
    summary, *description = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return summary, description, examples


def _panels(ctx: typer.Context, longest_choices: int | None = None) -> Panels:
    """Names and help of every parameter by panel, arguments and common options first.

    Lists of choices with more than `longest_choices` characters are left out.
    """
    hints = {name: p.annotation for name, p in inspect.signature(ctx.command.callback).parameters.items()}  # type: ignore[arg-type]
    panels: Panels = {"Arguments": [], COMMON: []}
    for parameter in ctx.command.params:
        is_option = parameter.opts[0].startswith("-")
        panel = "Arguments" if not is_option else getattr(parameter, "rich_help_panel", None) or COMMON
        names = _option_names(parameter, hints.get(parameter.name)) if is_option else argument_name(parameter)
        text = _option_help(parameter, hints.get(parameter.name), longest_choices)
        panels.setdefault(panel, []).append((names, text))
    return {panel: rows for panel, rows in panels.items() if rows}


def argument_name(parameter: Any) -> str:
    """`LOGS...` if several values can be given, `[NAME]` if the argument is optional."""
    name = str(parameter.metavar) + ("..." if parameter.nargs != 1 else "")
    return name if parameter.required else f"[{name}]"


def _option_names(parameter: Any, hint: Any) -> str:
    """Names and metavar, such as `-o, --output FILE`. A switch has no metavar."""
    names = ", ".join(parameter.opts)
    return names if getattr(parameter, "is_flag", False) else f"{names} {metavar(parameter, hint)}"


def metavar(parameter: Any, hint: Any) -> str:
    """The metavar as declared; by default the last word of the name if there are choices, else the type."""
    if parameter.metavar:
        return str(parameter.metavar)
    if choices(hint):
        return str(parameter.opts[-1].rpartition("-")[2].upper())
    return next(_METAVARS[kind] for kind in _plain_types(hint) if kind in _METAVARS)


def choices(hint: Any) -> tuple[str, ...]:
    """The values of a Literal at any depth of the annotation."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    return next((values for inner in typing.get_args(hint) if (values := choices(inner))), ())


def _plain_types(hint: Any) -> Iterator[Any]:
    """The types inside Annotated and unions."""
    yield hint
    for inner in typing.get_args(hint):
        yield from _plain_types(inner)


def _option_help(parameter: Any, hint: Any, longest_choices: int | None) -> str:
    """The help, the choices, whether the option is required or repeatable, and the default."""
    text, default = help_and_default(parameter)
    listed = ", ".join(choices(hint))
    if listed and (longest_choices is None or len(listed) <= longest_choices):
        text = f"{text} [{listed}]"
    is_option = parameter.opts[0].startswith("-")
    rules = {"required": parameter.required, "repeatable": getattr(parameter, "multiple", False)} if is_option else {}
    if applying := [rule for rule, applies in rules.items() if applies]:
        text = f"{text} ({', '.join(applying)})"
    return f"{text}{DEFAULT}{default})" if default else text


def help_and_default(parameter: Any) -> tuple[str, str]:
    """The help without the default, and the default as text; empty if there is none. A default that depends on other
    options is part of the declared help."""
    text, _, declared = parameter.help.removesuffix(")").partition(DEFAULT)
    if declared:
        return text, declared
    default = parameter.default
    if parameter.required or default is False or default in (None, "", [], ()):
        return parameter.help, ""
    return parameter.help, f"{default:g}" if isinstance(default, float) else str(default)


def option_lines(names: str, text: str, width: int) -> list[str]:
    """Names on the left and wrapped help on the right. Long names are on a separate line."""
    indent = " " * _NAMES_WIDTH
    lines = wrapped(text, width, indent, first=indent).splitlines() or [""]
    name_column = f"  {names}"
    if len(name_column) + 2 > _NAMES_WIDTH:
        return [name_column, *lines]
    return [name_column.ljust(_NAMES_WIDTH) + lines[0].removeprefix(indent), *lines[1:]]


def page_width() -> int:
    return min(_WIDEST, shutil.get_terminal_size().columns)


def wrapped(text: str, width: int, indent: str = "", first: str = "") -> str:
    """Wrap the text without breaking words; `first` is the indent of the first line."""
    text = _UNBREAKABLE.sub(lambda match: match[0].replace(" ", _NO_BREAK_SPACE), text)
    lines = textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return lines.replace(_NO_BREAK_SPACE, " ")
