"""Where a file came from: the command that made it, its settings, and the digests of its inputs.

A lineage is a tree: a `Step` has `Source`s, and a source that s2bl made includes the step that made it. It has no
times, paths or output names, so equal inputs give equal bytes. Only files that s2bl did not make are named, by their
base name, because nothing else identifies them to a reader.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from s2bl_cli import __version__
from s2bl_cli.errors import ContractError, one_line
from s2bl_cli.registry import DATASETS

MAX_DEPTH = 32  # no real chain of commands is this long; also bounds the recursion on untrusted files

DATA_DIR_VARIABLE = "S2BL_DATA_DIR"  # the folder of the data sets' files, for make-logs and printed commands

# Logs and policies; of labelled data, a dataset by name or a table; the weights of a pre-trained network.
ROLES = ("logs", "policy", "dataset", "table", "weights")

_MAX_WORD = 10_000  # of a command line: a truncated word would change the command

_DATASETS_WITHOUT_FILES = ("sample", "table")  # the first is part of s2bl, the second is an input file

_FLAG = re.compile(r"[a-z][a-z0-9-]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Source:
    """One input file of a step."""

    role: str  # one of ROLES
    sha256: str
    name: str | None = None  # base name, for files that s2bl did not make
    step: Step | None = None  # how it was made, for files that s2bl made
    rows: int | None = None  # of labelled data, train and test rows, before --limit


@dataclass(frozen=True)
class Step:
    """One run of one command."""

    command: str
    settings: Mapping[str, Any]  # flag name without dashes → value
    version: str
    inputs: tuple[Source, ...] = ()

    def origin(self, command: str) -> Step | None:
        """The nearest step of that command, from this step backwards along the first inputs."""
        step: Step | None = self
        while step is not None and step.command != command:
            step = step.inputs[0].step if step.inputs else None
        return step


def all_sources(inputs: Iterable[Source]) -> Iterator[Source]:
    """The inputs, and those that they were made from, as far back as is known."""
    for source in inputs:
        yield source
        if source.step is not None:
            yield from all_sources(source.step.inputs)


def step_of(command: str, settings: Mapping[str, Any], inputs: tuple[Source, ...] = ()) -> Step:
    """A step of this version of s2bl."""
    if any(source.step is not None and _depth(source.step) >= MAX_DEPTH for source in inputs):
        raise ContractError(f"{command}: its input is {MAX_DEPTH} steps from its origin; start from an earlier file")
    return Step(command, dict(settings), __version__, inputs)


def _depth(step: Step) -> int:
    return 1 + max((_depth(source.step) for source in step.inputs if source.step is not None), default=0)


def encode_step(step: Step) -> dict[str, Any]:
    return {
        "command": step.command,
        "settings": dict(step.settings),
        "version": step.version,
        "inputs": [
            {
                "role": source.role,
                "sha256": source.sha256,
                "name": source.name,
                "step": None if source.step is None else encode_step(source.step),
                **({} if source.rows is None else {"rows": source.rows}),
            }
            for source in step.inputs
        ],
    }


def decode_step(value: Any, subject: str, depth: int = 0) -> Step:
    """The step in a file's document. The file may be untrusted, so every value is checked."""

    def fault(what: str) -> ContractError:
        return ContractError(f"{subject}: its lineage is damaged ({what}); make the file again with s2bl")

    if depth >= MAX_DEPTH:
        raise fault(f"more than {MAX_DEPTH} steps deep")
    if not isinstance(value, dict):
        raise fault("a step is not an object")
    command, settings, version, inputs = (value.get(key) for key in ("command", "settings", "version", "inputs"))
    if not (isinstance(command, str) and _FLAG.fullmatch(command)):
        raise fault(f"command is {one_line(command, 40)!r}")
    if not isinstance(version, str):
        raise fault("version is not text")
    if not is_plain_settings(settings):
        raise fault("settings do not map option names to plain values")
    if not isinstance(inputs, list):
        raise fault("inputs are not a list")
    sources = []
    for source in inputs:
        if not isinstance(source, dict):
            raise fault("an input is not an object")
        role, digest, name, step, rows = (source.get(key) for key in ("role", "sha256", "name", "step", "rows"))
        if role not in ROLES or not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
            raise fault("an input has no role or no sha256")
        if not (name is None or isinstance(name, str)):
            raise fault("an input's name is not text")
        if not (rows is None or (type(rows) is int and 0 <= rows < 1 << 63)):
            raise fault("an input's rows are not a whole number")
        made = None if step is None else decode_step(step, subject, depth + 1)
        sources.append(Source(role, digest, name, made, rows))
    return Step(command, settings, version, tuple(sources))


