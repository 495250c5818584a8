"""The `s2bl` command: the verbs, and the only place that turns an error into a line and an exit code.

Exit codes: 0 success; 1 a claim of `report` failed, or the reader closed the pipe; 2 a wrong file, value or option (one
line on stderr, nothing is written); 129 closed terminal; 130 Ctrl-C; 143 SIGTERM.
"""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from s2bl_cli import __version__
from s2bl_cli.errors import S2blError, one_line
from s2bl_cli.registry import Entry, Registry

_HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_NUMBERS = {
    "float_parsing": "a number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
}
_WHOLE_HELP = {"help_option_names": ["--help"]}  # of a verb, where -h is a separate option
_LONGEST_MESSAGE = 4000  # longer than the message of a log with every fault

VERBS = Registry(
    "command",
    {
        "make-logs": Entry("commands.make_logs:make_logs", "Turn labelled data into logged decisions."),
        "mask": Entry("commands.mask:mask", "Hide the feedback of some rows."),
        "train": Entry("commands.train:train", "Learn policies from logs whose feedback is partly missing."),
        "evaluate": Entry("commands.evaluate:evaluate", "Score policies on logs."),
        "report": Entry("commands.report:report", "Make tables and figures of scores."),
        "sweep": Entry("commands.sweep:sweep", "Run a grid of experiments: logs, masks, policies and scores."),
        "methods": Entry("commands.methods:methods", "List the methods that train knows, with formula and source."),
        "inspect": Entry("commands.inspect:inspect", "Describe a log, policy, scores or checkpoint file."),
    },
)


def verb_command(name: str) -> Any:
    """The command of a verb, with all its options."""
    from s2bl_cli.commands.help_pages import HelpCommand
    from s2bl_cli.commands.options import with_shared_options

    single = typer.Typer(add_completion=False, context_settings=_WHOLE_HELP)
    single.command(name, cls=HelpCommand)(with_shared_options(VERBS.load(name)))
    return typer.main.get_command(single)


class S2blGroup(TyperGroup):
    """Runs a verb and translates its exceptions.

    A verb's module is imported and its options are built only when the verb is called, so `s2bl --help` is fast.
    """

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.commands = {name: TyperCommand(name, help=entry.summary) for name, entry in VERBS.entries.items()}

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from s2bl_cli.commands.help_pages import group_page

        formatter.write(group_page(ctx, {name: entry.summary for name, entry in VERBS.entries.items()}))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else verb_command(name), rest

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        with _signals_as_exit():
            code = _translated(
                lambda: super(S2blGroup, self).main(
                    args,
                    prog_name or "s2bl",
                    complete_var,
                    standalone_mode=False,
                    windows_expand_args=windows_expand_args,
                    **extra,
                )
            )
            _leave_stdout()
            sys.exit(code)


def _translated(run: Callable[[], Any]) -> int:
    """Run, and turn an exception into a line on stderr and an exit code."""
    try:
        result = run()
        sys.stdout.flush()  # here, so that a full disk or a closed pipe is reported
    except S2blError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        return _fail(f"not enough memory: {one_line(error) or 'an array did not fit'}; use a smaller log or model", 2)
    except BrokenPipeError:
        return 1  # the reader of stdout has closed the pipe
    except OSError as error:
        subject = error.filename or "stdout"
        return _fail(f"{subject} cannot be read or written: {error.strerror or error}; check the disk", 2)
    return result if isinstance(result, int) else 0


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory is exhausted: on a CPU, torch raises a plain RuntimeError."""
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in ("can't allocate memory", "out of memory")
    )


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"s2bl: {one_line(message, _LONGEST_MESSAGE)}\n")
    return code


def _leave_stdout() -> None:
    """Redirect stdout if it cannot be written: Python would report the error again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: typer.TyperException) -> int:
    """Report a wrong option: typer's message on one line, with the command that prints the help."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "s2bl"
    message = _without_pydantic(error)
    if type(error).__name__ == "NoArgsIsHelpError":  # `s2bl` alone: its message is the whole help
        sys.stderr.write(message + "\n")
        return error.exit_code
    return _fail(f"{one_line(message, 1000).rstrip('.')} (see: {command} --help)", error.exit_code)


def _without_pydantic(error: typer.TyperException) -> str:
    """Replace the messages of pydantic, which typer uses to check values: they are technical and omit the value."""
    message: str = error.format_message().replace("Value error, ", "")
    details = getattr(error.__cause__, "errors", None)
    if details is None:
        return message
    for detail in details():
        expected = _NUMBERS.get(detail["type"])
        if expected is not None:
            message = message.replace(detail["msg"], f"must be {expected}, found {one_line(repr(detail['input']), 40)}")
    return message


@contextlib.contextmanager
def _signals_as_exit() -> Any:
    """Let SIGTERM and SIGHUP (a closed terminal) unwind like Ctrl-C, so that temporary files are removed."""

    def leave(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # Ignored signals stay ignored (nohup). Outside of the main thread, the calling program handles signals.
    is_main = threading.current_thread() is threading.main_thread()
    handled = [number for number in numbers if is_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


app = typer.Typer(
    name="s2bl",
    cls=S2blGroup,
    help="Learn policies from logged decisions whose feedback is partly missing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_HELP_NAMES,
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        sys.stdout.write(f"s2bl {__version__}\n")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Learn policies from logged decisions whose feedback is partly missing.

    Examples:
    s2bl inspect logs.parquet
    s2bl train logs.parquet -o policy.safetensors
    s2bl evaluate policy.safetensors --logs test.parquet -o scores.parquet
    """


def main() -> None:
    """The console script."""
    _prepare_streams()
    app()


def _prepare_streams() -> None:
    """Prevent tracebacks from streams that a shell closed (`>&-`) or that cannot encode the output."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (open until the process ends)
    sys.stdout = sys.stdout or open(os.devnull)  # noqa: SIM115 (read-only, so that writing to it fails)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Redirected output is UTF-8 in every locale, like the files that -o writes.
        encoding = None if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
