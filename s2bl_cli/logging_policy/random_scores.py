"""The logging policy of the paper's KuaiRec experiment: random scores over the items a user has met.

Each pair (user, item) gets a score drawn uniformly from [0.001, 1]. Scores are normalised within the user's rewarded
and within the unrewarded items; the former have 0.7 of the probability, the latter 0.3. A user with items of
one sort only has all of it there.
"""

import numpy as np
import numpy.typing as npt

from s2bl_cli.datasets.interactions import Interactions

REWARDED_SHARE = 0.7
_LOWEST_SCORE = 0.001


def pair_probabilities(pairs: Interactions, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """π₀ of each pair's item given its user: (pairs,), summing to 1 over each user."""
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
    """`draws` pairs a user, independently: (users · draws,), user by user."""
    cumulated = np.cumsum(probability, dtype=np.float64)
    before = np.concatenate([[0.0], cumulated])[pairs.start[:-1]]  # (users,)
    total = cumulated[pairs.start[1:] - 1] - before
    level = (before + rng.random((draws, len(pairs.users))) * total).T.ravel()
    chosen = np.searchsorted(cumulated, level, side="right")
    last = np.repeat(pairs.start[1:] - 1, draws)
    first = np.repeat(pairs.start[:-1], draws)
    inside: npt.NDArray[np.int64] = np.clip(chosen, first, last)
    return inside
