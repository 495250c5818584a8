"""Mark the best cell of a row, the second best, and those that differ significantly from the best.

The best cell was chosen because its value is high, so part of its lead is chance. A cell differs significantly if the
difference is larger than 95 % of the ranges (largest minus smallest) of equally many equal cells: Tukey's test, which
holds for all pairs and therefore for those with a chosen best. Few repetitions can have a small variance by chance, so
the variance of a difference is at least the mean variance of the differences in the row.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from s2bl_cli.reporting.differences import Difference, at_least, difference, p_value
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
        differing = differing_from(firsts[0], cells)
        is_first = [value == ranks[0] for value in printed]
        cells = [replace(cell, differs=i in differing and not is_first[i]) for i, cell in enumerate(cells)]
    tests = [p_value(found) for first in firsts for second in seconds if (found := cell_difference(first, second))]
    if any(p > LEVEL for p in tests):
        return tuple(cells)
    has_second = sum(value is not None for value in printed) > 2
    return tuple(
        replace(cell, is_best=value == ranks[0], is_second=has_second and value == ranks[1])
        for cell, value in zip(cells, printed, strict=True)
    )


def cell_difference(cell: Cell, other: Cell) -> Difference | None:
    """None if a cell is empty or its noise is unknown."""
    one, two = cell.noise, other.noise
    return None if one is None or two is None else difference(one, two)


def differing_from(best: Cell, cells: Sequence[Cell]) -> set[int]:
    """The cells that differ significantly from the best one, at 5 % for the whole row."""
    found = {i: other for i, cell in enumerate(cells) if cell is not best and (other := cell_difference(best, cell))}
    tested = [best, *(cells[i] for i in found)]
    typical, repeated = _typical_variances(tested), _repeated(*tested)
    differing = set()
    for i, own in found.items():
        variance = typical.get(_repeated(best, cells[i]), 0.0)
        sturdy = at_least(own, variance, own.repeated_degrees * max(1, repeated - 1))
        if p_value(sturdy, among=len(found) + 1) <= LEVEL:
            differing.add(i)
    return differing


def _typical_variances(cells: Sequence[Cell]) -> dict[int, float]:
    """The mean variance over repetitions of the differences of all pairs of cells, separately for pairs with one and
    with two repeated cells."""
    variances: dict[int, list[float]] = {}
    for one, other in combinations(cells, 2):
        found = cell_difference(one, other)
        if found is not None:
            variances.setdefault(_repeated(one, other), []).append(found.repeated)
    return {number: sum(some) / len(some) for number, some in variances.items()}


def _repeated(*cells: Cell) -> int:
    return sum(cell.noise is not None and cell.noise.is_repeated for cell in cells)


def significance_notes(rows: Sequence[Row]) -> list[str]:
    """The meaning of †, if a cell has one."""
    differing = [cell for _, cells in rows for cell in cells if cell.differs]
    if not differing:
        return []
    is_repeated = any(_repeated(cell) for cell in differing)
    noise = "repetitions and of the scored rows" if is_repeated else "the scored rows"
    note = f"† differs significantly from the best in its row (Tukey's test, 5 % per row), given the noise of {noise}."
    return [note if is_repeated else f"{note} Single runs do not show the noise of training and masks."]


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
