"""Whether numbers differ beyond noise: the noise of repetitions and of the scored rows, the test, and the marks."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from score_fixtures import logging, score

from s2bl_cli.contract.scores import Score
from s2bl_cli.reporting.differences import Difference, Repetitions, combination, difference, half_width, p_value
from s2bl_cli.reporting.quantities import quantity
from s2bl_cli.reporting.significance import cell_difference, marked
from s2bl_cli.reporting.table import Cell

Report = Callable[..., Any]


def _rows(ran: Any) -> list[list[str]]:
    assert ran.code == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in [lines[0], *lines[2:]]]


def _found(one: Repetitions | Cell, other: Repetitions | Cell) -> Difference:
    noises = [cell.noise if isinstance(cell, Cell) else cell for cell in (one, other)]
    assert noises[0] is not None
    assert noises[1] is not None
    found = difference(noises[0], noises[1])
    assert found is not None
    return found


def _repeated(values: list[float], units: tuple[int, ...] = (), **fields: Any) -> Repetitions:
    array = np.array(values)
    variance = float(array.var(ddof=1)) / len(array) if len(array) > 1 else None
    names = units or tuple(range(len(array)))
    return Repetitions(float(array.mean()), variance, len(array) - 1, units=names, values=array, **fields)


# --- the test ---


@pytest.mark.parametrize(
    ("t", "degrees", "p"),
    [(12.7062, 1, 0.05), (4.30265, 2, 0.05), (2.22814, 10, 0.05), (3.16927, 10, 0.01), (1.0, 1, 0.5), (0.0, 5, 1.0)],
)
def test_students_t_against_its_table(t: float, degrees: int, p: float) -> None:
    """The variance 1 over repetitions, and none over rows."""
    assert p_value(Difference(t, 1.0, degrees, 0.0, math.inf, False)) == pytest.approx(p, rel=1e-4)


def test_welch_by_hand() -> None:
    """Means 10 apart, stds 3 and 4 of 9 and 16 seeds: variances of the means 1 and 1, t = 10/√2 = 7.0711, degrees
    (1 + 1)²/(1/8 + 1/15) = 20.87; there t = 2.0805 has p = 0.05. scipy's own test agrees."""
    one, other = Cell(0.0, 3.0, runs=9), Cell(10.0, 4.0, runs=16)
    by_scipy = stats.ttest_ind_from_stats(0, 3, 9, 10, 4, 16, equal_var=False).pvalue
    assert p_value(_found(one, other)) == pytest.approx(by_scipy)
    assert p_value(_found(one, Cell(2.0805 * math.sqrt(2), 4.0, runs=16))) == pytest.approx(0.05, rel=1e-3)


def test_two_single_runs_are_two_proportions() -> None:
    """0.5 and 0.6 of 1,000 rows: standard errors √(0.25/1000) and √(0.24/1000), z = 0.1/√(0.00049) = 4.5175."""
    one, other = Cell(0.5, stderr=math.sqrt(0.25 / 1000)), Cell(0.6, stderr=math.sqrt(0.24 / 1000))
    assert p_value(_found(one, other)) == pytest.approx(math.erfc(4.517540 / math.sqrt(2)), rel=1e-4)


def test_cells_without_noise_or_number() -> None:
    assert cell_difference(Cell(0.5), Cell(0.6, stderr=0.1)) is None
    assert cell_difference(Cell(), Cell(0.6, stderr=0.1)) is None
    assert p_value(_found(Cell(0.5, 0.0, runs=3), Cell(0.5, 0.0, runs=3))) == 1.0
    assert p_value(_found(Cell(0.5, 0.0, runs=3), Cell(0.6, 0.0, runs=3))) == 0.0


@pytest.mark.parametrize(
    ("among", "degrees", "q"), [(3, 10, 3.877), (5, 20, 4.232), (8, 4, 7.346), (3, math.inf, 3.314)]
)
def test_range_of_several_means_against_its_table(among: int, degrees: float, q: float) -> None:
    """The studentised range at 5 % is that many deviations of a mean, and 1/√2 as many of a difference."""
    found = Difference(q / math.sqrt(2), 1.0, degrees, 0.0, math.inf, False)
    if math.isinf(degrees):
        found = Difference(q / math.sqrt(2), 0.0, math.inf, 1.0, degrees, False)
    assert p_value(found, among) == pytest.approx(0.05, rel=2e-3)


def test_interval_has_the_quantile_of_students_t_and_of_the_normal_distribution() -> None:
    assert half_width(Difference(3.0, 4.0, 5, 0.0, math.inf, False), 0.95) == pytest.approx(2 * 2.570582, rel=1e-5)
    assert half_width(Difference(3.0, 0.0, math.inf, 4.0, math.inf, False), 0.9) == pytest.approx(
        2 * 1.644854, rel=1e-5
    )


