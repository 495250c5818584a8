"""The README's examples do what the page says: commands and outputs, with numbers to a few percent."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT
from test_docs import _fences, _section

NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")
TOLERANCE = 0.03  # another processor, another release of torch: not the same last digits
REST = "…"  # stands for the lines that the page leaves out

README = ROOT / "README.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    return tmp_path


def printed(folder: Path, command: str) -> str:
    """What a command prints, in a process of its own."""
    name, *words = shlex.split(command)
    program = {"s2bl": [sys.executable, "-m", "s2bl_cli"], "python": [sys.executable]}[name]
    ran = subprocess.run(
        [*program, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def examples(section: str) -> list[tuple[str, list[str]]]:
    """The commands of a section, each with the lines that follow it."""
    pairs: list[tuple[str, list[str]]] = []
    for line in (line for body in _fences(_section(README, section), "console") for line in body.splitlines()):
        if line.startswith("$ "):
            pairs.append((line[2:], []))
        else:
            pairs[-1][1].append(line)
    return pairs


def assert_alike(line: str, documented: str) -> None:
    """The same words, and numbers within the tolerance. Bars, spaces and marks follow from the numbers' digits."""
    words, documented_words = (
        re.split(r"[\s|*:-]+", re.sub(r"</?u>", "", NUMBER.sub("#", text))) for text in (line, documented)
    )
    assert [word for word in words if word] == [word for word in documented_words if word]
    numbers, documented_numbers = (
        [float(number.replace(",", "")) for number in NUMBER.findall(text)] for text in (line, documented)
    )
    assert numbers == pytest.approx(documented_numbers, rel=TOLERANCE, abs=TOLERANCE)


@pytest.mark.parametrize("section", ["Quickstart with your own log", "The paper's experiment"])
def test_examples_print_what_the_page_says(folder: Path, section: str) -> None:
    for body in _fences(_section(README, section), "toml"):
        (folder / "columns.toml").write_text(body)
    pairs = examples(section)
    assert len(pairs) >= 4
    for command, documented in pairs:
        lines = printed(folder, command).splitlines()
        if documented[-1:] == [REST]:
            documented = documented[:-1]
            lines = lines[: len(documented)]
        assert len(lines) == len(documented), (command, lines)
        for line, documented_line in zip(lines, documented, strict=True):
            assert_alike(line, documented_line)


def test_quickstart_beats_the_logging_policy_in_truth() -> None:
    command, (line,) = examples("Quickstart with your own log")[-1]
    assert command == "python sample_data/clicks.py policy.safetensors"
    truth = json.loads(line)
    assert truth["policy"] > 1.2 * truth["logging policy"]
    assert truth["policy"] <= truth["best"]
