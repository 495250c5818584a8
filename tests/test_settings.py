"""Settings: declared once at a dataclass's field; checked, recorded and turned into flags from there."""

import re
from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from s2bl_cli.commands.options import settings_as_flags
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.settings import Between, check_settings, flag, recorded, recorded_changes, setting

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Example:
    rho: float | None = setting(None, "a share", rule=Between(0, 1))
    batch_size: int = setting(128, "rows a step", rule=Between(1))
    lr: float = setting(0.1, "step size", rule=Between(0, low_open=True))
    kind: str = setting("one", "which", choices=lambda: ("one", "two"))
    other_kind: str | None = setting(None, "which else", choices=lambda: ("three", "four"))
    threads: int = setting(0, "cores", recorded=False, metavar="N")
    quickly: bool = setting(False, "sooner")

    def __post_init__(self):
        check_settings(self)


# --- rules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "inside", "outside"),
    [
        (Between(0, 1), [0, 1, 0.5, 0.0, 1.0, True], [-1e-9, 1 + 1e-9, -1, 2]),
        (Between(0, 1, low_open=True), [1e-300, 1], [0, 0.0, -0.0, -1, 2]),
        (Between(1), [1, 10**30, 1e300], [0, 0.999, -1]),
        (Between(0, low_open=True), [1e-300, 5], [0, -1]),
        (Between(-5, -2), [-5, -2], [-5.1, -1.9]),
    ],
)
def test_bounds(rule, inside, outside):
    assert [value for value in inside if not rule.admits(value)] == []
    assert [value for value in [*outside, NAN, INF, -INF] if rule.admits(value)] == []


def test_even_unbounded_rules_admit_no_infinity():
    assert not Between(-INF).admits(INF)
    assert Between(-INF).admits(1e308)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Between(0, 1), "in [0, 1]"),
        (Between(0, 1, low_open=True), "in (0, 1]"),
        (Between(1), "1 or more"),
        (Between(0, low_open=True), "greater than 0"),
    ],
)
def test_rules_in_words(rule, words):
    assert str(rule) == words


def test_defaults_break_no_rule():
    assert Example() == Example(None, 128, 0.1, "one", None, 0, False)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"rho": 1.5}, "--rho must be in [0, 1], found 1.5"),
        ({"rho": NAN}, "--rho must be in [0, 1], found nan"),
        ({"batch_size": 0}, "--batch-size must be 1 or more, found 0"),
        ({"lr": INF}, "--lr must be greater than 0, found inf"),
        ({"kind": "six"}, "--kind must be one of one, two, found 'six'"),
        ({"other_kind": "one"}, "--other-kind must be one of three, four, found 'one'"),
        (
            {"rho": -1, "lr": 0, "kind": "x" * 100},
            "--rho must be in [0, 1], found -1; --lr must be greater than 0, found 0; "
            f"--kind must be one of one, two, found '{'x' * 39}…'",
        ),
    ],
)
def test_all_broken_rules_are_told_at_once(values, told):
    with pytest.raises(SettingError, match="^" + re.escape(told) + "$"):
        Example(**values)


# --- what a lineage keeps -------------------------------------------------------------------------------


def test_recorded_is_everything_that_changes_the_result():
    assert recorded(Example(rho=0.2, threads=4)) == {
        "rho": 0.2, "batch-size": 128, "lr": 0.1, "kind": "one", "other-kind": None, "quickly": False,
    }  # fmt: skip


def test_recorded_changes_is_what_differs_from_the_defaults():
    assert recorded_changes(Example()) == {}
    assert recorded_changes(Example(batch_size=64, threads=4, lr=0.1)) == {"batch-size": 64}


def test_flag_names():
    assert flag("context_columns") == "--context-columns"


# --- flags ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Further:
    depth: int = setting(2, "how deep", rule=Between(1, 9))

    def __post_init__(self):
        check_settings(self)


received = []


@settings_as_flags(further="More of it")
def command(
    name: str,
    example: Example,
    further: Further,
    again: bool = False,
) -> None:
    """Does nothing."""
    received.append((name, example, further, again))


@pytest.fixture
def cli():
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    received.clear()
    return app


def test_every_field_is_a_flag_with_its_words_and_default(cli):
    options = {parameter.name: parameter for parameter in typer.main.get_command(cli).params}
    assert [name for name in options if name not in ("install_completion", "show_completion")] == [
        "name", "rho", "batch_size", "lr", "kind", "other_kind", "threads", "quickly", "depth", "again",
    ]  # fmt: skip
    assert {name: options[name].opts for name in ("rho", "batch_size", "other_kind", "depth")} == {
        "rho": ["--rho"], "batch_size": ["--batch-size"], "other_kind": ["--other-kind"], "depth": ["--depth"],
    }  # fmt: skip
    assert options["batch_size"].help == "rows a step"
    assert options["kind"].help == "which"
    assert (options["batch_size"].default, options["rho"].default, options["kind"].default) == (128, None, "one")
    assert options["threads"].metavar == "N"
    assert options["depth"].rich_help_panel == "More of it"
    assert options["rho"].rich_help_panel is None


def test_help_shows_the_fields(cli):
    """Single words only: typer decides how they are laid out."""
    result = CliRunner().invoke(cli, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == 0
    assert {"nothing", "rho", "share", "depth", "deep"} <= set(re.findall(r"\w+", result.output))


def test_the_command_receives_its_settings(cli):
    words = ["here", "--rho", "0.5", "--kind", "two", "--batch-size", "7", "--depth", "3", "--quickly", "--again"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    assert received == [("here", Example(rho=0.5, batch_size=7, kind="two", quickly=True), Further(3), True)]


def test_without_flags_the_defaults_hold(cli):
    assert CliRunner().invoke(cli, ["here"]).exit_code == 0
    assert received == [("here", Example(), Further(), False)]


def test_the_rules_are_checked_when_flags_are_given(cli):
    result = CliRunner().invoke(cli, ["here", "--depth", "10"])
    assert isinstance(result.exception, SettingError)
    assert str(result.exception) == "--depth must be in [1, 9], found 10"
    assert received == []


@pytest.mark.parametrize("words", [["--kind", "six"], ["--batch-size", "1.5"], ["--rho", "much"], ["--no-such-flag"]])
def test_what_is_no_value_at_all_is_a_usage_error(cli, words):
    assert CliRunner().invoke(cli, ["here", *words]).exit_code == 2
    assert received == []


# --- text made safe -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\tc", "a b c"),
        ("\x1b[31mred", "[31mred"),
        ("  spaces   inside  ", "spaces inside"),
        ("\udcff.parquet", ".parquet"),
        ("ρ × 2", "ρ × 2"),
        (17, "17"),
        ("x" * 50, "x" * 39 + "…"),
        ("x" * 40, "x" * 40),
    ],
)
def test_one_line(text, line):
    assert one_line(text, 40) == line
