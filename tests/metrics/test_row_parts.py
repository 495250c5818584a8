"""Accuracies in random parts of the rows, and what they say of the difference of two policies."""

import numpy as np
import numpy.typing as npt
import pytest

from s2bl_cli.metrics.row_parts import METRICS, PARTS, part_of_units
from s2bl_cli.metrics.sample import CORRECT, LoggedSample, ScoredPolicy


def _scored(correct: npt.NDArray[np.bool_], cluster: npt.NDArray[np.int64] | None = None) -> ScoredPolicy:
    rows = len(correct)
    label = np.zeros(rows, np.int32)
    sample = LoggedSample(label, np.ones(rows), np.ones(rows), np.ones(rows, bool), label, 2, cluster=cluster)
    return ScoredPolicy(sample, {CORRECT.name: correct})


def _parts(correct: npt.NDArray[np.bool_], cluster: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.float64]:
    return np.array([part.value for part in METRICS["argmax-accuracy-parts"].compute(_scored(correct, cluster))])


def test_rows_of_a_cluster_are_in_one_part() -> None:
    """Ten equal rows per cluster say no more than one. Less than ten clusters per part say nothing."""
    correct = np.random.default_rng(0).random(1000) < 0.7
    cluster = np.repeat(np.arange(1000), 10)
    assert np.array_equal(_parts(np.repeat(correct, 10), cluster), _parts(correct))
    assert len(_parts(np.repeat(correct, 10)[:1990], cluster[:1990])) == 0


def test_parts_have_all_rows_once_and_about_equally_many() -> None:
    counts = np.bincount(part_of_units(10_000), minlength=PARTS)
    assert counts.sum() == 10_000
    assert 420 < counts.min() <= counts.max() < 580


def test_their_mean_by_rows_is_the_accuracy() -> None:
    correct = np.random.default_rng(0).random(1000) < 0.7
    estimates = list(METRICS["argmax-accuracy-parts"].compute(_scored(correct)))
    assert [estimate.label for estimate in estimates] == list(range(PARTS))
    assert sum(e.rows * e.value for e in estimates) / 1000 == pytest.approx(correct.mean())


def test_few_rows_have_no_parts() -> None:
    assert len(_parts(np.ones(10 * PARTS, bool))) == PARTS
    assert len(_parts(np.ones(10 * PARTS - 1, bool))) == 0


def test_parts_show_the_noise_of_a_difference_and_not_that_of_the_accuracies() -> None:
    """Two policies that are right in the same 65 % of the rows, and each alone in another 5 %: the standard error of
    the difference is √(0.1/n), and not the √(2·0.21/n) of independent policies. Over many draws of the rows, the mean
    of the estimated variance is the variance."""
    rng, rows = np.random.default_rng(1), 2000
    variances = []
    for _ in range(200):
        u = rng.random(rows)
        first, second = u < 0.70, (u < 0.65) | (u > 0.95)
        difference = _parts(first) - _parts(second)
        variances.append(difference.var(ddof=1) / PARTS)
    assert np.mean(variances) == pytest.approx(0.1 / rows, rel=0.1)