def test_two_kinds_of_noise_need_more_than_either_alone() -> None:
    """Variances 1 with 2 degrees of freedom and 1 with none: beyond √2 normal and within √2 Student deviations."""
    both = half_width(Difference(0.0, 1.0, 2, 1.0, math.inf, False), 0.95)
    assert math.sqrt(2) * 1.96 < 4.303 < both < math.sqrt(2) * 4.303


# --- the noise of a difference ---


def test_repetitions_that_both_have_are_paired() -> None:
    """Masks move both methods alike: the differences 1, 2, 3 have the variance 1, over 3; each alone has 100 or so."""
    one, other = _repeated([11.0, 22.0, 33.0]), _repeated([10.0, 20.0, 30.0])
    found = _found(one, other)
    assert (found.value, found.repeated, found.repeated_degrees) == pytest.approx((2.0, 1 / 3, 2))
    strangers = _found(one, _repeated([10.0, 20.0, 30.0], units=(4, 5, 6)))
    assert strangers.repeated == pytest.approx((121 + 100) / 3)


def test_noise_of_rows_from_their_parts_by_hand() -> None:
    """Differences 1 2 3 and 3 4 8 of two masks in three parts. Means of the masks 2 and 5: variance 4.5, over 2. Means
    of the parts 2, 3 and 5.5: variance 3.25, over 3. What is left has the squares 0.25, 0.25, 1 twice, over
    (2 − 1)(3 − 1)·2·3 = 12: 0.25 of the latter is noise of masks, which is counted already."""
    one = _repeated([2.0, 5.0], parts=np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 8.0]]) + 7)
    found = _found(one, _repeated([0.0, 0.0], parts=np.full((2, 3), 7.0)))
    assert (found.repeated, found.repeated_degrees) == (2.25, 1)
    assert (found.rows, found.rows_degrees) == pytest.approx((3.25 / 3 - 0.25, 2))
    assert found.is_paired


def test_parts_of_other_rows_are_not_paired() -> None:
    parts = np.random.default_rng(0).random((1, 20))
    one = Repetitions(0.7, stderr=0.03, parts=parts, rows="a")
    same, other = (Repetitions(0.6, stderr=0.04, parts=parts, rows=rows) for rows in ("a", "b"))
    assert (_found(one, same).rows, _found(one, same).is_paired) == (0.0, True)
    assert (_found(one, other).rows, _found(one, other).is_paired) == (pytest.approx(0.05**2), False)


def test_gain_that_evaluate_has_computed_is_paired() -> None:
    one = Repetitions(0.7, stderr=0.03, policies=frozenset({"new"}), gains={"old": 0.01})
    old, stranger = (Repetitions(0.6, stderr=0.04, policies=frozenset({name})) for name in ("old", "stranger"))
    for found in (_found(one, old), _found(old, one)):
        assert (found.rows, found.is_paired) == (pytest.approx(0.01**2), True)
    assert (_found(one, stranger).rows, _found(one, stranger).is_paired) == (pytest.approx(0.05**2), False)


def test_sums_of_means_have_the_squares_of_their_factors() -> None:
    found = combination([(1.0, Repetitions(0.7, stderr=0.03)), (-2.0, Repetitions(0.2, stderr=0.02))])
    assert found is not None
    assert (found.value, found.rows) == pytest.approx((0.3, 0.03**2 + 0.04**2))


# --- in a table ---


def _parts(values: list[float], method: str = "wce-s2bl", **changes: Any) -> list[Score]:
    return [
        score(value, method, metric="argmax-accuracy-parts", label=part, stderr=None, rows=50, **changes)
        for part, value in enumerate(values)
    ]


def test_tukey_is_stricter_among_more() -> None:
    """z = 2.1 has p = 0.036: marked alone. Among three the range of 3.314, which is z = 2.343, has 5 %."""
    best = Cell(0.0, stderr=0.0)

    def marks(*zs: float) -> list[bool]:
        cells = [best, *(Cell(-z, stderr=1.0) for z in zs)]
        return [cell.differs for cell in marked(cells, quantity("argmax-accuracy"), significance=True)]

    assert marks(2.1) == [False, True]
    assert marks(2.1, 1.88) == [False, False, False]
    assert marks(1.88, 2.33) == [False, False, False]
    assert marks(1.88, 2.36) == [False, False, True]


def test_significance_marks_the_table(report: Report) -> None:
    scores = [score(0.70, stderr=0.01), score(0.69, "tips", stderr=0.01), score(0.5, "kl-s2bl", stderr=0.01)]
    plain, ran = report(scores), report(scores, "--significance")
    assert _rows(ran)[1][3:6] == ["70.00", "50.00 †", "69.00"]
    assert "†" not in plain.stdout
    assert ran.stdout.endswith(
        "† differs significantly from the best in its row (Tukey's test, 5 % per row), given the noise of the scored "
        "rows. Single runs do not show the noise of training and masks.\n"
    )


