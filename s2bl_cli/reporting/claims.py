"""Check claims about scores, so that a pipeline can stop if one fails.

    wce-s2bl >= tips + 2                      in every row of the table that has both
    wce-s2bl > 70 at rho=0.02 tau=10          in the rows of that ρ and τ
    wce-s2bl >= tips + 2 on average           for the means over the rows that have both

Methods and numbers are joined by + and - with spaces around them, because methods have hyphens. Numbers are in the unit
of the table: percentage points for accuracies.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.quantities import Metric, Unit
from s2bl_cli.reporting.table import Key, Table, Verdict, in_words, key_text

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


def checked(claim: str, table: Table, shown: Metric) -> Iterator[Verdict]:
    """One verdict per row that has all methods of the claim, or one on average. Without such a row it is an error."""
    match = _CLAIM.fullmatch(" ".join(claim.split()))
    if match is None:
        raise SettingError(f"--check must be like 'wce-s2bl >= tips + 2', found {one_line(claim, 80)!r}: {_FORM}")
    subject = f"--check {one_line(claim, 80)!r}"
    sides = [match[side].split() for side in ("left", "right")]
    methods = [word for side in sides for word in side[::2] if not _NUMBER.fullmatch(word)]
    unknown = [name for name in methods if name not in table.columns]
    if unknown or not methods:
        what = f"{one_line(unknown[0], 40)!r} is not in these scores" if unknown else "it names no method"
        near = get_close_matches((*unknown, "")[0], table.columns, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SettingError(f"{subject}: {what}; they have {one_line(', '.join(table.columns), 2000)}{hint}")
    at = dict(word.split("=", 1) for word in (match["at"] or "").split())
    for name in set(at) - {*table.keys, *table.key_titles}:
        raise SettingError(f"{subject}: the table's rows are by {', '.join(table.keys)}, not by {one_line(name, 40)!r}")
    rows = {
        in_words(table.keys, keys): means
        for keys, means in table.means().items()
        if _is_at(table, keys, at) and means.keys() >= set(methods)
    }
    if not rows:
        raise SettingError(f"{subject}: no row of the scores has all of {', '.join(methods)}")
    if match["average"]:
        averages = {name: sum(means[name] for means in rows.values()) / len(rows) for name in methods}
        rows = {f"on average over {len(rows)} rows": averages}
    for place, means in rows.items():
        left, right = (_sum(side, means, shown.unit) for side in sides)
        difference = 0.0 if math.isclose(left, right, rel_tol=_ROUNDING, abs_tol=_ROUNDING) else left - right
        words = [*sides[0], match["relation"], *sides[1]]
        numbers = " ".join(f"{word} ({shown.unit.printed(means[word])})" if word in methods else word for word in words)
        details = f"{place}: {numbers}, a difference of {shown.unit.signed(difference / shown.unit.factor)}"
        yield Verdict(claim, _RELATIONS[match["relation"]](difference, 0), details)


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
