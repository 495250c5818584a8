"""How often does `report --significance` mark a cell of a row in which all methods are equal?

    python bench/significance.py [--replications 1000] [--quick] [--write docs/report.md]

Each replication draws the rows that are scored, the masks, and the policies of every method on every mask. A policy is
right in a row if a normal score is below a threshold. The score is a sum of what all methods share (hard rows), what is
a method's own, what a mask does to all methods, and what is left; the threshold has noise of masks, which all methods
share, and of training. All methods have the same expected accuracy, so a row of the table with a † is an error. Noise:

    own         share of a row's noise that is a method's own, for all its masks
    training    deviation of a policy's accuracy over masks and seeds, in points, beyond what all methods share

Cells are made and marked by the code of `report`, with the accuracies in parts of the rows that `evaluate` writes; also
without them, and by Welch's test over seeds with Holm's correction, which knows nothing of the rows. With 1,000
replications it takes about 20 minutes of one processor. Exits 1 if a promise is broken:

    with parts      at least 1.5 % and at most 7 % of the rows have a †, give or take 2 standard errors
    without parts   at most 7 %, likewise
"""

import argparse
import itertools
import math
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import norm, ttest_ind_from_stats

from s2bl_cli.metrics.row_parts import PARTS, part_of_units
from s2bl_cli.reporting.quantities import quantity
from s2bl_cli.reporting.repetitions import repetitions_of
from s2bl_cli.reporting.significance import marked
from s2bl_cli.reporting.table import Cell

ROWS, ACCURACY = 1000, 0.77
SHARED, OF_MASKS, MASKS = 0.5, 0.1, 1.0  # shares of a row's noise; deviation of masks in points
METHODS, REPETITIONS = (2, 3, 5, 8), (2, 3, 5, 10)
WORLDS = tuple(itertools.product((0.0, 0.15, 0.3), (0.5, 2.0)))  # own, training
LEAST, MOST = 0.015, 0.07
SHOWN = quantity("argmax-accuracy")


def correct_rows(rng, methods, masks, own, training):
    """Whether each policy is right in each row: (methods, masks, rows)."""
    slope = norm.pdf(norm.ppf(ACCURACY))  # of the accuracy in the threshold
    shift = MASKS * rng.standard_normal((1, masks)) + training * rng.standard_normal((methods, masks))
    score = (
        math.sqrt(SHARED) * rng.standard_normal(ROWS)
        + math.sqrt(own) * rng.standard_normal((methods, 1, ROWS))
        + math.sqrt(OF_MASKS) * rng.standard_normal((1, masks, ROWS))
        + math.sqrt(1 - SHARED - OF_MASKS - own) * rng.standard_normal((methods, masks, ROWS))
    )
    return score < norm.ppf(ACCURACY) + shift[..., None] / 100 / slope


def cell_of(correct, has_parts):
    """A cell of the table, from one method's runs: (masks, rows)."""
    values, masks = correct.mean(axis=1), np.arange(len(correct))
    part = part_of_units(ROWS)
    parts = [np.bincount(part, row, PARTS) / np.bincount(part, minlength=PARTS) for row in correct]
    runs = pl.DataFrame(
        {
            "value": values,
            "stderr": np.sqrt(values * (1 - values) / (ROWS - 1)),
            "seed": masks,
            "mask.seed": masks,
            "logs.seed": 0,
            "dataset": "simulated",
            "split": "test",
            "rows": ROWS,
            "policy": "policy",
            "log": "log",
            "parts": [list(map(float, some)) for some in parts] if has_parts else [None] * len(correct),
        }
    )
    std = float(values.std(ddof=1))
    return Cell(float(values.mean()), std, runs=len(values), repetitions=repetitions_of(runs))


def is_marked(cells):
    return any(cell.differs for cell in marked(cells, SHOWN, significance=True))


def is_marked_by_welch(cells):
    """Over seeds alone, against the best, with Holm's correction."""
    best, *others = sorted(cells, key=lambda cell: -cell.mean)
    tests = [
        ttest_ind_from_stats(best.mean, best.std, best.runs, cell.mean, cell.std, cell.runs, equal_var=False).pvalue
        for cell in others
    ]
    return min(tests) <= 0.05 / len(tests)


