"""Which rows keep their feedback: those with the smallest keys.

Every train row has a key, a bijective hash of (seed, row number). Keys are distinct and uniform, and do not depend on
other settings. Keeping the rows with the n smallest keys gives exact counts and nested selections: a smaller n keeps a
subset of what a larger n keeps, and masking twice equals masking once.

The n-th smallest key is computed with a histogram, in two passes over the keys, so memory does not grow with the log.
The keys are recomputed in each pass.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from s2bl_cli.row_hash import GOLDEN, mixed

Keys = npt.NDArray[np.uint64]

_BINS = 1 << 16
_SHIFT = np.uint64(48)  # the bin of a key is its top 16 bits
NO_LIMIT = 1 << 64  # a threshold above every key


def row_keys(seed: int, first: int, count: int) -> Keys:
    """The keys of train rows first … first+count−1.

    Odd multiples and the mixing are bijections of 64-bit words, so the keys of a log's rows are distinct.
    """
    key = np.arange(first, first + count, dtype=np.uint64)
    key += mixed(np.array([seed], dtype=np.uint64) + np.uint64(GOLDEN))[0]
    return mixed(key * np.uint64(GOLDEN))


def threshold(count: int, passes: Callable[[], Iterator[Keys]]) -> int:
    """The smallest t such that exactly `count` keys are below t (all keys, if there are fewer).

    `passes()` yields the candidate keys batch by batch, the same keys at each call.
    """
    if count == 0:
        return 0
    histogram = np.zeros(_BINS, dtype=np.int64)
    for keys in passes():
        histogram += np.bincount((keys >> _SHIFT).astype(np.int64), minlength=_BINS)
    below = np.cumsum(histogram)
    if below[-1] <= count:
        return NO_LIMIT
    edge = int(np.searchsorted(below, count))  # the bin of the count-th key
    before = int(below[edge - 1]) if edge else 0
    inside = np.sort(np.concatenate([keys[(keys >> _SHIFT) == np.uint64(edge)] for keys in passes()]))
    return int(inside[count - before - 1]) + 1


def below(keys: Keys, limit: int) -> npt.NDArray[np.bool_]:
    """Which keys are below a threshold (NO_LIMIT does not fit into a key)."""
    if limit >= NO_LIMIT:
        return np.ones(len(keys), dtype=bool)
    return keys < np.uint64(limit)
