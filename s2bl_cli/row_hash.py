"""Hashes of row numbers. A row has the same hash in every pass, in memory or streamed, and on every machine."""

import numpy as np
import numpy.typing as npt

GOLDEN = 0x9E3779B97F4A7C15


def mixed(key: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea & Flood 2014), a bijection of 64-bit words."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # arrays wrap around silently
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


def uniform_hash(numbers: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.float64]:
    """A pseudo-random number in [0, 1) per row number."""
    key = numbers.astype(np.uint64) + np.uint64(((seed + 1) * GOLDEN) % 2**64)
    return (mixed(key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
