"""Mean and standard deviation of values that arrive in parts, against numpy's."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2bl_cli.running_moments import RunningMoments


def _moments(*parts: Any) -> RunningMoments:
    moments = RunningMoments()
    for part in parts:
        moments.add(np.asarray(part))
    return moments


@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(any),
    features=st.sampled_from([None, 1, 6]),
    offset=st.sampled_from([0.0, -5.0, 1e6]),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=150, deadline=None)
def test_moments_of_parts_are_numpys_of_the_whole(
    sizes: list[int], features: int | None, offset: float, dtype: str, seed: int
) -> None:
    """Numbers or rows of features, empty parts among them."""
    shape = () if features is None else (features,)
    values = (offset + np.random.default_rng(seed).standard_normal((sum(sizes), *shape))).astype(dtype)
    moments = _moments(*np.split(values, np.cumsum(sizes)[:-1]))
    exact = values.astype(np.float64)
    assert moments.count == len(values)
    assert np.shape(moments.mean) == np.shape(moments.std) == shape
    assert moments.mean == pytest.approx(exact.mean(axis=0), rel=1e-12, abs=1e-12)
    assert moments.std == pytest.approx(exact.std(axis=0), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("rows", [8191, 8192, 8193, 20_000])
def test_one_long_part_is_looked_at_in_slices(rows: int) -> None:
    """Of 8,192 rows: memory does not grow with the part either."""
    values = np.random.default_rng(0).standard_normal((rows, 2)) + np.linspace(0, 50, rows)[:, None]
    moments = _moments(values)
    assert moments.count == rows
    assert moments.mean == pytest.approx(values.mean(axis=0), rel=1e-12)
    assert moments.std == pytest.approx(values.std(axis=0), rel=1e-12)


def test_uint8_does_not_wrap() -> None:
    """The first row is the origin of the sums: in uint8, 0 − 255 would be 1."""
    context = np.array([[255, 7], [0, 7], [1, 7]], np.uint8)
    for moments in (_moments(context), _moments(context[:1], context[1:])):
        assert moments.mean == pytest.approx([256 / 3, 7], rel=1e-12)
        assert moments.std == pytest.approx([context[:, 0].std(), 0], rel=1e-12)


def test_float32_does_not_lose_digits() -> None:
    """2²⁴ + 1 is no float32: summed in it, the mean of many would be off."""
    values = np.full(30_000, 1000.1, np.float32)
    values[::2] = 999.9
    moments = _moments(values)
    assert moments.mean == pytest.approx(values.astype(np.float64).mean(), rel=1e-14)
    assert moments.std == pytest.approx(values.astype(np.float64).std(), rel=1e-10)


def test_moments_by_hand() -> None:
    """1, 2, 3, 6: mean 3, squared deviations 4 + 1 + 0 + 9 = 14, variance 14/4."""
    moments = _moments([1.0, 2.0], [3.0, 6.0])
    assert moments.mean == 3
    assert moments.std == pytest.approx(math.sqrt(14 / 4))


def test_one_value_and_none() -> None:
    assert (_moments([3.0]).mean, _moments([3.0]).std) == (3, 0)
    assert (_moments().count, _moments([]).mean, _moments([]).std) == (0, 0, 0)


def test_values_all_alike_have_no_deviation() -> None:
    """Exactly: rounding must not make a tiny one, or a square root of less than 0."""
    moments = _moments(np.full(1000, 0.1), np.full(77, 0.1))
    assert moments.std == 0
