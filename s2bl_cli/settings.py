"""Declaring settings: once, at the dataclass field, with help, rule and default.

    @dataclass(frozen=True)
    class MaskSettings:
        rho: float | None = setting(None, "Fraction of rows that keep their feedback", rule=Between(0, 1))

        def __post_init__(self) -> None:
            check_settings(self)

The options and their help, the checks and the lineage are derived from it.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from s2bl_cli.errors import SettingError, one_line

MANY = 1000  # largest number of values per option
COMMON = "Common options"  # the help panel of the options that most users need; -h shows only this panel

_METADATA = "s2bl"
_MEMBERS = "s2bl-members"


@dataclass(frozen=True)
class Between:
    """The bounds of a number, inclusive unless declared open. NaN is never within bounds."""

    low: float
    high: float = float("inf")
    low_open: bool = False
    high_open: bool = False

    def admits(self, value: Any) -> bool:
        # infinity is never valid: no setting has a meaning there
        return (
            (self.low < value or (value == self.low and not self.low_open))
            and (value < self.high or (value == self.high and not self.high_open))
            and value != float("inf")
        )

    def __str__(self) -> str:
        low, high = (f"{bound:g}" if isinstance(bound, float) else str(bound) for bound in (self.low, self.high))
        if self.high == float("inf"):
            return f"greater than {low}" if self.low_open else f"{low} or more"
        return f"in {'(' if self.low_open else '['}{low}, {high}{')' if self.high_open else ']'}"


@dataclass(frozen=True)
class Declaration:
    """A field's declaration as an option."""

    help: str
    rule: Between | None = None
    choices: Callable[[], tuple[str, ...]] | None = None
    recorded: bool = True  # part of the lineage; False for settings that do not change the result (threads, device)
    metavar: str | None = None
    many: bool = False  # comma-separated numbers; the rule applies to each number
    panel: str | None = None  # of the help; None: the panel of the command


def setting(
    default: Any,
    help: str,
    *,
    rule: Between | None = None,
    choices: Callable[[], tuple[str, ...]] | None = None,
    recorded: bool = True,
    metavar: str | None = None,
    many: bool = False,
    panel: str | None = None,
) -> Any:
    """A dataclass field that is also an option."""
    declared = Declaration(help, rule, choices, recorded, metavar, many, panel)
    return dataclasses.field(default=default, metadata={_METADATA: declared})


def settings_by_name(members: Callable[[], Mapping[str, Declaration]]) -> Any:
    """A dataclass field for several options: a mapping from their names to the given texts. `members` lists them."""
    return dataclasses.field(default_factory=dict, metadata={_MEMBERS: members})


def members(field: "dataclasses.Field[Any]") -> Mapping[str, Declaration] | None:
    """The options of a field for several options; None if the field is a single option."""
    return field.metadata[_MEMBERS]() if _MEMBERS in field.metadata else None


def declaration(field: "dataclasses.Field[Any]") -> Declaration:
    declared: Declaration = field.metadata[_METADATA]
    return declared


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def check_settings(settings: Any) -> None:
    """Check every field by its rule and choices. One message reports all faults."""
    if faults := setting_faults(settings):
        raise SettingError("; ".join(faults))


def setting_faults(settings: Any) -> list[str]:
    faults = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is None or _MEMBERS in field.metadata:
            continue
        declared = declaration(field)
        if declared.many:
            faults += _faults_of_many(field.name, declared, value)
        elif declared.rule is not None and not declared.rule.admits(value):
            faults.append(f"{flag(field.name)} must be {declared.rule}, found {value}")
        if declared.choices is not None and value not in declared.choices():
            faults.append(
                f"{flag(field.name)} must be one of {', '.join(declared.choices())}, found {one_line(value, 40)!r}"
            )
        # A shell passes any bytes, but a lineage can store only UTF-8.
        if declared.recorded and isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            faults.append(f"{flag(field.name)} must be text in UTF-8, found {one_line(value, 40)!r}")
    return faults


def numbers_in(value: str | float) -> tuple[float, ...]:
    """The distinct numbers in `0.1,1` or a number, in the given order. ValueError if a part is not a number."""
    parts = value.split(",") if isinstance(value, str) else [value]
    return tuple(dict.fromkeys(float(part) for part in parts))


def low_and_high(name: str, text: str) -> tuple[float, float]:
    """The two numbers in `0,1`, finite and the smaller first. The error names the option `name`."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise SettingError(
            f"{flag(name)} must be two numbers with the smaller first, such as 0,1, found {one_line(text, 40)!r}"
        )
    return low, high


def _faults_of_many(name: str, declared: Declaration, value: str | float) -> list[str]:
    try:
        numbers = numbers_in(value)
    except ValueError:
        return [f"{flag(name)} must be numbers such as 0.1 or 0.1,1,10, found {one_line(value, 40)!r}"]
    if len(numbers) > MANY:
        return [f"{flag(name)} takes at most {MANY} numbers, found {len(numbers)}"]
    assert declared.rule is not None
    return [f"{flag(name)} must be {declared.rule}, found {n:g}" for n in numbers if not declared.rule.admits(n)]


def number_text(number: float) -> str:
    """The shortest text that parses as the number."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def recorded(settings: Any) -> dict[str, Any]:
    """The settings for a lineage: option name without dashes → plain value."""
    by_flag: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if _MEMBERS in field.metadata:
            by_flag |= {flag(name)[2:]: text for name, text in value.items()}
        elif declaration(field).recorded:
            by_flag[flag(field.name)[2:]] = value
    return by_flag


def recorded_changes(settings: Any) -> dict[str, Any]:
    """Like `recorded`, but only settings that differ from their defaults."""
    defaults = {flag(field.name)[2:]: field.default for field in dataclasses.fields(settings)}
    return {name: value for name, value in recorded(settings).items() if value != defaults.get(name)}
