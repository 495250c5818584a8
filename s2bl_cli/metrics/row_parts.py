"""Accuracies in random parts of the rows. `report` uses them to compare policies that are scored on the same rows.

    argmax-accuracy-parts       argmax accuracy in each of 20 parts of the rows
    sampled-accuracy-parts      sampled accuracy in each of them

If two policies are right in mostly the same rows, their difference has less noise than their standard errors suggest.
The two accuracies do not show how much less, but their differences in the parts do: the variance of the difference over
all rows is the variance between the parts, divided by their number (the method of random groups).

A row's part depends on its number among the scored rows, so it is the same for all policies. The rows of a cluster are
in one part, because they share their noise.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from s2bl_cli.metrics.estimate import Estimate
from s2bl_cli.metrics.metric import LABELS, PERCENT, Compute, Metric, by_name
from s2bl_cli.metrics.sample import CORRECT, SAMPLED, Column, ScoredPolicy
from s2bl_cli.row_hash import uniform_hash

PARTS = 20
SUFFIX = "-parts"  # of the accuracy's name
_LEAST_UNITS = 10 * PARTS  # parts of fewer than ten rows or clusters are not informative


@cache
def part_of_units(units: int) -> npt.NDArray[np.int64]:
    return (uniform_hash(np.arange(units), seed=0) * PARTS).astype(np.int64)


def _in_parts(column: Column) -> Compute:
    """The mean of a column in each part. Nothing is computed if there are few rows or clusters."""

    def compute(policy: ScoredPolicy) -> list[Estimate]:
        values, cluster = policy.values(column), policy.sample.cluster
        units = len(values) if cluster is None else int(cluster.max()) + 1
        if units < _LEAST_UNITS:
            return []
        part = part_of_units(units)[slice(None) if cluster is None else cluster]
        counts = np.bincount(part, minlength=PARTS)
        means = np.bincount(part, values, minlength=PARTS) / counts
        return [Estimate(float(means[i]), int(counts[i]), label=i) for i in range(PARTS)]

    return compute


def _metric(name: str, title: str, column: Column) -> Metric:
    return Metric(name + SUFFIX, title, PERCENT, "high", LABELS, _in_parts(column), needs=(column,), by="part")


METRICS = by_name(
    _metric("argmax-accuracy", "Argmax accuracy by part of the rows", CORRECT),
    _metric("sampled-accuracy", "Sampled accuracy by part of the rows", SAMPLED),
)