def test_noise_of_the_scored_rows_stays_with_several_seeds(report: Report) -> None:
    """1 point apart, ± 0.1 over three seeds: beyond the noise of seeds, and within that of 1,000 rows."""
    values = {"wce-s2bl": (0.769, 0.770, 0.771), "tips": (0.758, 0.760, 0.762)}
    scores = [score(v, method, seed, stderr=0.0133) for method, some in values.items() for seed, v in enumerate(some)]
    assert _rows(report(scores, "--significance"))[1][3:5] == ["77.00 ± 0.10", "76.00 ± 0.20"]
    many_rows = [score(v, m, seed, stderr=0.0013) for m, some in values.items() for seed, v in enumerate(some)]
    ran = report(many_rows, "--significance")
    assert _rows(ran)[1][3:5] == ["**77.00 ± 0.10**", "76.00 ± 0.20 †"]
    assert "(Tukey's test, 5 % per row), given the noise of repetitions and of the scored rows.\n" in ran.stdout


def test_policies_that_are_right_in_the_same_rows_are_compared_part_by_part(report: Report) -> None:
    """1 point apart with standard errors of 1.3 points, but 1 ± 0.1 points in every part of the rows."""
    rng = np.random.default_rng(0)
    shared, own = 0.75 + 0.06 * rng.standard_normal(20), 0.001 * rng.standard_normal(20)
    scores = [score(0.76, stderr=0.0133), score(0.75, "tips", stderr=0.0133)]
    assert "†" not in report(scores, "--significance").stdout
    parts = [*_parts(list(shared + own + 0.01)), *_parts(list(shared), "tips")]
    assert _rows(report([*scores, *parts], "--significance", "--metric", "argmax-accuracy"))[1][3:5] == [
        "**76.00**",
        "75.00 †",
    ]


def test_seeds_on_one_mask_are_told(report: Report) -> None:
    def table(masks: tuple[int, ...], **more: Any) -> str:
        scores = [score(0.7 + 0.01 * i, seed=i, **{"mask.seed": mask}, **more) for i, mask in enumerate(masks)]
        text: str = report([*scores, logging(0.2)]).stdout
        return text

    assert "\n3 seeds on 1 mask: ± does not include the noise of the mask.\n" in table((0, 0, 0))
    assert "\n4 seeds on 2 masks: tests count the masks, not the seeds.\n" in table((0, 0, 1, 1))
    assert "mask" not in table((0, 1, 2)).replace("mask.seed", "")
    unmasked = [score(0.7 + 0.01 * i, seed=i, lr=0.1) for i in range(3)]
    assert "\n3 seeds on 1 log: ± does not include the noise of the log.\n" in report(unmasked).stdout
    version_1 = [score(0.7 + 0.01 * i, seed=i) for i in range(3)]  # which does not say
    assert "± does not" not in report(version_1).stdout


def test_repetitions_are_masks_and_not_seeds(report: Report) -> None:
    """Six seeds on each of two masks: differences of 7 and −2 points, so the mean of 2.5 is within noise. As 12
    independent seeds it would be beyond."""
    values = {"wce-s2bl": (0.77, 0.70), "tips": (0.70, 0.72)}
    scores = [
        score(v + 0.0001 * seed, method, seed, stderr=0.0001, **{"mask.seed": mask})
        for method, some in values.items()
        for mask, v in enumerate(some)
        for seed in range(6 * mask, 6 * mask + 6)
    ]
    assert "†" not in report(scores, "--significance").stdout
    apart = [score(v, m, seed, stderr=0.0001, **{"mask.seed": seed}) for m, v, seed in (("wce-s2bl", 0.74, 0),
             ("wce-s2bl", 0.7401, 1), ("tips", 0.71, 0), ("tips", 0.7101, 1))]  # fmt: skip
    assert "†" in report(apart, "--significance").stdout


def test_a_lucky_variance_of_two_repetitions_marks_nothing(report: Report) -> None:
    """Two repetitions of 70.0 and 70.01 against 69.0 and 69.01 look exact, but the other methods vary by points."""
    values = {"wce-s2bl": (0.70, 0.7001), "tips": (0.69, 0.6901), "kl-s2bl": (0.66, 0.71), "banditnet": (0.71, 0.65)}
    scores = [
        score(v, method, seed, stderr=0.0001, **{"mask.seed": seed})
        for method, some in values.items()
        for seed, v in enumerate(some)
    ]
    assert "†" not in report(scores, "--significance").stdout
