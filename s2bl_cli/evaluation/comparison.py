"""The baseline that policies are compared with: its estimates, the gains over it, and the verdict on a gain."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from s2bl_cli.contract.scores import Score
from s2bl_cli.contract.settings_text import decode_settings
from s2bl_cli.evaluation.candidates import Candidate
from s2bl_cli.metrics.estimate import Estimate, difference
from s2bl_cli.metrics.gains import BETTER, HEADLINES, SIMULTANEOUS, SINGLE, VERDICTS, baseline_words
from s2bl_cli.metrics.metric import VALUE, Metric
from s2bl_cli.metrics.sample import ScoredPolicy

_KEPT_BYTES = 256 << 20  # for the baseline's influence values; further estimates are recomputed for every policy


class Baseline:
    """`number`: how many policies are compared with it. `resampled`: whether intervals are bootstrapped."""

    def __init__(self, candidate: Candidate, policy: ScoredPolicy, number: int, *, resampled: bool) -> None:
        self.candidate, self.number = candidate, number
        self._policy, self._resampled = policy, resampled
        self._kept: dict[str, Estimate] = {}
        self._bytes = 0

    def keep(self, metric: Metric, estimate: Estimate) -> None:
        """Cache an estimate from the baseline's own scores. What the bootstrap needs does not fit in the cache."""
        size = 8 * estimate.rows
        if metric.group == VALUE and not self._resampled and self._bytes + size <= _KEPT_BYTES:
            self._kept[metric.name] = estimate.without_values()
            self._bytes += size

    def gains(self, metric: Metric, estimate: Estimate) -> Iterator[tuple[str, Estimate]]:
        """The gains, by name, of an estimate of another policy's value; none if the baseline has no such estimate."""
        own = self._estimate(metric) if metric.group == VALUE else None
        if own is None or own.influence is None or estimate.influence is None or own.rows != estimate.rows:
            return
        gain = replace(difference(estimate, own), note=f"over {baseline_words(self.candidate.name)}")
        yield metric.name + SINGLE, gain
        correction = "" if self.number == 1 else f"; {self.number} policies compared (Bonferroni)"
        corrected = replace(gain, comparisons=self.number, note=f"{gain.note}{correction}")
        yield metric.name + SIMULTANEOUS, corrected

    def _estimate(self, metric: Metric) -> Estimate | None:
        if metric.name in self._kept:
            return self._kept[metric.name]
        if not metric.is_measurable(self._policy):
            return None
        # A new copy, so that its intermediate results are not kept for all policies.
        return next(iter(metric.compute(replace(self._policy))), None)


def headline(by_metric: Mapping[str, Score]) -> str | None:
    """The estimator that represents the value, preferably one that has a gain."""
    names = [name for name in HEADLINES if name + SIMULTANEOUS in by_metric]
    names = names or [name for name in HEADLINES if name in by_metric]
    if names[:2] == ["ppi-dr", "dr"] and by_metric["ppi-dr"].rows == by_metric["dr"].rows:
        names = names[1:]  # if all rows have feedback, the two are the same
    return names[0] if names else None


def verdict_score(scores: list[Score]) -> Score | None:
    """Whether a policy is better than the baseline, from its scores; None if there is no gain with an interval."""
    by_metric = {score.metric: score for score in scores if score.label is None}
    gain = by_metric.get(f"{headline(by_metric)}{SIMULTANEOUS}")
    if gain is None or gain.low is None or gain.high is None:
        return None
    value = 1 if gain.low > 0 else -1 if gain.high < 0 else 0
    nothing: dict[str, Any] = dict.fromkeys(("stderr", "low", "high", "level", "interval"))
    return replace(gain, metric=BETTER, value=value, note=_words(gain, value), **nothing)


def _words(gain: Score, value: int) -> str:
    baseline = baseline_words(decode_settings(gain.settings, gain.policy)["baseline"])
    assert gain.low is not None
    assert gain.high is not None
    if value == 0:
        return f"{VERDICTS[0]} than {baseline} ({gain.value:.4f} [{gain.low:.4f}, {gain.high:.4f}])"
    low, high = sorted((abs(gain.low), abs(gain.high)))
    return f"{VERDICTS[value]} by {abs(gain.value):.4f} [{low:.4f}, {high:.4f}] than {baseline}"
