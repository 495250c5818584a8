"""From what a pass found to the rows of a scores file."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.scores import BIN, Score
from s2bl_cli.evaluation import divergences
from s2bl_cli.evaluation.balance import misfit
from s2bl_cli.evaluation.bounds import estimator_error_bound, kl_terms, risk_bound
from s2bl_cli.evaluation.candidates import Candidate
from s2bl_cli.evaluation.estimators.estimator import Estimator, Floats, KnownRows, Terms
from s2bl_cli.evaluation.estimators.ppi_dr import doubly_robust_outcome, prediction_powered
from s2bl_cli.evaluation.health import WEIGHT_EDGES, Health, health, weight_shares
from s2bl_cli.evaluation.intervals import (
    BOOTSTRAP,
    NORMAL,
    Estimate,
    IntervalSettings,
    completed,
    estimates,
    normal_quantile,
)
from s2bl_cli.evaluation.metrics.metric import Metric
from s2bl_cli.evaluation.row_pass import PassResult, PolicyRows
from s2bl_cli.evaluation.selection import SelectedRows
from s2bl_cli.evaluation.settings import GROUPS
from s2bl_cli.registry import ESTIMATORS, LABEL_METRICS, METRICS
from s2bl_cli.running_moments import RunningMoments

PPI = "ppi-dr"


@dataclass(frozen=True)
class Scorer:
    """What the scores of all policies on one log share."""

    log: Log
    rows: SelectedRows
    found: PassResult
    wanted: tuple[str, ...]
    interval: IntervalSettings
    nu: float

    def scores(self, candidate: Candidate, one: PolicyRows, concerns: tuple[str, ...] = ()) -> list[Score]:
        """In the registry's order. `concerns` are what speaks against trusting values from the log."""
        facts = candidate.facts(self.log)
        measured: dict[str, list[tuple[int | None, Estimate]]] = {}
        for name, label, estimate in self._measured(one, concerns):
            if name in self.wanted and math.isfinite(estimate.value):
                measured.setdefault(name, []).append((label, estimate))
        return [
            self._score(facts, name, label, estimate)
            for name in METRICS.names
            for label, estimate in measured.get(name, [])
        ]

    def _score(self, facts: dict[str, Any], metric: str, label: int | None, estimate: Estimate) -> Score:
        return Score(
            **facts,
            log=self.log.base_name,
            log_sha256=self.log.sha256,
            split=self.rows.split,
            metric=metric,
            label=label,
            value=estimate.value,
            stderr=estimate.stderr,
            low=estimate.low,
            high=estimate.high,
            level=None if estimate.interval in (None, BIN) else self.interval.level,
            interval=estimate.interval,
            rows=estimate.rows,
            note=estimate.note,
        )

    def _measured(self, one: PolicyRows, concerns: tuple[str, ...]) -> Iterator[tuple[str, int | None, Estimate]]:
        yield from self._labelled(one)
        asked = {group for group, names in GROUPS.items() if not set(self.wanted).isdisjoint(names)}
        measured: list[Iterator[tuple[str, Estimate]]] = []
        if self.rows.known.any():
            measured += [self._values(one)] if "value" in asked else []
            measured += [self._health(one, concerns)] if "health" in asked else []
            yield from self._histogram(one) if "weight-share" in self.wanted else ()
        measured += [self._divergences(one)] if asked & {"divergence", "bound"} else []
        for named in measured:
            for name, estimate in named:
                yield name, None, estimate

    # --- with labels ---

    def _labelled(self, one: PolicyRows) -> Iterator[tuple[str, int | None, Estimate]]:
        for name, mean in one.label_means.items():
            metric: Metric = LABEL_METRICS.load(name)
            if not metric.as_cost:
                yield name, None, self._of_mean(mean)
            elif (costs := label_costs(self.rows)) is not None:
                right, wrong = costs
                note = f"cost {right:g} for the label, {wrong:g} for other actions"
                yield name, None, _affine(self._of_mean(mean), right - wrong, wrong, note)
        for label, count, value, error in one.classes.means():
            yield "class-accuracy", label, self._normal(value, error, count)

    def _of_mean(self, mean: RunningMoments) -> Estimate:
        return self._normal(float(mean.mean), mean.standard_error, mean.count)

    def _normal(self, value: float, error: float | None, rows: int) -> Estimate:
        if error is None:
            return Estimate(value, None, None, None, None, rows)
        half = normal_quantile(self.interval.level) * error
        return Estimate(value, error, value - half, value + half, NORMAL, rows)

    # --- from the log ---

    def _known_rows(self, one: PolicyRows) -> KnownRows:
        return self._rows(one, self.rows.reward, self.rows.known)

    def _rows(self, one: PolicyRows, reward: Floats, chosen: npt.NDArray[np.bool_]) -> KnownRows:
        """Some of the rows, with these rewards for all of them."""
        has_model = one.f is not None and self.found.q is not None
        return KnownRows(
            r=reward[chosen],
            p=self.rows.p[chosen],
            pi=one.pi[chosen].astype(np.float64),
            q=-self.found.q[chosen].astype(np.float64) if has_model and self.found.q is not None else None,
            f=-one.f[chosen].astype(np.float64) if has_model and one.f is not None else None,
            nu=self.nu,
        )

    def _values(self, one: PolicyRows) -> Iterator[tuple[str, Estimate]]:
        terms = self._value_terms(one)
        # The bootstrap draws once for all; other intervals need no more than one estimator's terms in memory.
        together = [list(terms)] if self.interval.kind == BOOTSTRAP else ([named] for named in terms)
        for named in together:
            for (name, _), estimate in zip(named, estimates([own for _, own in named], self.interval), strict=True):
                if estimate is not None:
                    yield name, estimate

    def _value_terms(self, one: PolicyRows) -> Iterator[tuple[str, Terms]]:
        rows = self._known_rows(one)
        whole = self._predicted_rows(one)
        predicted = None if whole is None else replace(whole, tuned_on=rows)
        for name in (name for name in ESTIMATORS.names if name in self.wanted):
            if name == PPI and predicted is None:
                if rows.q is not None and one.f is not None:
                    outcome = doubly_robust_outcome(rows.r, rows.w, *rows.model)
                    yield name, prediction_powered(self.rows.known, outcome, -one.f.astype(np.float64))
                continue
            estimator: Estimator = ESTIMATORS.load("dr" if name == PPI else name)
            terms = None if estimator.needs_model and rows.q is None else estimator.terms(rows)
            if terms is not None:
                yield name, terms if predicted is None else self._completed(terms, estimator.terms(predicted))

    def _predicted_rows(self, one: PolicyRows) -> KnownRows | None:
        """All rows with the reward model's word for their rewards, where known rows are weighted."""
        if self.found.observed is None or self.found.q is None:
            return None
        return self._rows(one, -self.found.q.astype(np.float64), np.ones(self.rows.rows, bool))

    def _completed(self, terms: Terms, predicted: Terms | None) -> Terms:
        assert predicted is not None  # predictions lie in the range of the rewards
        assert self.found.observed is not None
        note = "known rows weighted by the model of missingness"
        named = replace(terms, note=f"{terms.note}; {note}" if terms.note else note)
        return completed(named, predicted.values, self.rows.known, self.found.observed.astype(np.float64))

    def misfit(self, one: PolicyRows) -> str | None:
        """Where the model of missingness is seen not to fit, for this policy's weights and expected rewards."""
        whole = self._predicted_rows(one)
        if whole is None or self.found.observed is None:
            return None
        return misfit(self.rows.known, self.found.observed.astype(np.float64), np.stack([whole.w, whole.w * whole.r]))

    # --- health ---

    def _health(self, one: PolicyRows, concerns: tuple[str, ...]) -> Iterator[tuple[str, Estimate]]:
        weights = self._weights(one)
        unsupported = one.unsupported.mean if one.unsupported.count else None
        figures = health(weights, self.rows.p, self.nu, unsupported, concerns)
        value, reason = figures.verdict
        yield "health", Estimate(value, None, None, None, None, figures.rows, reason)
        for name, number in _health_figures(figures):
            yield name, Estimate(number, None, None, None, None, figures.rows)
        yield "mean-weight", self._normal(figures.mean_weight, figures.mean_weight_error, figures.rows)
        everywhere = self.rows.rows
        yield "truncated-share", Estimate(figures.truncated_share, None, None, None, None, everywhere)
        if figures.unsupported_share is not None:
            yield "unsupported-share", Estimate(figures.unsupported_share, None, None, None, None, everywhere)

    def _histogram(self, one: PolicyRows) -> Iterator[tuple[str, int, Estimate]]:
        """Every bin, empty ones too."""
        weights = self._weights(one)
        ends = (*WEIGHT_EDGES[1:], None)
        for number, share in enumerate(weight_shares(weights).tolist()):
            estimate = Estimate(share, None, WEIGHT_EDGES[number], ends[number], BIN, len(weights))
            yield "weight-share", number, estimate

    def _weights(self, one: PolicyRows) -> Floats:
        known = self.rows.known
        weights: Floats = one.pi[known].astype(np.float64) / self.rows.p[known]
        return weights

    # --- divergences and bounds ---

    def _divergences(self, one: PolicyRows) -> Iterator[tuple[str, Estimate]]:
        pi, p, action, actions = one.pi.astype(np.float64), self.rows.p, self.rows.action, self.log.spec.actions
        terms = {
            "kl-sampled": divergences.sampled_kl(pi, p),
            "reverse-kl-sampled": divergences.sampled_reverse_kl(pi, p),
            "kl-paper": divergences.paper_kl(pi, p, action, actions),
            "reverse-kl-paper": divergences.paper_reverse_kl(pi, p, action, actions),
        }
        normal = IntervalSettings(level=self.interval.level)
        made = dict(zip(terms, estimates(list(terms.values()), normal), strict=True))
        sampled = [made["kl-sampled"], made["reverse-kl-sampled"]]
        for name, estimate in made.items():
            if estimate is not None:
                yield name, estimate
        least, how = min((max(0.0, one.value) for one in sampled if one is not None), default=0.0), "sampled"
        if one.kl.count:
            yield "kl-exact", self._of_mean(one.kl)
            yield "reverse-kl-exact", self._of_mean(one.reverse_kl)
            least, how = min(one.kl.mean, one.reverse_kl.mean), "exact"
        yield from self._bounds(one, pi, least, how)

    def _bounds(self, one: PolicyRows, pi: Floats, divergence: float, how: str) -> Iterator[tuple[str, Estimate]]:
        rows, delta = self.rows, 1 - self.interval.level
        known, reward = rows.known, rows.reward[rows.known]
        if len(reward) and self.nu > 0 and reward.min() >= 0 and reward.max() <= 1:
            risk = -float((reward * pi[known] / np.maximum(self.nu, rows.p[known])).mean())
            bound = risk_bound(risk, divergence, len(reward), self.nu, delta)
            note = f"of the risk, with probability {self.interval.level:g}; M = {divergence:.4g} ({how})"
            yield "theorem1-bound", Estimate(bound, None, None, None, None, len(reward), note)
        forward, backward = kl_terms(pi, rows.p)
        for name, terms in (("estimator-error-bound", forward), ("reverse-estimator-error-bound", backward)):
            bound = estimator_error_bound(terms, rows.action, self.log.spec.actions, delta)
            yield name, Estimate(bound, None, None, None, None, rows.rows)


