"""Messages and progress on stderr, the machine-readable summary on stdout.

Progress is a rich bar on a terminal, and otherwise (in CI logs) a plain line every few seconds.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from s2bl_cli.errors import SettingError, one_line

_LINE_EVERY_SECONDS = 10.0

FEW_STEPS = 200  # of training; fewer leave most policies close to their initialisation


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 log`, `2 logs`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def few_steps(steps: int) -> str:
    return f"only {steps} training steps; the policy is probably undertrained: raise --epochs"


@dataclass(frozen=True)
class Console:
    """How a command prints. `quiet` suppresses messages and progress; errors and warnings are always printed."""

    quiet: bool = False
    as_json: bool = False

    def say(self, text: str) -> None:
        if not self.quiet:
            _to_stderr(text)

    def table(self, lines: Sequence[str]) -> None:
        """Lines whose spaces are kept."""
        if not self.quiet:
            sys.stderr.write("".join(f"{line}\n" for line in lines))

    def warn(self, text: str) -> None:
        _to_stderr(f"warning: {text}")

    def summary(self, facts: Mapping[str, Any]) -> None:
        """The machine-readable summary: one JSON line on stdout, with --json only."""
        if self.as_json:
            sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")

    def check_streams(self, output: str | None) -> None:
        if output == "":  # probably an unset variable of a script; a default name would hide that
            raise SettingError("-o takes the name of a file, found ''")
        if self.as_json and output == "-":
            raise SettingError("--json and -o - both write to stdout: write the file with -o FILE")

    @contextlib.contextmanager
    def progress(self, activity: str, total: int, unit: str) -> Iterator[Callable[[int, str], None]]:
        """Yield `advance(done, note)`, which moves the bar. `total` is in units."""
        if self.quiet or total <= 0:
            yield lambda done, note: None
        elif sys.stderr.isatty():
            with _rich_progress(activity, total, unit) as advance:
                yield advance
        else:
            yield _line_progress(activity, total, unit)


def _to_stderr(text: str) -> None:
    sys.stderr.write(one_line(text, 2000) + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def _rich_progress(activity: str, total: int, unit: str) -> Iterator[Callable[[int, str], None]]:
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} " + unit, markup=False),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=RichConsole(stderr=True), transient=True) as bar:
        task = bar.add_task(activity, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)


def _line_progress(activity: str, total: int, unit: str) -> Callable[[int, str], None]:
    started = last = time.monotonic()

    def advance(done: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _LINE_EVERY_SECONDS and 0 < done < total:
            last = now
            remaining = (now - started) / done * (total - done)
            _to_stderr(f"{activity}: {done}/{total} {unit} {note} {remaining:.0f} s left")

    return advance
