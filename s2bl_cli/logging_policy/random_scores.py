"""The logging policy of the paper's KuaiRec experiment: random scores over the items that a user was shown.

Each (user, item) pair gets a score drawn uniformly from [0.001, 1]. Scores are normalised within the rewarded items of
each user and within the others. The rewarded items share a probability of 0.7, the others 0.3. If a user has only one
of the two kinds, its items share a probability of 1.
"""

import numpy as np
import numpy.typing as npt

from s2bl_cli.datasets.interactions import Interactions

REWARDED_SHARE = 0.7
_LOWEST_SCORE = 0.001


def pair_probabilities(pairs: Interactions, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """π₀ of the item of each pair, given the user: (pairs,). It sums to 1 for each user."""
    score = rng.uniform(_LOWEST_SCORE, 1.0, len(pairs.item))
    user = np.repeat(np.arange(len(pairs.users)), np.diff(pairs.start))
    group = 2 * user + pairs.rewarded  # even: the user's unrewarded items, odd: the rewarded ones
    sums = np.bincount(group, weights=score, minlength=2 * len(pairs.users))
    share = np.tile([1 - REWARDED_SHARE, REWARDED_SHARE], len(pairs.users)) * (sums > 0)
    share /= np.repeat(share.reshape(-1, 2).sum(axis=1), 2)
    probability: npt.NDArray[np.float32] = (score * share[group] / sums[group]).astype(np.float32)
    return probability


def draw_pairs(
    pairs: Interactions, probability: npt.NDArray[np.float32], draws: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw `draws` pairs per user independently: (users · draws,), ordered by user."""
    cumulative = np.cumsum(probability, dtype=np.float64)
    before = np.concatenate([[0.0], cumulative])[pairs.start[:-1]]  # (users,)
    total = cumulative[pairs.start[1:] - 1] - before
    level = (before + rng.random((draws, len(pairs.users))) * total).T.ravel()
    chosen = np.searchsorted(cumulative, level, side="right")
    last = np.repeat(pairs.start[1:] - 1, draws)
    first = np.repeat(pairs.start[:-1], draws)
    clipped: npt.NDArray[np.int64] = np.clip(chosen, first, last)  # rounding may step into another user's pairs
    return clipped