def _health_figures(figures: Health) -> Sequence[tuple[str, float]]:
    return (
        ("ess", figures.ess),
        ("ess-share", figures.ess_share),
        ("weight-p50", figures.weight_p50),
        ("weight-p99", figures.weight_p99),
        ("weight-max", figures.weight_max),
    )


def _affine(estimate: Estimate, slope: float, shift: float, note: str) -> Estimate:
    """Of slope·v + shift."""
    ends = [None if end is None else slope * end + shift for end in (estimate.low, estimate.high)]
    low, high = ends if slope >= 0 else ends[::-1]
    error = None if estimate.stderr is None else abs(slope) * estimate.stderr
    return Estimate(slope * estimate.value + shift, error, low, high, estimate.interval, estimate.rows, note)


def label_costs(rows: SelectedRows) -> tuple[float, float] | None:
    """What the label's action costs and what the others do, where the known rows show that costs depend on that alone.

    Costs of −1 and 0 are those of being right and wrong even where feedback is noisy. None where labels do not
    tell costs.
    """
    if rows.label is None or not rows.known.any():
        return None
    cost: npt.NDArray[Any] = -rows.reward[rows.known]
    right = (rows.action == rows.label)[rows.known]
    if np.isin(cost, (-1.0, 0.0)).all():
        return -1.0, 0.0
    if right.any() and (~right).any() and np.ptp(cost[right]) == 0 and np.ptp(cost[~right]) == 0:
        return float(cost[right][0]), float(cost[~right][0])
    return None