def is_plain_settings(settings: Any) -> TypeGuard[dict[str, Any]]:
    """Whether the settings map option names to plain values, as a step records them."""
    return isinstance(settings, dict) and all(_FLAG.fullmatch(k) and _is_plain(v) for k, v in settings.items())


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(not isinstance(item, list) and _is_plain(item) for item in value)
    if isinstance(value, int):
        return abs(value) < 1 << 63  # what a column of a scores file can hold
    return value is None or isinstance(value, str | float)


def command_lines(step: Step, role: str = "logs") -> list[str]:
    """The shell commands that make the file again, in order, with made-up names for intermediate files.

    `role` is "policy" for a policy file, and ignored otherwise."""
    names: dict[str, str] = {}
    lines: list[str] = []

    def name_of(source: Source) -> str:
        if source.sha256 not in names:
            if source.step is None:
                names[source.sha256] = source.name or f"{source.role}-{source.sha256[:8]}.{_suffix(source.role)}"
            else:
                inputs = inputs_of(source.step)
                # Named after the line number, which is known once the inputs' lines are added: output names are unique.
                output = f"{len(lines) + 1}-{source.step.command}.{_suffix(source.role)}"
                lines.append(line_of(source.step, inputs, output))
                names[source.sha256] = output
        return names[source.sha256]

    def inputs_of(step: Step) -> list[tuple[str, str]]:
        # Without duplicates: another tool's files are all named after their folder.
        return list(dict.fromkeys((source.role, name_of(source)) for source in step.inputs))

    def line_of(step: Step, inputs: list[tuple[str, str]], output: str) -> str:
        # A setting that is an input file, such as --compare-to, is recorded by its digest.
        settings = {flag: names.get(value, value) if isinstance(value, str) else value
                    for flag, value in step.settings.items()}  # fmt: skip
        return _command_line(replace(step, settings=settings), inputs, output)

    final = "policy.safetensors" if "policy" in (role, _MAKES.get(step.command)) else "out.parquet"
    lines.append(line_of(step, inputs_of(step), final))
    return lines


_MAKES = {"train": "policy"}  # commands whose only output is not Parquet


def _suffix(role: str) -> str:
    return "safetensors" if role == "policy" else "parquet"


def _command_line(step: Step, inputs: list[tuple[str, str]], output: str) -> str:
    words = ["s2bl", step.command]
    for flag, value in step.settings.items():
        words += _flag_words(flag, value)
    logs = [name for role, name in inputs if role == "logs"]
    policies = [name for role, name in inputs if role == "policy"]
    # A table is not listed: its name is the setting --dataset.
    if step.command == "make-logs":
        words += [word for name in policies for word in ("--logging-policy", name)]
        words += [word for role, name in inputs if role == "weights" for word in ("--weights", name)]
    elif step.command == "train":
        words += [*logs, *(word for name in policies for word in ("--prior", name))]
    elif policies:
        words += [*policies, *(word for name in logs for word in ("--logs", name))]
    else:
        words += logs
    flag = "--save-policy" if step.command == "make-logs" and output.endswith(".safetensors") else "-o"
    line = shlex.join(one_line(word, _MAX_WORD) for word in words)
    return f"{line}{_data_dir_words(step)} {shlex.join([flag, output])}"


def _data_dir_words(step: Step) -> str:
    """The data folder as a shell variable: a lineage has no paths."""
    dataset = step.settings.get("dataset")
    if step.command != "make-logs" or dataset not in DATASETS.names or dataset in _DATASETS_WITHOUT_FILES:
        return ""
    return f' --data-dir "${DATA_DIR_VARIABLE}"'


def _flag_words(flag: str, value: Any) -> Iterator[str]:
    if value is None or value is False or value == []:
        return
    yield f"--{flag}"
    if isinstance(value, list):
        yield ",".join(str(item) for item in value)
    elif value is not True:
        yield str(value)
