"""Test whether cells differ significantly, and mark the best, the second best and those that differ.

The mean of a cell over n seeds has the variance s²/n, with n − 1 degrees of freedom. A cell of one run has the squared
standard error of its score over the scored rows, with unlimited degrees of freedom. Two cells are compared by Welch's t
with the degrees of freedom of Welch and Satterthwaite. With seeds on both sides this is Welch's t-test, with standard
errors on both sides the unpooled z-test of two proportions. Cells that have neither cannot be tested.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from s2bl_cli.reporting.quantities import DIVERGENCE, Metric
from s2bl_cli.reporting.table import Cell, Row

LEVEL = 0.05


def marked(cells: Sequence[Cell], shown: Metric, significance: bool = False) -> tuple[Cell, ...]:
    """Mark the best cell of a row, if it is significantly better than the next or if no test is possible. Cells that
    look the same when printed are equal. The second best is marked too, among three or more numbers.

    A divergence is at least 0, so an estimate below 0 is noise, and no cell of its row is the best.
    """
    least = 0 if shown.group == DIVERGENCE else -math.inf
    if shown.better is None or any(cell.mean is not None and cell.mean < least for cell in cells):
        return tuple(cells)
    sign = 1 if shown.better == "high" else -1
    printed = [None if cell.mean is None else sign * float(shown.unit.printed(cell.mean)) for cell in cells]
    ranks = sorted({value for value in printed if value is not None}, reverse=True)
    if len(ranks) < 2:
        return tuple(cells)
    firsts, seconds = ([cells[i] for i, value in enumerate(printed) if value == rank] for rank in ranks[:2])
    if significance:
        cells = _differing_marked(cells, firsts[0], [value == ranks[0] for value in printed])
    tests = [p for first in firsts for second in seconds if (p := p_value(first, second)) is not None]
    if any(p > LEVEL for p in tests):
        return tuple(cells)
    has_second = sum(value is not None for value in printed) > 2
    return tuple(
        replace(cell, is_best=value == ranks[0], is_second=has_second and value == ranks[1])
        for cell, value in zip(cells, printed, strict=True)
    )


def _differing_marked(cells: Sequence[Cell], best: Cell, is_first: Sequence[bool]) -> list[Cell]:
    """Mark the cells that differ from the best of the row, at 5 % for the whole row (Holm)."""
    tests = [(p_value(cell, best), i) for i, cell in enumerate(cells) if not is_first[i]]
    tested = sorted((p, i) for p, i in tests if p is not None)
    adjusted = accumulate(((len(tested) - rank) * p for rank, (p, _) in enumerate(tested)), max)
    differing = {i for (_, i), p in zip(tested, adjusted, strict=True) if p <= LEVEL}
    return [replace(cell, differs=i in differing) for i, cell in enumerate(cells)]


def wins(rows: Sequence[Row], titles: Sequence[str], shown: Metric) -> list[str]:
    """How many rows each column has won, of the rows with at least two numbers."""
    compared = [cells for _, cells in rows if sum(cell.mean is not None for cell in cells) > 1]
    if len(compared) < 2 or shown.better is None:
        return []
    counts = [(title, sum(cells[i].is_best for cells in compared)) for i, title in enumerate(titles)]
    parts = [
        f"{title} {count} of {len(compared)}" for title, count in sorted(counts, key=lambda pair: -pair[1]) if count
    ]
    open_rows = sum(not any(cell.is_best for cell in cells) for cells in compared)
    parts += [f"no clear winner in {open_rows}"] if open_rows else []
    return [f"Rows won: {', '.join(parts)}."]


def p_value(cell: Cell, other: Cell) -> float | None:
    """The two-sided p-value; None if the noise of a cell is unknown."""
    from scipy.special import ndtr, stdtr

    noises = [noise for noise in (_noise(cell), _noise(other)) if noise is not None]
    if cell.mean is None or other.mean is None or len(noises) < 2:
        return None
    variance = sum(variance for variance, _ in noises)
    if variance == 0:  # equal results of all seeds
        return 1.0 if cell.mean == other.mean else 0.0
    share = sum(variance**2 / degrees for variance, degrees in noises)
    t = abs(cell.mean - other.mean) / math.sqrt(variance)
    return float(2 * (stdtr(variance**2 / share, -t) if share else ndtr(-t)))


def _noise(cell: Cell) -> tuple[float, float] | None:
    """The variance of the mean, and its degrees of freedom."""
    if cell.runs > 1 and cell.std is not None:
        return cell.std**2 / cell.runs, cell.runs - 1
    if cell.stderr is not None and math.isfinite(cell.stderr):
        return cell.stderr**2, math.inf
    return None
