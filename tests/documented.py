"""The examples of README and docs: their commands, run in this process, and their outputs, compared with the page.

The words must be the same. Numbers may differ a little: another processor or another release of torch changes the last
digits. Digests and bars are not compared.
"""

import re
import runpy
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from s2bl_cli.app import app

TOLERANCE, LEAST_TOLERANCE = 0.03, 0.005  # relative, absolute
REST = "…"  # stands for the lines that the page leaves out

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")
_PROGRESS = re.compile(r": \d+/\d+ \w+ .* left$")  # a slow machine prints how far a command is
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


class Example(NamedTuple):
    command: str
    output: list[str]


def section_of(page: Path, heading: str) -> str:
    """From a heading of the second level to the next one."""
    return page.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


def fences_of(text: str, *languages: str) -> list[str]:
    return [body for language, body in _FENCE.findall(text) if language in languages]


def examples_of(text: str) -> list[Example]:
    """The commands of the console blocks, each with the lines that follow it."""
    examples: list[Example] = []
    for line in (line for body in fences_of(text, "console") for line in body.splitlines()):
        if line.startswith("$ "):
            examples.append(Example(line[2:], []))
        else:
            examples[-1].output.append(line)
    return examples


def check_examples(folder: Path, examples: list[Example], monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Run the commands in the folder, and compare what they print with the page. What was printed, by command."""
    monkeypatch.chdir(folder)
    code, printed_lines = 0, {}
    for command, documented in examples:
        if command == "echo $?":
            assert documented == [str(code)]
            continue
        code, text = run_command(command, monkeypatch)
        lines = printed_lines[command] = [line for line in text.splitlines() if not _PROGRESS.search(line)]
        if not any(line.startswith(("s2bl: ", "warning: fails")) for line in documented):
            assert code == 0, (command, text)
        if documented[-1:] == [REST]:
            documented = documented[:-1]
            lines = lines[: len(documented)]
        assert len(lines) == len(documented), (command, lines)
        for line, documented_line in zip(lines, documented, strict=True):
            assert_alike(line, documented_line)
    return printed_lines


def run_command(command: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code of a command, and what it prints to stdout and stderr. A Python script prints nothing."""
    name, *words = shlex.split(command)
    if name == "python":
        monkeypatch.setattr("sys.argv", words)
        runpy.run_path(words[0], run_name="__main__")
        return 0, ""
    assert name == "s2bl"
    result = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def assert_alike(line: str, documented: str) -> None:
    """The same words, and numbers within the tolerance. Spaces, bars and marks depend on the digits of the numbers."""
    line, documented = (_DIGEST.sub("digest", text) for text in (line, documented))
    words, documented_words = (
        [word for word in re.split(r"[\s|*:█▉▊▋▌▍▎▏-]+", re.sub(r"</?u>", "", _NUMBER.sub("#", text))) if word]
        for text in (line, documented)
    )
    assert words == documented_words
    numbers, documented_numbers = (
        [float(number.replace(",", "")) for number in _NUMBER.findall(text)] for text in (line, documented)
    )
    assert numbers == pytest.approx(documented_numbers, rel=TOLERANCE, abs=LEAST_TOLERANCE), (line, documented)
