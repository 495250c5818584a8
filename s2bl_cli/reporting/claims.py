"""Claims that scores must bear out, so that a pipeline can stop when they do not.

    wce-s2bl >= tips + 2                      in every row of the table that has both
    wce-s2bl > 70 at rho=0.02 tau=10          in the rows of that ρ and τ
    wce-s2bl >= tips + 2 on average           of the means over the rows that have both

Words are methods or numbers, joined by + and - with spaces around them, because methods have hyphens. Numbers are in
the table's unit: points of percent for accuracies.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.keys import Key, key_text
from s2bl_cli.reporting.quantities import Quantity, Unit
from s2bl_cli.reporting.selection import listed
from s2bl_cli.reporting.table import Cell, Row, Table

_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_AVERAGE = ("on", "average")
_AT = "at"
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
    left: tuple[str, ...]  # atoms and signs in turn: a, +, b, -, c
    relation: str
    right: tuple[str, ...]
    at: tuple[tuple[str, str], ...]  # a row's key and its text
    is_on_average: bool


def parsed_claim(text: str) -> Claim:
    words = text.split()
    form = f"--check must be like 'wce-s2bl >= tips + 2', found {one_line(text, 80)!r}"
    relations = [i for i, word in enumerate(words) if word in _RELATIONS]
    if len(relations) != 1:
        raise SettingError(f"{form}: one of {', '.join(_RELATIONS)} with spaces around it")
    average = tuple(words[-2:]) == _AVERAGE
    words = words[:-2] if average else words
    at: list[tuple[str, str]] = []
    if _AT in words[relations[0] :]:
        start = words.index(_AT, relations[0])
        for word in words[start + 1 :]:
            key, equals, value = word.partition("=")
            if not equals:
                raise SettingError(f"{form}: after 'at' come rows, such as at rho=0.02 tau=10")
            at.append((key, value))
        words = words[:start]
    left, right = tuple(words[: relations[0]]), tuple(words[relations[0] + 1 :])
    for side in (left, right):
        if len(side) % 2 == 0 or any(word not in "+-" for word in side[1::2]) or any(w in "+-" for w in side[::2]):
            raise SettingError(f"{form}: methods and numbers with + or - between them, spaces around each")
    return Claim(text, left, words[relations[0]], right, tuple(at), average)


def checked(claim: Claim, table: Table, shown: Quantity) -> list[Verdict]:
    """One verdict per row that has all the claim's methods, or one on average. No such row is a fault of the claim."""
    methods = [word for word in (*claim.left[::2], *claim.right[::2]) if not _is_number(word)]
    unknown = [name for name in methods if name not in table.columns]
    if unknown or not methods:
        what = f"{one_line(unknown[0], 40)!r} is no method of these scores" if unknown else "it names no method"
        names = listed(list(table.columns), (*unknown, "")[0])
        raise SettingError(f"--check {one_line(claim.text, 80)!r}: {what}; they have {names}")
    chosen = [row for row in table.rows if _is_at(row, claim, table)]
    tested = [(keys, _values(cells, methods, table)) for keys, cells in chosen]
    complete = [(keys, values) for keys, values in tested if len(values) == len(set(methods))]
    if not complete:
        raise SettingError(
            f"--check {one_line(claim.text, 80)!r}: no row of the scores has all of {', '.join(methods)}"
        )
    if not claim.is_on_average:
        return [_compared(claim, values, shown.unit, table.place(keys)) for keys, values in complete]
    means = {name: sum(values[name] for _, values in complete) / len(complete) for name in methods}
    return [_compared(claim, means, shown.unit, f"on average over {len(complete)} rows")]


def _compared(claim: Claim, values: dict[str, float], unit: Unit, where: str) -> Verdict:
    left, right = (_sum(side, values, unit.factor) for side in (claim.left, claim.right))
    if abs(left - right) <= _ROUNDING * max(1.0, abs(left)):
        left = right
    numbers = " ".join(
        word if word in "+-" or word in _RELATIONS or _is_number(word) else f"{word} ({unit.printed(values[word])})"
        for word in (*claim.left, claim.relation, *claim.right)
    )
    holds = _RELATIONS[claim.relation](left, right)
    gap = unit.signed((left - right) / unit.factor)
    return Verdict(claim.text, holds, f"{where}: {numbers}, a difference of {gap}")


def _sum(side: Sequence[str], values: dict[str, float], factor: float) -> float:
    total, sign = 0.0, 1
    for word in side:
        if word in "+-":
            sign = 1 if word == "+" else -1
        else:
            total += sign * (float(word) if _is_number(word) else factor * values[word])
    return total


def _values(cells: Sequence[Cell], methods: Sequence[str], table: Table) -> dict[str, float]:
    means = {name: cell.mean for name, cell in zip(table.columns, cells, strict=True)}
    return {name: mean for name in methods if (mean := means[name]) is not None}


def _is_at(row: Row, claim: Claim, table: Table) -> bool:
    values: dict[str, Key] = dict(zip(table.keys, row[0], strict=True))
    values |= dict(zip(table.key_titles, row[0], strict=True))
    for name, text in claim.at:
        if name not in values:
            raise SettingError(
                f"--check {one_line(claim.text, 80)!r}: the table's rows are by {', '.join(table.keys)}, "
                f"not by {one_line(name, 40)!r}"
            )
        if not _is_same(values[name], text):
            return False
    return True


def _is_same(value: Key, text: str) -> bool:
    """A number as it is, or anything as it is printed."""
    is_number = isinstance(value, int | float) and _is_number(text)
    return text == key_text(value) or (is_number and float(text) == value)


def _is_number(word: str) -> bool:
    try:
        return abs(float(word)) < float("inf")
    except ValueError:
        return False


def compared_with_baseline(table: Table, baseline: Table, shown: Quantity, tolerance: float) -> list[Verdict]:
    """Every number of the baseline must be there, and no worse by more than the tolerance, in the table's unit."""
    if table.keys != baseline.keys:
        raise SettingError("--baseline: its scores make other rows than these: give scores of the same kind")
    name = f"no worse than the baseline by more than {tolerance:g}"
    sign = -1 if shown.better == "low" else 1
    new = {
        (keys, column): cell for keys, cells in table.rows for column, cell in zip(table.columns, cells, strict=True)
    }
    verdicts = []
    for keys, cells in baseline.rows:
        for column, old in zip(baseline.columns, cells, strict=True):
            if old.mean is None:
                continue
            place = f"{baseline.place(keys)}: {column}"
            now = new.get((keys, column), Cell())
            if now.mean is None:
                details = f"{place} was {old.unit.printed(old.mean)} and is not there"
                verdicts.append(Verdict(name, False, details))
                continue
            change = now.mean - old.mean
            holds = sign * change * now.unit.factor >= -tolerance - _ROUNDING
            details = (
                f"{place} was {old.unit.printed(old.mean)} and is {now.unit.printed(now.mean)} "
                f"({now.unit.signed(change)})"
            )
            verdicts.append(Verdict(name, holds, details))
    if not verdicts:
        raise SettingError("--baseline: no number in it to hold these scores against")
    return verdicts