def rates(methods, masks, own, training, replications):
    """The share of rows with a †: with parts, without, and by Welch's test."""
    rng = np.random.default_rng([methods, masks, round(100 * own), round(10 * training)])
    counts = np.zeros(3)
    for _ in range(replications):
        correct = correct_rows(rng, methods, masks, own, training)
        paired = [cell_of(rows, has_parts=True) for rows in correct]
        unpaired = [cell_of(rows, has_parts=False) for rows in correct]
        counts += is_marked(paired), is_marked(unpaired), is_marked_by_welch(paired)
    return counts / replications


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="200 replications of a few settings")
    parser.add_argument("--write", help="page between whose marks the results are written")
    options = parser.parse_args()
    worlds, methods, repetitions = (WORLDS, METHODS, REPETITIONS)
    if options.quick:
        worlds, methods, repetitions, options.replications = (((0.0, 0.5), (0.15, 2.0)), (2, 8), (2, 5), 200)
    started = time.perf_counter()
    found = {}
    for own, training in worlds:
        for k, j in itertools.product(methods, repetitions):
            found[own, training, k, j] = rates(k, j, own, training, options.replications)
            print(
                f"own {own:g}, training {training:g}, {k} methods, {j} masks:", *found[own, training, k, j], flush=True
            )
    lines = [*report_lines(found, worlds, methods, repetitions), ""]
    seconds = time.perf_counter() - started
    slack = {bound: 2 * math.sqrt(bound * (1 - bound) / options.replications) for bound in (LEAST, MOST)}
    lowest, highest = (some(rate[0] for rate in found.values()) for some in (min, max))
    unpaired = max(rate[1] for rate in found.values())
    promises = {
        f"with parts, at least {100 * LEAST:g} % of the rows have a † (lowest {100 * lowest:.1f})": lowest
        >= LEAST - slack[LEAST],
        f"with parts, at most {100 * MOST:g} % (highest {100 * highest:.1f})": highest <= MOST + slack[MOST],
        f"without parts, at most {100 * MOST:g} % (highest {100 * unpaired:.1f})": unpaired <= MOST + slack[MOST],
    }
    lines += [f"- {'holds' if holds else 'BROKEN'}: {words}" for words, holds in promises.items()]
    print("\n".join(lines), f"\n{seconds:.0f} s")
    if options.write:
        head = (
            f"Rows of {ROWS:,} scored rows, accuracy {100 * ACCURACY:g} %, {options.replications:,} replications: the "
            f"standard error of a rate of 5 % is {100 * math.sqrt(0.05 * 0.95 / options.replications):.1f}."
        )
        write(Path(options.write), [head, "", *lines])
    return 0 if all(promises.values()) else 1


def report_lines(found, worlds, methods, repetitions):
    """A row per world and number of methods, a column per number of masks."""
    head = ["own", "training", "methods", *(f"{masks} masks" for masks in repetitions)]
    yield "| " + " | ".join([*head, "without parts", "Welch over seeds"]) + " |"
    yield "| " + " | ".join(["---:"] * (len(head) + 2)) + " |"
    for (own, training), k in itertools.product(worlds, methods):
        some = [found[own, training, k, j] for j in repetitions]
        spans = [span([rate[i] for rate in some]) for i in (1, 2)]
        numbers = [f"{own:g}", f"{training:g}", f"{k}", *(f"{100 * rate[0]:.1f}" for rate in some), *spans]
        yield "| " + " | ".join(numbers) + " |"


def span(some):
    return f"{100 * min(some):.1f} to {100 * max(some):.1f}"


def write(page, lines):
    start, end = "<!-- measured:significance -->\n", "<!-- /measured -->"
    text = page.read_text()
    before, rest = text.split(start, 1)
    page.write_text(before + start + "\n" + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1])


if __name__ == "__main__":
    sys.exit(main())
