"""Hashes of row numbers: the same everywhere, and as good as random."""

import numpy as np
import pytest

from s2bl_cli.row_hash import GOLDEN, mixed, uniform_hash


def test_mixing_is_splitmix64s() -> None:
    """The first two outputs of its reference implementation, started at 0."""
    states = np.array([GOLDEN, 2 * GOLDEN % 2**64], np.uint64)
    assert [hex(word) for word in mixed(states).tolist()] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4"]


def test_hash_of_a_row_is_its_number_and_seed_alone() -> None:
    """A log split, sampled or held out today must be so tomorrow: the values are part of the contract."""
    numbers = np.array([0, 1, 10**12], np.int64)
    whole = uniform_hash(numbers, 0)
    assert whole[0] == (0xE220A8397B1DCDAF >> 11) / 2**53
    assert [uniform_hash(numbers[i : i + 1], 0)[0] for i in range(3)] == whole.tolist()
    assert not (whole == uniform_hash(numbers, 1)).any()


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_hashes_are_uniform(seed: int) -> None:
    """100,000 rows in 100 bins: χ² with 99 degrees of freedom exceeds 149 once in a thousand times."""
    hashes = uniform_hash(np.arange(100_000), seed)
    assert (hashes >= 0).all()
    assert (hashes < 1).all()
    counts = np.bincount((100 * hashes).astype(int), minlength=100)
    assert ((counts - 1000) ** 2 / 1000).sum() < 149
    assert abs(np.corrcoef(hashes[1:], hashes[:-1])[0, 1]) < 0.015  # five standard errors
