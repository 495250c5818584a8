"""The documentation is true: generated parts are up to date, commands exist, examples run."""

import dataclasses
import re
import shlex
import shutil
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
from documented import fences_of, section_of
from repository import ROOT, load_script

from s2bl_cli import registry
from s2bl_cli.app import VERBS, app, verb_command
from s2bl_cli.contract.history import HistoryRow
from s2bl_cli.contract.logs.schema import COLUMNS
from s2bl_cli.contract.scores import SCHEMA
from s2bl_cli.metrics.health import WEIGHT_EDGES

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ALL_PAGES = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "sample_data" / "README.md"]

FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)

generate = load_script("docs/generate.py")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# --- generated parts ---


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """README and docs in a folder of their own."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def test_generated_parts_are_in_step() -> None:
    assert [_name(page) for page in generate.drifted()] == [], "run make docs"


def test_check_names_every_drifted_file_and_the_command(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("README.md", "docs/mask.md"):
        page = copy / name
        page.write_text(page.read_text().replace("Hide the feedback", "Show the feedback").replace("1 − ρ", "ρ"))
    assert generate.main(["--check"], copy) == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert all(line.endswith("is out of date: run make docs") for line in told)
    assert [Path(line.split(" is out ")[0]).name for line in told] == ["README.md", "mask.md"]
    assert generate.main([], copy) == 0
    assert generate.main(["--check"], copy) == 0


def test_writing_keeps_what_is_written_by_hand(copy: Path) -> None:
    page = copy / "docs" / "mask.md"
    before = page.read_text()
    page.write_text(before.replace("<!-- generated:flags -->", "By hand.\n\n<!-- generated:flags -->\nstale"))
    generate.main([], copy)
    assert page.read_text() == before.replace("<!-- generated:flags -->", "By hand.\n\n<!-- generated:flags -->")


def test_generated_links_do_not_depend_on_the_name_of_the_checkout() -> None:
    text = (ROOT / "README.md").read_text()
    assert generate.filled(text, ROOT.parent / "docs" / "README.md") == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<!-- generated:nothing -->\n<!-- /generated -->\n", "no generated part is called 'nothing'"),
        ("<!-- generated:models -->\n", "has no <!-- /generated --> after it"),
    ],
)
def test_wrong_markers_are_told(text: str, told: str) -> None:
    with pytest.raises(SystemExit, match=re.escape(told)):
        generate.filled(text, ROOT / "docs" / "mask.md")


@pytest.mark.parametrize("verb", VERBS.names)
def test_defaults_are_in_the_column_of_defaults(verb: str) -> None:
    rows = [row.split(" | ") for row in generate.flags(verb).splitlines() if row.startswith("| `")]
    assert rows
    assert [row for row in rows if "default:" in row[3]] == []


def test_a_default_that_depends_on_other_options_is_shown() -> None:
    assert "| `--cost-model` | `propensity`, `logistic` | logistic for pseudo, propensity for cce |" in generate.flags(
        "train"
    )


# --- completeness ---


@pytest.mark.parametrize("verb", VERBS.names)
def test_every_verb_has_a_page_and_a_row_in_the_readme(verb: str) -> None:
    page = ROOT / "docs" / f"{verb}.md"
    assert page.read_text().startswith(f"# s2bl {verb}\n")
    assert page.read_text().rstrip().endswith("<!-- /generated -->")
    assert "<!-- generated:flags -->" in page.read_text()
    assert f"| [`s2bl {verb}`](docs/{verb}.md) |" in section_of(ROOT / "README.md", "Commands")


def test_every_package_is_on_the_architecture_page() -> None:
    """Among the rooms, and in the order of imports."""
    package = ROOT / "s2bl_cli"
    rooms = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    drawn, order = fences_of((ROOT / "docs" / "architecture.md").read_text(), "text")
    listed = set(re.findall(r"^  (\w+)(?:/|\.py) ", drawn, re.MULTILINE))
    assert listed == rooms - {"__init__", "__main__"}
    assert set(order.replace("·", " ").split()) == listed


def test_every_registry_is_shown_on_some_page() -> None:
    shown = "".join(page.read_text() for page in PAGES)
    registries = [one for one in vars(registry).values() if isinstance(one, registry.Registry)]
    assert registries
    for one in registries:
        for name, entry in one.entries.items():
            assert f"| `{name}` | {entry.summary} |" in shown, f"{one.kind} {name}"


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        *(("Logs", name) for name in COLUMNS),
        *(("Scores", name) for name in SCHEMA.names),
        *(("Histories", field.name) for field in dataclasses.fields(HistoryRow)),
    ],
)
def test_every_column_is_in_the_contract(kind: str, column: str) -> None:
    table = section_of(ROOT / "docs" / "contract.md", kind).split("\n### ")[0]
    assert any(f"`{column}`" in row.split(" | ")[0] for row in table.splitlines() if row.startswith("| "))


# --- paths ---


@pytest.mark.parametrize("page", ALL_PAGES, ids=_name)
def test_no_page_tells_of_a_machine(page: Path) -> None:
    """No absolute path: whoever reads it has other folders."""
    assert re.findall(r"(?<![\w.:/])/(?:\w[\w.-]*/)+[\w.-]*", page.read_text()) == []


# --- commands ---


class Command(NamedTuple):
    """A pipeline's one `s2bl` call."""

    page: str
    words: tuple[str, ...]  # after `s2bl`


