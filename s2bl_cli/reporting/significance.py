"""Whether two cells differ beyond noise.

A cell's mean has the variance s²/n over its n seeds with n − 1 degrees of freedom. A cell of one run has the squared
standard error of its score, over the rows it was scored on, without limit of degrees. Two cells are compared by
Welch's t with the degrees of Welch and Satterthwaite: over seeds on both sides it is Welch's test, over standard errors
on both sides the z-test of two proportions (unpooled). Cells that have neither cannot be tested.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from s2bl_cli.reporting.table import Cell

LEVEL = 0.05


def differing_marked(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Mark the cells that differ from the row's best, at 5 % for the whole row (Holm)."""
    best = next((cell for cell in cells if cell.is_best), None)
    if best is None:
        return tuple(cells)
    tested = [(p, i) for i, cell in enumerate(cells) if not cell.is_best and (p := p_value(cell, best)) is not None]
    differing = set()
    for rank, (p, i) in enumerate(sorted(tested)):
        if p > LEVEL / (len(tested) - rank):
            break
        differing.add(i)
    return tuple(replace(cell, differs=i in differing) for i, cell in enumerate(cells))


def p_value(one: Cell, other: Cell) -> float | None:
    """Two-sided; None where a cell says nothing of its noise."""
    first, second = _noise(one), _noise(other)
    if one.mean is None or other.mean is None or first is None or second is None:
        return None
    variance = first[0] + second[0]
    if variance == 0:  # seeds without any spread
        return 1.0 if one.mean == other.mean else 0.0
    spread = sum(v * v / degrees for v, degrees in (first, second))
    return student_t_p(abs(one.mean - other.mean) / math.sqrt(variance), variance**2 / spread if spread else math.inf)


def _noise(cell: Cell) -> tuple[float, float] | None:
    """The variance of the mean, and its degrees of freedom."""
    if cell.runs > 1 and cell.std is not None:
        return cell.std**2 / cell.runs, cell.runs - 1
    if cell.stderr is not None and math.isfinite(cell.stderr):
        return cell.stderr**2, math.inf
    return None


def student_t_p(t: float, degrees: float) -> float:
    """P(|T| ≥ t): the regularised incomplete beta function I_x(ν/2, ½) at x = ν/(ν + t²); normal without limit of ν."""
    if t == 0:
        return 1.0
    if degrees > 1e6:
        return math.erfc(t / math.sqrt(2))
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t), t * t / (degrees + t * t))


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """`rest` is 1 − x, given apart because it would be lost to rounding."""
    if x <= 0:
        return 0.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1 - front * _continued_fraction(b, a, rest) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Of the incomplete beta function, by Lentz's method: every two steps a factor, until it is 1."""
    tiny = 1e-300

    def safe(value: float) -> float:
        return value if abs(value) > tiny else tiny

    c, d = 1.0, 1 / safe(1 - (a + b) * x / (a + 1))
    product = d
    for m in range(1, 1000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / safe(1 + step * d)
            c = safe(1 + step / c)
            product *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return product
