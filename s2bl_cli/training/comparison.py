"""The comparison of `--method auto`: which candidate is best, and by how much it is better than the logging policy.

Every candidate is trained once per fold, and predicts on the known rows that the fold holds out. On these rows

    value    mean of Σ_a π(a|x) q̂(x, a) + w (r − q̂(x, a)), w = π(a|x)/max(ν, p): doubly robust, with the reward model q̂
             of the candidate that predicts best
    gain     value − mean r, which is the value of the logging policy; paired, because both have the same rows
    loss     mean (q̂(x, a) − r)² of the candidate's own reward model, if it has one

Values are noisy. Losses are less noisy, but a model that predicts the logged actions well need not rank all actions
well. So the value comes first. Among the candidates that are not significantly worse than the best value (within two
standard errors of the paired difference), the loss decides. A candidate without a reward model is chosen only if none
of these has one.

The candidate was chosen for its high estimate, so that estimate is biased upward. The reported gain is cross-validated:
for every fold, the choice is made again without the values of the fold's rows, and these rows estimate its gain.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from s2bl_cli.metrics.estimate import (
    Clusters,
    Estimate,
    IntervalSettings,
    Terms,
    difference,
    intervals,
)

LOGGING = -1  # the number of the logging policy
LOGGING_NAME = "logging policy"
_NEAR = 2.0  # standard errors

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.bool_]


class Candidate(NamedTuple):
    """A candidate's predictions on known rows that it was not trained on."""

    name: str
    scores: Floats  # (rows,), their mean is the value
    loss: Floats | None = None  # (folds,) of its reward model; None without one
    settings: Mapping[str, Any] = {}  # as recorded, to train it alone


@dataclass(frozen=True)
class Comparison:
    """Candidates scored on the same rows."""

    candidates: Sequence[Candidate]
    reward: Floats  # (rows,)
    weight: Floats  # (rows,) 1/P̂(known|x, a), or 1
    fold: npt.NDArray[np.int64]  # (rows,)
    cluster: Clusters | None = None  # (rows,)

    def choose(self) -> int:
        """The number of the best candidate, or LOGGING if no value is higher than the logging policy's."""
        best = self._best(np.ones(len(self.reward), bool))
        return best if self.value(best).value > self.value(LOGGING).value else LOGGING

    def _best(self, rows: Rows) -> int:
        """By the values on these rows, and the losses in all folds. The losses are not about the values, so those of
        the other rows do not bias the value there; and the choice is more stable. Candidates that are not better than
        the logging policy count only if none is."""
        values = {number: self._mean(candidate.scores, rows) for number, candidate in enumerate(self.candidates)}
        logging = self._mean(self.reward, rows).value
        values = {number: value for number, value in values.items() if value.value > logging} or values
        best = max(values, key=lambda number: values[number].value)
        gaps = {number: difference(values[best], value) for number, value in values.items()}
        near = [number for number, gap in gaps.items() if gap.value <= _NEAR * (gap.stderr or 0.0)]
        losses = {number: loss.mean() for number in near if (loss := self.candidates[number].loss) is not None}
        return min(losses, key=lambda number: losses[number]) if losses else best

    def value(self, number: int) -> Estimate:
        return self._mean(self._scores(number))

    @cached_property
    def gain(self) -> Estimate:
        """The gain of the choice over the logging policy, on rows whose values were not used to make the choice."""
        scores = self.reward.copy()
        for fold in np.unique(self.fold) if self.choose() != LOGGING else ():
            inside = self.fold == fold
            scores[inside] = self._scores(self._best(~inside))[inside]
        return self._mean(scores - self.reward)

    def _scores(self, number: int) -> Floats:
        return self.reward if number == LOGGING else self.candidates[number].scores

    def _mean(self, scores: Floats, rows: Rows | slice = slice(None)) -> Estimate:
        weight = self.weight[rows]
        terms = Terms([weight * scores[rows], weight], lambda total, weights: total / weights)
        cluster = None if self.cluster is None else np.unique(self.cluster[rows], return_inverse=True)[1].reshape(-1)
        return replace(terms.estimate, cluster=cluster)


class Choice(NamedTuple):
    """The outcome of a comparison, for people and for --json."""

    chosen: str
    comparison: list[dict[str, Any]]  # candidate, value, stderr, low, high; the best value first
    gain: float
    gain_low: float
    gain_high: float
    rows: int
    settings: Mapping[str, Mapping[str, Any]]  # by candidate
    is_reliable: bool = True  # False if it seems that feedback is missing selectively

    @classmethod
    def of(cls, comparison: Comparison, chosen: int, *, is_reliable: bool = True) -> "Choice":
        numbers = [*range(len(comparison.candidates)), LOGGING]
        names = [*(candidate.name for candidate in comparison.candidates), LOGGING_NAME]
        estimates = [comparison.value(number) for number in numbers]
        rows: list[dict[str, Any]] = [
            {
                "candidate": name,
                "value": estimate.value,
                "stderr": estimate.stderr,
                **dict(zip(("low", "high"), _ends(estimate), strict=True)),
            }
            for name, estimate in zip(names, estimates, strict=True)
        ]
        rows.sort(key=lambda row: -row["value"])
        settings = {candidate.name: candidate.settings for candidate in comparison.candidates}
        gain = comparison.gain
        return cls(names[chosen], rows, gain.value, *_ends(gain), len(comparison.reward), settings, is_reliable)

    @property
    def facts(self) -> dict[str, Any]:
        """For --json."""
        names = ("chosen", "comparison", "gain", "gain_low", "gain_high", "is_reliable")
        return {name: value for name, value in self._asdict().items() if name in names}

    @property
    def table(self) -> list[str]:
        """The best candidate of every method, and the logging policy."""
        best: dict[str, dict[str, Any]] = {}
        for row in self.comparison:
            best.setdefault(_method(row["candidate"]), row)
        best[_method(self.chosen)] = next(row for row in self.comparison if row["candidate"] == self.chosen)
        width = max(len(row["candidate"]) for row in best.values())
        return [
            f"{'candidate':{width}}  estimated value",
            *(
                f"{row['candidate']:{width}}  {_interval(row['value'], row['low'], row['high'])}"
                + ("  chosen" if row["candidate"] == self.chosen else "")
                for row in sorted(best.values(), key=lambda row: -row["value"])
            ),
        ]

    @property
    def conclusion(self) -> str:
        if self.chosen == LOGGING_NAME:
            return "nothing was shown to beat the logging policy, so the policy is a copy of it"
        gain = _interval(self.gain, self.gain_low, self.gain_high)
        if self.gain_low > 0:
            reservation = "" if self.is_reliable else "; unreliable: feedback seems to be missing selectively"
            return f"estimated to be better than the logging policy by {gain}{reservation}"
        return f"not shown to be better than the logging policy (estimated gain {gain})"


def _method(name: str) -> str:
    return name.partition(" (")[0]


def _interval(value: float, low: float, high: float) -> str:
    """With four digits, or more if the interval is narrow."""
    ratio = abs(value) / (high - low) if high > low and math.isfinite(value) else 0.0
    digits = min(15, max(4, math.ceil(math.log10(max(ratio, 1.0))) + 2))
    return f"{value:.{digits}g} [{low:.{digits}g}, {high:.{digits}g}]"


def _ends(estimate: Estimate) -> tuple[float, float]:
    (interval,) = intervals([estimate], IntervalSettings())
    return math.nan if interval.low is None else interval.low, math.nan if interval.high is None else interval.high
