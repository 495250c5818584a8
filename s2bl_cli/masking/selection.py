"""Which rows keep their feedback: those with the smallest keys.

Every train row has a key, a bijective hash of (seed, row number): distinct, uniform, and the same
whatever else is asked. Keeping the n smallest keys gives exact counts, and nested choices: a smaller n
keeps a subset of what a larger n keeps, and masking twice equals masking once.

The n-th smallest key of a log of any length is found in two passes over the keys, which are computed again in each, by
a histogram, so that memory does not grow with the log.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from s2bl_cli.row_hash import GOLDEN, mixed

Keys = npt.NDArray[np.uint64]

_BINS = 1 << 16
_SHIFT = np.uint64(48)  # the bin of a key is its top 16 bits
NO_LIMIT = 1 << 64  # the threshold that every key is below


def row_keys(seed: int, first: int, count: int) -> Keys:
    """The keys of train rows first … first+count−1.

    Odd multiples and the mixing are bijections of 64-bit words, so no two rows of a log share a key.
    """
    key = np.arange(first, first + count, dtype=np.uint64)
    key += mixed(np.array([seed], dtype=np.uint64) + np.uint64(GOLDEN))[0]
    return mixed(key * np.uint64(GOLDEN))


def threshold(count: int, passes: Callable[[], Iterator[Keys]]) -> int:
    """The smallest t such that exactly `count` of the keys are below t (all of them if there are fewer).

    `passes()` yields the candidate keys in pieces, the same ones each time it is called.
    """
    if count == 0:
        return 0
    histogram = np.zeros(_BINS, dtype=np.int64)
    for keys in passes():
        histogram += np.bincount((keys >> _SHIFT).astype(np.int64), minlength=_BINS)
    below = np.cumsum(histogram)
    if below[-1] <= count:
        return NO_LIMIT
    edge = int(np.searchsorted(below, count))  # the bin that holds the count-th key
    before = int(below[edge - 1]) if edge else 0
    inside = np.sort(np.concatenate([keys[(keys >> _SHIFT) == np.uint64(edge)] for keys in passes()]))
    return int(inside[count - before - 1]) + 1


def below(keys: Keys, limit: int) -> npt.NDArray[np.bool_]:
    """Which keys are below a threshold (NO_LIMIT is beyond what a key can hold)."""
    if limit >= NO_LIMIT:
        return np.ones(len(keys), dtype=bool)
    return keys < np.uint64(limit)