def _pipelines(text: str) -> list[list[list[str]]]:
    """The command lines of the shell examples, each as the stages of its pipeline. Output is left out."""
    lines = [line for body in fences_of(text, "sh") for line in _unrolled(body).replace("\\\n", " ").splitlines()]
    for body in fences_of(text, "console"):
        lines += [line.removeprefix("$ ") for line in body.splitlines() if line.startswith("$ ")]
    return [_stages(line) for line in lines if line.strip()]


def _unrolled(script: str) -> str:
    """The script with the first value of each loop variable."""
    for name, value in re.findall(r"\bfor (\w+) in (\S+)", script):
        script = script.replace(f"${name}", value)
    return script


def _stages(line: str) -> list[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    stages: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            stages.append([])
        else:
            stages[-1].append(word)
    return stages


COMMANDS = sorted(
    {
        Command(_name(page), tuple(stage[1:]))
        for page in ALL_PAGES
        for pipeline in _pipelines(page.read_text())
        for stage in pipeline
        if stage[0] == "s2bl"
    }
)


@cache
def _top_flags() -> set[str]:
    return {"-h", "--help"} | {name for option in typer.main.get_command(app).params for name in option.opts}


@cache
def _flags_of(verb: str) -> set[str]:
    return {"-h", "--help"} | {name for option in verb_command(verb).params for name in option.opts}


def test_commands_are_found() -> None:
    """Were the pages' form to change, the tests below would pass for want of commands."""
    assert {command.words[0] for command in COMMANDS} >= set(VERBS.names)
    assert Command("docs/index.md", ("mask", "--rho", "0.2", "-", "-o", "-")) in COMMANDS


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page}: s2bl {' '.join(command.words)}")
def test_command_lines_parse(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the parser of the command, which also knows the choices. Nothing is run; files with options are empty."""
    monkeypatch.chdir(tmp_path)
    for name in (word for word in command.words if word.endswith(".toml")):
        (tmp_path / name).touch()
    first = command.words[0]
    if first.startswith("-"):
        assert set(command.words) <= _top_flags()
        return
    assert first in VERBS.names
    verb_command(first).make_context(first, list(command.words[1:]))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_flags_and_verbs_in_the_prose_exist(page: Path) -> None:
    for code in re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text())):
        words = code.split()
        verbs: tuple[str, ...] = VERBS.names
        if words[0] == "s2bl" and len(words) > 1 and not words[1].startswith("-") and words[1] != "COMMAND":
            assert words[1] in VERBS.names, code
            verbs = (words[1],)
        known = _top_flags().union(*(_flags_of(verb) for verb in verbs))
        assert {word for word in words if re.match(r"--[a-z]", word)} <= known, code


# --- numbers ---


def test_edges_of_the_histogram_of_weights_are_told() -> None:
    told = ", ".join(f"{edge:g}" for edge in WEIGHT_EDGES[:-1]) + f" and {WEIGHT_EDGES[-1]:g} for every policy and log"
    assert told in " ".join((ROOT / "docs" / "evaluate.md").read_text().split())
