"""How a setting is declared: once, at its dataclass field, with its words, its rule and its default.

    @dataclass(frozen=True)
    class MaskSettings:
        rho: float | None = setting(None, "share of rows that keep their feedback", rule=Between(0, 1))

        def __post_init__(self) -> None:
            check_settings(self)

The command line's flags and help, the checks and the lineage are all read from there.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from s2bl_cli.errors import SettingError, one_line

_METADATA = "s2bl"


@dataclass(frozen=True)
class Between:
    """A number's bounds, both included unless said open. NaN is within no bounds."""

    low: float
    high: float = float("inf")
    low_open: bool = False

    def admits(self, value: Any) -> bool:
        # inf breaks every rule: no setting has a meaning at infinity
        return (
            (self.low < value or (value == self.low and not self.low_open))
            and value <= self.high
            and value != float("inf")
        )

    def __str__(self) -> str:
        low, high = (f"{bound:g}" if isinstance(bound, float) else str(bound) for bound in (self.low, self.high))
        if self.high == float("inf"):
            return f"greater than {low}" if self.low_open else f"{low} or more"
        return f"in {'(' if self.low_open else '['}{low}, {high}]"


@dataclass(frozen=True)
class Declaration:
    """What a field's metadata says about it as a flag."""

    help: str
    rule: Between | None = None
    choices: Callable[[], tuple[str, ...]] | None = None
    recorded: bool = True  # part of the lineage; False for what does not change the result (threads, device)
    metavar: str | None = None


def setting(
    default: Any,
    help: str,
    *,
    rule: Between | None = None,
    choices: Callable[[], tuple[str, ...]] | None = None,
    recorded: bool = True,
    metavar: str | None = None,
) -> Any:
    """A dataclass field that is also a flag."""
    return dataclasses.field(default=default, metadata={_METADATA: Declaration(help, rule, choices, recorded, metavar)})


def declaration(field: "dataclasses.Field[Any]") -> Declaration:
    declared: Declaration = field.metadata[_METADATA]
    return declared


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def check_settings(settings: Any) -> None:
    """Every field against its rule and choices; all the faults in one message."""
    faults = []
    for field in dataclasses.fields(settings):
        declared, value = declaration(field), getattr(settings, field.name)
        if value is None:
            continue
        if declared.rule is not None and not declared.rule.admits(value):
            faults.append(f"{flag(field.name)} must be {declared.rule}, found {value}")
        if declared.choices is not None and value not in declared.choices():
            faults.append(
                f"{flag(field.name)} must be one of {', '.join(declared.choices())}, found {one_line(value, 40)!r}"
            )
        # A shell hands on any bytes; those that are no UTF-8 could not be written into a lineage.
        if declared.recorded and isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            faults.append(f"{flag(field.name)} must be text in UTF-8, found {one_line(value, 40)!r}")
    if faults:
        raise SettingError("; ".join(faults))


def recorded(settings: Any) -> dict[str, Any]:
    """The settings as a lineage keeps them: flag name without dashes → plain value."""
    return {
        flag(field.name)[2:]: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if declaration(field).recorded
    }


def recorded_changes(settings: Any) -> dict[str, Any]:
    """As `recorded`, but only what differs from the defaults."""
    defaults = {flag(field.name)[2:]: field.default for field in dataclasses.fields(settings)}
    return {name: value for name, value in recorded(settings).items() if value != defaults[name]}
