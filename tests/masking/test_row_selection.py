"""Which rows keep their feedback: keys against plain integers, the threshold against a sort."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2bl_cli.masking.selection import NO_LIMIT, below, row_keys, threshold

MASK64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(key):
    """splitmix64's finaliser in Python's integers, which do not wrap by themselves."""
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & MASK64
    return key ^ (key >> 31)


def test_the_finaliser_is_splitmix64():
    """The reference generator's first output from seed 0 is mixed(golden): 0xE220A8397B1DCDAF."""
    assert mixed(GOLDEN) == 0xE220A8397B1DCDAF


@given(seed=st.integers(0, 2**32 - 1), first=st.integers(0, 2**40), count=st.integers(0, 20))
def test_keys_are_the_hash_of_seed_and_row(seed, first, count):
    """Pinned to plain arithmetic: another numpy or another machine must mask the same rows."""
    offset = mixed((seed + GOLDEN) & MASK64)
    expected = [mixed(((row + offset) * GOLDEN) & MASK64) for row in range(first, first + count)]
    assert row_keys(seed, first, count).tolist() == expected


@pytest.mark.filterwarnings("error")
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 50))
def test_keys_do_not_depend_on_the_batches(seed, cut):
    pieces = np.concatenate([row_keys(seed, 0, cut), row_keys(seed, cut, 50 - cut)])
    assert pieces.tolist() == row_keys(seed, 0, 50).tolist()


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_keys_are_distinct_and_uniform(seed):
    """200,000 keys in 256 bins of 781 on average: χ² has mean 255 and standard deviation 22.6; 6 of them allowed."""
    keys = row_keys(seed, 0, 200_000)
    assert len(np.unique(keys)) == len(keys)
    for shift in (56, 0):  # the top bits choose rows; the low ones break ties
        counts = np.bincount(((keys >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
        expected = len(keys) / 256
        assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * 22.6


def test_neighbouring_rows_and_seeds_are_unrelated():
    """The correlation of 100,000 pairs has standard deviation 0.0032; 5 of them allowed."""
    keys, other = row_keys(0, 0, 100_000) / 2.0**64, row_keys(1, 0, 100_000) / 2.0**64
    assert abs(np.corrcoef(keys[:-1], keys[1:])[0, 1]) < 0.016
    assert abs(np.corrcoef(keys, other)[0, 1]) < 0.016


# Keys that share their top 16 bits fall into one bin of the histogram: both ways of spreading are drawn.
spread = st.integers(0, 2**64 - 1)
crowded = st.builds(lambda bin_, low: (bin_ << 48) | low, st.integers(0, 3), st.integers(0, 200))
extreme = st.sampled_from([0, 1, 2**48 - 1, 2**48, 2**63, 2**64 - 2, 2**64 - 1])


@settings(max_examples=200, deadline=None)
@given(
    keys=st.lists(st.one_of(spread, crowded, extreme), unique=True, max_size=60),
    count=st.integers(0, 70),
    pieces=st.integers(1, 5),
)
def test_threshold_keeps_the_smallest_keys(keys, count, pieces):
    array = np.array(keys, dtype=np.uint64)
    limit = threshold(count, lambda: iter(np.array_split(array, pieces)))
    assert sorted(array[below(array, limit)].tolist()) == np.sort(array)[:count].tolist()


@given(keys=st.lists(spread, unique=True, min_size=1, max_size=40), data=st.data())
def test_threshold_is_just_above_the_last_key_kept(keys, data):
    array = np.array(keys, dtype=np.uint64)
    count = data.draw(st.integers(0, len(keys) - 1))
    limit = threshold(count, lambda: iter([array]))
    assert limit == (sorted(keys)[count - 1] + 1 if count else 0)


def test_every_row_is_equally_likely_to_be_kept():
    """Over 2,000 seeds each of 40 rows is one of the 10 kept 500 times on average; 5 deviations of √375 allowed."""
    times = np.zeros(40, dtype=int)
    for seed in range(2000):
        keys = row_keys(seed, 0, 40)
        times += keys <= np.sort(keys)[9]
    assert np.abs(times - 500).max() < 5 * 375**0.5


def test_threshold_without_any_keys():
    assert threshold(3, lambda: iter([])) == NO_LIMIT
    assert threshold(0, lambda: iter([])) == 0


def test_below_takes_every_key_at_no_limit_and_none_at_zero():
    keys = np.array([0, 1, 2**64 - 1], dtype=np.uint64)
    assert below(keys, NO_LIMIT).tolist() == [True, True, True]
    assert below(keys, 2**64 - 1).tolist() == [True, True, False]
    assert below(keys, 0).tolist() == [False, False, False]
