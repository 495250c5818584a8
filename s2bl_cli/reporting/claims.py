"""Claims that scores must bear out, so that a pipeline can stop when they do not.

    wce-s2bl >= tips + 2                      in every row of the table that has both
    wce-s2bl > 70 at rho=0.02 tau=10          in the rows of that ρ and τ
    wce-s2bl >= tips + 2 on average           of the means over the rows that have both

Words are methods or numbers, joined by + and - with spaces around them, because methods have hyphens. Numbers are in
the table's unit: points of percent for accuracies.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.keys import Key, key_text
from s2bl_cli.reporting.quantities import Quantity, Unit
from s2bl_cli.reporting.selection import listed
from s2bl_cli.reporting.table import Table

_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_SIGNS = {"+": 1, "-": -1}
_TERM = r"(?![-+<>]=?(?: |$))\S+"
_SUM = rf"{_TERM}(?: [-+] {_TERM})*"
_AT = r" at (?P<at>\S+=\S+(?: \S+=\S+)*)"
_CLAIM = re.compile(rf"(?P<left>{_SUM}) (?P<relation>[<>]=?) (?P<right>{_SUM})(?:{_AT})?(?P<average> on average)?")
_FORM = (
    f"sums of methods and numbers with one of {', '.join(_RELATIONS)} between them and spaces around every word, then "
    "rows (at rho=0.02 tau=10) or on average"
)
_ROUNDING = 1e-9  # 0.7 + 0.02 is not 0.72 in binary: what is off by so little is equal


@dataclass(frozen=True)
class Verdict:
    """What became of one comparison."""

    claim: str
    holds: bool
    details: str  # with the numbers


@dataclass(frozen=True)
class Claim:
    text: str
    left: tuple[str, ...]  # methods or numbers, and signs, in turn: a, +, b, -, c
    relation: str
    right: tuple[str, ...]
    at: Mapping[str, str]  # a row's key and its text
    is_on_average: bool

    @property
    def subject(self) -> str:
        return f"--check {one_line(self.text, 80)!r}"


def parsed_claim(text: str) -> Claim:
    match = _CLAIM.fullmatch(" ".join(text.split()))
    if match is None:
        raise SettingError(f"--check must be like 'wce-s2bl >= tips + 2', found {one_line(text, 80)!r}: {_FORM}")
    left, right = (tuple(match[side].split()) for side in ("left", "right"))
    at = dict(word.split("=", 1) for word in (match["at"] or "").split())
    return Claim(text, left, match["relation"], right, at, match["average"] is not None)


def checked(claim: Claim, table: Table, shown: Quantity) -> list[Verdict]:
    """One verdict per row that has all the claim's methods, or one on average. No such row is a fault of the claim."""
    methods = [word for word in (*claim.left[::2], *claim.right[::2]) if not _is_number(word)]
    unknown = [name for name in methods if name not in table.columns]
    if unknown or not methods:
        what = f"{one_line(unknown[0], 40)!r} is no method of these scores" if unknown else "it names no method"
        names = listed(list(table.columns), (*unknown, "")[0])
        raise SettingError(f"{claim.subject}: {what}; they have {names}")
    complete = []
    for keys, cells in table.rows:
        means = dict(zip(table.columns, (cell.mean for cell in cells), strict=True))
        values = {name: mean for name in methods if (mean := means[name]) is not None}
        if _is_at(table, keys, claim) and len(values) == len(set(methods)):
            complete.append((table.place(keys), values))
    if not complete:
        raise SettingError(f"{claim.subject}: no row of the scores has all of {', '.join(methods)}")
    if claim.is_on_average:
        averages = {name: sum(values[name] for _, values in complete) / len(complete) for name in methods}
        complete = [(f"on average over {len(complete)} rows", averages)]
    return [_compared(claim, values, shown.unit, place) for place, values in complete]


def _compared(claim: Claim, values: Mapping[str, float], unit: Unit, place: str) -> Verdict:
    left, right = (_sum(side, values, unit.factor) for side in (claim.left, claim.right))
    if abs(left - right) <= _ROUNDING * max(1.0, abs(left)):
        left = right
    words = (*claim.left, claim.relation, *claim.right)
    numbers = " ".join(f"{word} ({unit.printed(values[word])})" if word in values else word for word in words)
    difference = unit.signed((left - right) / unit.factor)
    holds = _RELATIONS[claim.relation](left, right)
    return Verdict(claim.text, holds, f"{place}: {numbers}, a difference of {difference}")


def _sum(side: tuple[str, ...], values: Mapping[str, float], factor: float) -> float:
    terms = [factor * values[word] if word in values else float(word) for word in side[::2]]
    return terms[0] + sum(_SIGNS[sign] * term for sign, term in zip(side[1::2], terms[1:], strict=True))


def _is_at(table: Table, keys: tuple[Key, ...], claim: Claim) -> bool:
    """Whether the row has the values that the claim is about: a number as it is, or anything as it is printed."""
    values = {**dict(zip(table.key_titles, keys, strict=True)), **dict(zip(table.keys, keys, strict=True))}
    unknown = [name for name in claim.at if name not in values]
    if unknown:
        raise SettingError(
            f"{claim.subject}: the table's rows are by {', '.join(table.keys)}, not by {one_line(unknown[0], 40)!r}"
        )
    return all(
        text == key_text(values[name]) or (_is_number(text) and values[name] == float(text))
        for name, text in claim.at.items()
    )


def _is_number(word: str) -> bool:
    try:
        return abs(float(word)) < float("inf")
    except ValueError:
        return False


def compared_with_baseline(table: Table, baseline: Table, shown: Quantity, tolerance: float) -> list[Verdict]:
    """Every number of the baseline must be there, and no worse by more than the tolerance, in the table's unit."""
    if table.keys != baseline.keys:
        raise SettingError("--baseline: its scores make other rows than these: give scores of the same kind")
    claim = f"no worse than the baseline by more than {tolerance:g}"
    sign = -1 if shown.better == "low" else 1
    unit, new = shown.unit, table.means()
    verdicts = []
    for (keys, column), old in baseline.means().items():
        was = f"{baseline.place(keys)}: {column} was {unit.printed(old)} and is"
        if (keys, column) not in new:
            verdicts.append(Verdict(claim, False, f"{was} not there"))
            continue
        now = new[keys, column]
        holds = sign * (now - old) * unit.factor >= -tolerance - _ROUNDING
        verdicts.append(Verdict(claim, holds, f"{was} {unit.printed(now)} ({unit.signed(now - old)})"))
    if not verdicts:
        raise SettingError("--baseline: no number in it to hold these scores against")
    return verdicts
