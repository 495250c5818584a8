"""Check claims about scores, so that a pipeline can stop if one fails.

    wce-s2bl >= tips + 2                      in every row of the table that has both
    wce-s2bl > 70 at rho=0.02 tau=10          in the rows of that ρ and τ
    wce-s2bl >= tips + 2 on average           for the means over the rows that have both

Methods and numbers are joined by + and - with spaces around them, because methods have hyphens. Numbers are in the unit
of the table: percentage points for accuracies. A policy can be named by its file instead of its method, and the logging
policy is `logging`.

A confident claim holds if the whole 95 % interval of the difference does.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.metrics.health import RELIABLE, UNRELIABLE
from s2bl_cli.metrics.metric import GAIN, VALUE
from s2bl_cli.reporting.differences import Difference, combination, half_width
from s2bl_cli.reporting.quantities import Metric, Unit
from s2bl_cli.reporting.table import Cell, Health, Key, Table, Verdict, in_words, key_text

_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_SIGNS = {"+": 1, "-": -1}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_TERM = r"(?![-+<>]=?(?: |$))\S+"
_SUM = rf"{_TERM}(?: [-+] {_TERM})*"
_AT = r" at (?P<at>\S+=\S+(?: \S+=\S+)*)"
_CLAIM = re.compile(rf"(?P<left>{_SUM}) (?P<relation>[<>]=?) (?P<right>{_SUM})(?:{_AT})?(?P<average> on average)?")
_FORM = (
    f"sums of methods and numbers with one of {', '.join(_RELATIONS)} between them and spaces around every word, then "
    "rows (at rho=0.02 tau=10) or on average"
)
_ROUNDING = 1e-9  # 0.7 + 0.02 is not 0.72 in binary; smaller differences count as equal
_LEVEL = 0.95  # of the interval of a confident claim
_LOGGING = "logging"  # the word of `evaluate --compare-to`


@dataclass(frozen=True)
class Claim:
    """A claim as typed, in its parts. `is_confident`: it is about the interval of the difference."""

    text: str
    sides: tuple[tuple[str, ...], tuple[str, ...]]  # alternating words and signs
    relation: str
    at: Mapping[str, str]
    is_average: bool
    is_confident: bool

    @cached_property
    def subject(self) -> str:
        return f"--check {one_line(self.text, 80)!r}"

    @property
    def words(self) -> list[str]:
        return [*self.sides[0], self.relation, *self.sides[1]]

    @property
    def names(self) -> list[str]:
        """What stands for methods, in order."""
        return [word for side in self.sides for word in side[::2] if not _NUMBER.fullmatch(word)]

    def factors(self) -> dict[str, float]:
        """The factor of each name in the difference of the two sides."""
        factors = dict.fromkeys(self.names, 0.0)
        for sign, side in zip((1, -1), self.sides, strict=True):
            for before, word in zip(("+", *side[1::2]), side[::2], strict=True):
                if word in factors:
                    factors[word] += sign * _SIGNS[before]
        return factors


def parsed_claim(text: str, *, confident: bool = False) -> Claim:
    match = _CLAIM.fullmatch(" ".join(text.split()))
    if match is None:
        raise SettingError(f"--check must be like 'wce-s2bl >= tips + 2', found {one_line(text, 80)!r}: {_FORM}")
    sides = tuple(match["left"].split()), tuple(match["right"].split())
    at = dict(word.split("=", 1) for word in (match["at"] or "").split())
    claim = Claim(text, sides, match["relation"], at, bool(match["average"]), confident)
    if confident and claim.is_average:
        raise SettingError(f"{claim.subject}: --confident checks every row by itself: drop 'on average'")
    return claim


def checked(claim: Claim, tables: Iterable[tuple[Table, Metric]], health: Sequence[Health] = ()) -> Iterator[Verdict]:
    """One verdict per row that has all methods of the claim, or one on average, from the first table with such a row.
    Without one it is an error. `health` is of policies on logs, for confident claims."""
    faults: list[str] = []
    for table, shown in tables:
        columns = {name: column for name in claim.names if (column := _column(name, table)) is not None}
        if fault := _fault(claim, table, columns):
            faults.append(fault)
            continue
        rows = [
            (in_words(table.keys, keys), cells)
            for keys, row in table.cells().items()
            for cells in [{name: row[column] for name, column in columns.items()}]
            if _is_at(table, keys, claim.at) and all(cell.mean is not None for cell in cells.values())
        ]
        if rows:
            averages = [(f"on average over {len(rows)} rows", _averages([cells for _, cells in rows]))]
            for place, cells in averages if claim.is_average else rows:
                yield _verdict(claim, place, cells, shown, health)
            return
        faults.append(f"no row of the scores has {shown.name} of all of {', '.join(claim.names)}")
    raise SettingError(f"{claim.subject}: {faults[0]}")


def _averages(rows: Sequence[Mapping[str, Cell]]) -> dict[str, Cell]:
    return {name: Cell(sum(row[name].mean or 0.0 for row in rows) / len(rows)) for name in rows[0]}


def _fault(claim: Claim, table: Table, columns: Mapping[str, str]) -> str | None:
    """What is wrong with a claim on this table. `columns`: of the names in the claim."""
    unknown = [name for name in claim.names if name not in columns]
    if unknown or not columns:
        what = f"{one_line(unknown[0], 40)!r} is not in these scores" if unknown else "it names no method"
        near = get_close_matches((*unknown, "")[0], table.columns, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"{what}; they have {one_line(', '.join(table.columns), 2000)}{hint}"
    for name in set(claim.at) - {*table.keys, *table.key_titles}:
        return f"the table's rows are by {', '.join(table.keys)}, not by {one_line(name, 40)!r}"
    return None


def _column(name: str, table: Table) -> str | None:
    """The column of a method, or of a policy by the name of its file; None if there is none, or several."""
    if name in table.columns:
        return name
    if name == _LOGGING and LOGGING_POLICY in table.columns:
        return LOGGING_POLICY
    files = {name, f"{name}.safetensors"}
    policies: dict[str, set[str]] = {}
    for row in table.cells().values():
        for column, cell in row.items():
            policies.setdefault(column, set()).update(() if cell.noise is None else cell.noise.policies)
    columns = [column for column, own in policies.items() if own and own <= files]
    return columns[0] if len(columns) == 1 else None


def _verdict(claim: Claim, place: str, cells: Mapping[str, Cell], shown: Metric, health: Sequence[Health]) -> Verdict:
    """`cells` by the names in the claim."""
    unit, holds_for = shown.unit, _RELATIONS[claim.relation]
    means = {name: cell.mean for name, cell in cells.items() if cell.mean is not None}
    left, right = (_sum(side, means, unit) for side in claim.sides)
    value = 0.0 if math.isclose(left, right, rel_tol=_ROUNDING, abs_tol=_ROUNDING) else left - right
    numbers = " ".join(f"{word} ({unit.printed(means[word])})" if word in means else word for word in claim.words)
    details = f"{place}: {numbers}, a difference of {unit.signed(value / unit.factor)}"
    if not claim.is_confident:
        return Verdict(claim.text, holds_for(value, 0), details)
    half = unit.factor * half_width(_difference(claim, cells, shown), _LEVEL)
    low, high = value - half, value + half
    holds = holds_for(low, 0) and holds_for(high, 0)
    details += f" [{unit.signed(low / unit.factor)}, {unit.signed(high / unit.factor)}] ({shown.name})"
    # The verdict of a policy on a log is about values from the log. Accuracies by labels do not depend on it.
    noise = [cell.noise for cell in cells.values() if cell.noise is not None and shown.group in (VALUE, GAIN)]
    scored = {(one_line(policy, 60), one_line(log, 60)) for one in noise for policy in one.policies for log in one.logs}
    judged = [one for one in health if (one.policy, one.log) in scored]
    details += "".join(f"; {one.line}" for one in judged if one.level < RELIABLE)
    return Verdict(claim.text, holds and all(one.level > UNRELIABLE for one in judged), details)


def _difference(claim: Claim, cells: Mapping[str, Cell], shown: Metric) -> Difference:
    """Of the two sides, less their numbers. It must be paired if it can be: on the rows, or over repetitions."""
    factors = claim.factors()
    terms = [(factors[name], cell.noise) for name, cell in cells.items() if cell.noise is not None]
    found = combination(terms)
    subject = f"{claim.subject} --confident"
    if found is None:
        raise SettingError(f"{subject}: {shown.name} has no standard error in these scores: score with s2bl evaluate")
    is_on_same_rows = len(terms) > 1 and len({noise.rows for _, noise in terms}) == 1
    if shown.group == VALUE and is_on_same_rows and not found.is_paired and not found.repeated:
        (baseline,) = sorted(terms[-1][1].policies)[:1] or [claim.names[-1]]
        word = _LOGGING if baseline == LOGGING_POLICY else baseline
        raise SettingError(
            f"{subject}: these scores have no paired difference of {shown.name}: run s2bl evaluate with --compare-to "
            f"{one_line(word, 80)}"
        )
    return found


def _sum(side: Sequence[str], means: Mapping[str, float], unit: Unit) -> float:
    """The value of a sum such as a + b - c, given as alternating words and signs."""
    terms = [unit.factor * means[word] if word in means else float(word) for word in side[::2]]
    return terms[0] + sum(_SIGNS[sign] * term for sign, term in zip(side[1::2], terms[1:], strict=True))


def _is_at(table: Table, keys: Sequence[Key], at: Mapping[str, str]) -> bool:
    """Whether the row has the values after `at`, compared as numbers or as printed text."""
    values = dict(zip((*table.key_titles, *table.keys), (*keys, *keys), strict=True))
    return all(
        text == key_text(values[name]) or (_NUMBER.fullmatch(text) and values[name] == float(text))
        for name, text in at.items()
    )


def compared_with_baseline(table: Table, baseline: Table, shown: Metric, tolerance: float) -> Iterator[Verdict]:
    """Every number of the baseline must exist and be worse by at most the tolerance, in the unit of the table."""
    if table.keys != baseline.keys:
        raise SettingError(
            "--baseline: its table has other rows than that of these scores: give scores of the same kind"
        )
    claim = f"no worse than the baseline by more than {tolerance:g}"
    sign = -1 if shown.better == "low" else 1
    unit, new, old_rows = shown.unit, table.means(), baseline.means()
    if not any(old_rows.values()):
        raise SettingError("--baseline: it has no number to compare these scores with: give scores of the same metric")
    for keys, means in old_rows.items():
        for column, old in means.items():
            now = new.get(keys, {}).get(column)
            holds = now is not None and sign * (now - old) * unit.factor >= -tolerance - _ROUNDING
            is_now = "not there" if now is None else f"{unit.printed(now)} ({unit.signed(now - old)})"
            was = f"{in_words(table.keys, keys)}: {column} was {unit.printed(old)}"
            yield Verdict(claim, holds, f"{was} and is {is_now}")
