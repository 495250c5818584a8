"""Whether feedback is missing at random: a test of whether context and action predict which rows have it.

Let kᵢ = 1 if the feedback of row i is known. The test compares sums over rows of (kᵢ − k̄)·f(xᵢ), for many features f,
with the same sums for shuffled k. If k is independent of context and action, all shuffles are equally likely. The
probability of a false alarm is therefore the level, for any number of features and known rows. Rows of a cluster depend
on each other, so with clusters each cluster gets a random sign instead of a shuffle, which is valid for many clusters.

A model P̂(known | x, a) is tested in the same way: its residuals k − P̂ replace k − k̄, and each row gets a random sign.
Fitting makes such sums smaller than random signs do, so the test is conservative.

There are four groups of features: the constant 1, the standardised context x, |x|, and max(0, B x + b) with random B
and b, decorrelated. A statistic is the sum of the squared sums of a group. Statistics over all rows detect dependence
on the context, and statistics over the rows of each action detect dependence on the action, alone or together with the
context. The largest statistic, standardised by the shuffles, is compared with the largest one of every shuffle, which
accounts for the number of statistics.

Source: testing independence by shuffling sums of kernel features, Gretton et al. 2008.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.metrics.estimate import Clusters
from s2bl_cli.metrics.sample import Mask
from s2bl_cli.running_moments import RunningMoments

_SHUFFLES = 199
_LEVEL = 0.01
_HIDDEN = 64  # random features
_WIDTH = 128  # wider contexts are projected onto this many random directions
_ACTIONS = 32  # the most frequent ones; all others count as one action
_LARGEST = 3.0  # limit for a standardised feature: a few extreme rows must not decide
_LEAST_VARIANCE = 0.01  # of a decorrelated random feature, relative to the mean
_ROUNDING = 1e-6  # smaller statistics, relative to the variance of k times the mean square of the features, are 0
_ROWS_AT_ONCE = 2048

Floats = npt.NDArray[np.float32]
Contexts = npt.NDArray[Any]  # (rows, *shape)
Actions = npt.NDArray[np.integer[Any]]


def dependence(
    context: Contexts,
    action: Actions,
    known: Mask,
    cluster: Clusters | None = None,
    seed: int = 0,
    probability: Floats | None = None,
) -> str | None:
    """A warning if the test rejects at 1 %. Takes rows with and without feedback. `probability`: P̂(known | x, a) of a
    model that is tested, cross-fitted."""
    if known.all() or not known.any():
        return None
    rng = np.random.default_rng([seed, 4])
    features = _Features(context, rng)
    deviations = _shuffled(known, cluster, probability, rng)  # (1 + shuffles, rows)
    group = _groups_of_actions(action)
    counts = np.bincount(group)
    sums = np.zeros((len(counts), len(deviations), features.count))  # of (k − k̄)·f
    totals, squares = np.zeros(features.count), np.zeros(features.count)
    for number in range(len(counts)):
        rows = np.flatnonzero(group == number)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            f = features(context[part])
            sums[number] += deviations[:, part] @ f
            totals += f.sum(axis=0)
            squares += np.square(f).sum(axis=0)
    sums[..., 1:] -= sums[..., :1] * (totals / len(known))[1:]  # centre the features; the first is the constant
    over_all = sums.sum(axis=0) ** 2 / len(known)
    by_action = (sums**2 / counts[:, None, None]).sum(axis=0)
    of_context, of_both = (np.add.reduceat(s, features.starts, axis=1) for s in (over_all, by_action))
    statistics = np.hstack([of_context[:, 1:], of_both])  # the constant's sum over all rows is 0
    # With one action or a constant context, statistics are 0 but for rounding, which depends on the order of the rows.
    floor = _ROUNDING * float(deviations[0].var()) * np.add.reduceat(squares / len(known), features.starts)
    statistics[statistics < np.hstack([floor[1:], floor])] = 0
    roots = np.cbrt(statistics)  # nearly normal, so that few and many features are comparable (Wilson & Hilferty 1931)
    std = roots.std(axis=0)
    scores = np.divide(roots - roots.mean(axis=0), std, out=np.zeros_like(roots), where=std > 0)
    largest = scores.max(axis=1)
    if (largest >= largest[0]).mean() > _LEVEL:
        return None
    value, *shuffled = statistics[:, scores[0].argmax()]
    times = f"test statistic {value / np.mean(shuffled):,.1f} times that of"
    if probability is None:
        return f"which rows have feedback depends on context or action ({times} shuffled rows, p ≤ {_LEVEL:g})"
    return f"the model of missingness does not predict which rows have feedback ({times} random signs, p ≤ {_LEVEL:g})"


def _shuffled(known: Mask, cluster: Clusters | None, probability: Floats | None, rng: np.random.Generator) -> Floats:
    """k − k̄, or k − P̂ of a model, and its shuffles: (1 + shuffles, rows)."""
    deviation = (known - (known.mean() if probability is None else probability)).astype(np.float32)
    if cluster is None and probability is None:
        return np.stack([deviation, *(rng.permutation(deviation) for _ in range(_SHUFFLES))])
    units = np.arange(len(known)) if cluster is None else cluster
    signs = rng.integers(0, 2, (_SHUFFLES, int(units.max()) + 1), np.int8) * 2 - 1
    return np.vstack([deviation[None], signs[:, units] * deviation])


def _groups_of_actions(action: Actions) -> npt.NDArray[np.int64]:
    """A number from 0 for each of the most frequent actions, and one for all others."""
    _, place, counts = np.unique(action, return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.minimum(rank, _ACTIONS)[place]


class _Features:
    """Features of the context, (rows, features), in groups that begin at `starts`."""

    def __init__(self, context: Contexts, rng: np.random.Generator) -> None:
        x = context.reshape(len(context), -1)
        moments = RunningMoments()
        moments.add(x)
        std = np.asarray(moments.std)
        self._shift = np.asarray(moments.mean, np.float32)
        scale = np.divide(1, std, out=np.zeros_like(std), where=std > 0)
        self._scale = np.minimum(scale, np.finfo(np.float32).max).astype(np.float32)
        width = x.shape[1]

        def directions(count: int) -> Floats:
            drawn: Floats = (rng.standard_normal((width, count)) / np.sqrt(max(width, 1))).astype(np.float32)
            return drawn

        self._hidden, self._bias = directions(_HIDDEN), (0.5 * rng.standard_normal(_HIDDEN)).astype(np.float32)
        self._projection = directions(_WIDTH) if width > _WIDTH else None
        self._decorrelation = np.eye(_HIDDEN, dtype=np.float32)
        some = context[:: -(-len(context) // _ROWS_AT_ONCE)]
        variance, axes = np.linalg.eigh(np.cov(self(some)[:, -_HIDDEN:], rowvar=False))
        floor = max(_LEAST_VARIANCE * float(variance.mean()), 1e-30)
        self._decorrelation = (axes / np.sqrt(np.maximum(variance, 0) + floor)).astype(np.float32)
        linear = min(width, _WIDTH)
        self.starts, self.count = (0, 1, 1 + linear, 1 + 2 * linear), 1 + 2 * linear + _HIDDEN

    def __call__(self, context: Contexts) -> Floats:
        x = (context.reshape(len(context), -1) - self._shift) * self._scale
        np.clip(x, -_LARGEST, _LARGEST, out=x)
        hidden = np.maximum(x @ self._hidden + self._bias, 0) @ self._decorrelation
        linear, absolute = x, np.abs(x)
        if self._projection is not None:
            linear, absolute = linear @ self._projection, absolute @ self._projection
        return np.hstack([np.ones((len(x), 1), np.float32), linear, absolute, hidden])
