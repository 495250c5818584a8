"""The help of a command: short and whole, at 80 columns."""

import inspect
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from s2bl_cli.app import VERBS, app, verb_command
from s2bl_cli.commands.help_pages import choices


def help_of(verb: str, option: str, columns: int = 80) -> str:
    result = CliRunner().invoke(app, [verb, option], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("verb", VERBS.names)
def test_short_help_fits_on_a_screen_and_has_examples(verb: str) -> None:
    page = help_of(verb, "-h")
    assert len(page.splitlines()) <= 40
    examples = re.search(r"Examples:\n((?:  s2bl .*\n)+)", page)
    assert examples is not None
    assert 2 <= len(examples[1].splitlines()) <= 3


@pytest.mark.parametrize("verb", VERBS.names)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(verb: str, option: str) -> None:
    page = help_of(verb, option)
    assert max(map(len, page.splitlines())) <= 80
    # Broken words would join to no word of the same page on a wide terminal.
    assert set(page.split()) <= set(help_of(verb, option, columns=100).split())


@pytest.mark.parametrize("words", [["-h"], ["--help"], []])
def test_the_help_of_s2bl_looks_like_that_of_its_commands(words: list[str]) -> None:
    result = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    page = result.output
    assert page.startswith("Usage: s2bl [OPTIONS] COMMAND\n\nLearn policies from logged decisions")
    assert max(map(len, page.splitlines())) <= 80
    assert len(page.splitlines()) <= 40
    for verb in VERBS.names:
        assert f"{verb} {VERBS.entries[verb].summary.rstrip('.')}" in " ".join(page.split())
    for option in ("--version", "--install-completion", "--show-completion", "-h, --help"):
        assert re.search(rf"^  {option}  +[A-Z]", page, re.MULTILINE)
    assert not re.search(r"[│╭<]", page)


@pytest.mark.parametrize("verb", VERBS.names)
def test_whole_help_has_every_option_once(verb: str) -> None:
    page = help_of(verb, "--help")
    for parameter in verb_command(verb).params:
        argument = f"{parameter.metavar}..." if parameter.required else f"[{parameter.metavar}]"
        names = ", ".join(parameter.opts) if parameter.opts[0].startswith("-") else argument
        assert len(re.findall(rf"^  {re.escape(names)}(?= |$)", page, re.MULTILINE)) == 1, names


def test_panels_of_train_are_in_order() -> None:
    assert re.findall(r"^(\S.*):$", help_of("train", "--help"), re.MULTILINE) == [
        "Examples", "Arguments", "Common options", "Objective and model", "Optimisation", "Selection",
        "Test rows", "Checkpoints and resources", "Input columns", "Run",
    ]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS.names)
def test_whole_help_lists_every_choice(verb: str) -> None:
    page = " ".join(help_of(verb, "--help").split())
    for name, parameter in inspect.signature(verb_command(verb).callback).parameters.items():
        if listed := choices(parameter.annotation):
            assert f"[{', '.join(listed)}]" in page, name


def test_required_and_repeatable_options_are_marked() -> None:
    assert "--logs LOGS Log to score on: a file, glob or folder (required, repeatable) --split" in " ".join(
        help_of("evaluate", "-h").split()
    )
    assert "COLUMN!=VALUE drops them (repeatable) -o" in " ".join(help_of("report", "-h").split())


@pytest.mark.parametrize("columns", range(60, 101, 4))
@pytest.mark.parametrize("verb", VERBS.names)
def test_no_line_ends_within_a_formula(verb: str, columns: int) -> None:
    """Such as `1 − ρ`, or with the `-` of `- for stdin`."""
    assert not re.search(r" [-−+=]$", help_of(verb, "--help", columns), re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS.names)
def test_defaults_have_one_style(verb: str) -> None:
    """At the end of the help, numbers without a useless zero, and nothing for a switch."""
    page = " ".join(help_of(verb, "--help").split())
    assert not re.search(r"\(default: (?:[\d.]+\.0|-|None|True|False)\)|by default", page)


@pytest.mark.parametrize("verb", VERBS.names)
def test_options_follow_one_template(verb: str) -> None:
    """A capitalised phrase without a full stop; a default comes last; choices are never the metavar."""
    for parameter in verb_command(verb).params:
        text: Any = parameter.help
        assert text[0].isupper(), (parameter.opts, text)
        assert not text.endswith("."), (parameter.opts, text)
        assert "(default:" not in text or text.endswith(")"), (parameter.opts, text)
        assert not re.search(r"[|<>]", parameter.metavar or ""), parameter.opts
