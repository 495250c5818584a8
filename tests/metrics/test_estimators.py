"""Estimators of value: by hand, at their limits, beside Open Bandit Pipeline's, and their intervals."""

import itertools
import json
import math
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2bl_cli.metrics.estimate import (
    Estimate,
    IntervalSettings,
    Terms,
    bernstein_half_width,
    degrees_of_freedom,
    difference,
    intervals,
    mean_estimate,
    normal_quantile,
    standard_error,
    t_quantile,
)
from s2bl_cli.metrics.estimators import dr, ppi_dr, switch_dr
from s2bl_cli.metrics.estimators import os as shrinkage
from s2bl_cli.metrics.metric import Metric
from s2bl_cli.metrics.missing_feedback import completed, gamma, mismatch, one_sided, overturning_factor
from s2bl_cli.metrics.sample import PI, VALUE_HAT, KnownRows, LoggedSample, ScoredPolicy
from s2bl_cli.registry import ESTIMATORS


def _estimator(name: str) -> Metric:
    estimator: Metric = ESTIMATORS.load(name)
    return estimator


def _terms(name: str, rows: KnownRows) -> Terms:
    terms: Terms = _module(name).terms(rows)
    return terms


def _module(name: str) -> Any:
    """The estimator's file."""
    return import_module("s2bl_cli." + ESTIMATORS.entries[name].target.partition(":")[0])


def _value(name: str, rows: KnownRows) -> float:
    return _terms(name, rows).estimate.value


def _error(terms: Terms) -> float:
    error = terms.estimate.stderr
    assert error is not None
    return error


def _rows(r: Any, p: Any, pi: Any, q: Any = (), f: Any = (), nu: float = 0.0) -> KnownRows:
    r, p, pi, q, f = (np.asarray(x, np.float64) for x in (r, p, pi, q, f))
    return KnownRows(r, p, pi, q, f, nu)


def _random_rows(n: int = 200, seed: int = 0, low: float = 0.0) -> KnownRows:
    rng = np.random.default_rng(seed)
    return _rows(
        rng.uniform(low, 1, n), rng.uniform(0.1, 0.9, n), rng.uniform(0, 0.9, n), rng.random(n), rng.random(n), 0.2
    )


def _scored(rows: KnownRows, known: Any = None, **changes: Any) -> ScoredPolicy:
    """Rows of which some are known, as a metric sees them."""
    known = np.ones(rows.n, bool) if known is None else known
    sample = LoggedSample(np.zeros(rows.n, np.int32), rows.p, rows.r, known, None, 1, **changes)
    return ScoredPolicy(sample, {PI.name: rows.pi, VALUE_HAT.name: rows.f}, rows.nu)


# Weights 1/2, 3, 1; rewards 1, 0, 1; models q 0.5 0.5 1 and f 0.4 0.2 0.6.
THREE = _rows([1, 0, 1], [0.5, 0.25, 0.5], [0.25, 0.75, 0.5], [0.5, 0.5, 1], [0.4, 0.2, 0.6], nu=0.3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ips", (0.5 + 0 + 1) / 3),
        ("empirical-ips", (0.5 + 0 + 1) / 3),
        ("tips", (0.25 / 0.5 + 0 + 0.5 / 0.5) / 3),  # the row below ν has no reward
        ("snips", 1.5 / 4.5),
        ("dm", 1.2 / 3),
        ("dr", (0.4 + 0.25 + 0.2 - 1.5 + 0.6 + 0) / 3),
        ("sndr", 0.4 + (0.25 - 1.5 + 0) / 4.5),
        ("ix", (0.25 / (0.5 + 0.5 / math.sqrt(3)) + 0.5 / (0.5 + 0.5 / math.sqrt(3))) / 3),
        ("ls", (math.log(1 + 0.5 / math.sqrt(3)) + math.log(1 + 1 / math.sqrt(3))) * math.sqrt(3) / 3),
        ("lse", math.log((math.exp(-(3**-0.75) / 2) + 1 + math.exp(-(3**-0.75))) / 3) / -(3**-0.75)),
        ("beta-ips", (-0.25 + 0 + 0) / 5.75 * (1 - 1.5) + 0.5),  # β = Σ(w² − w)r / Σ(w² − w) = −0.25/5.75
    ],
)
def test_three_rows_by_hand(name: str, value: float) -> None:
    assert _value(name, THREE) == pytest.approx(value, rel=1e-12)


def test_truncation_counts_small_propensities_as_nu() -> None:
    """p = 0.1 counts as 0.4: 0.2/0.4, and 0.5/0.5."""
    rows = _rows([1, 1], [0.1, 0.5], [0.2, 0.5], nu=0.4)
    assert _value("tips", rows) == pytest.approx((0.5 + 1) / 2)


def test_switch_and_shrinkage_by_hand() -> None:
    """At t = 1 the weight 3 is dropped; at λ = 2, ŵ = 2w/(w² + 2)."""
    assert switch_dr.switched(THREE, 1.0) == pytest.approx([0.4 + 0.25, 0.2, 0.6 + 0])
    assert shrinkage.shrunk(THREE.w, 2.0) == pytest.approx([1 / 2.25, 6 / 11, 2 / 3])


@pytest.mark.parametrize("name", [name for name in ESTIMATORS.names if name not in ("ix", "ls", "lse", "os", "dm")])
def test_the_logging_policy_has_the_mean_reward(name: str) -> None:
    """All weights are 1; with a model that is right for it, where one is needed."""
    rng = np.random.default_rng(1)
    p, r = rng.uniform(0.1, 1, 50), rng.random(50)
    rows = _rows(r, p, p, np.full(50, 0.3), np.full(50, 0.3), nu=0.0)
    assert _value(name, rows) == pytest.approx(r.mean(), rel=1e-12)


@pytest.mark.parametrize("name", ["ix", "ls", "lse", "os"])
def test_biased_estimators_approach_ips_as_rows_grow(name: str) -> None:
    """The same rows over and over: γ and λ vanish, the rest stays."""
    few = _random_rows(40)
    many = _rows(*(np.tile(x, 2500) for x in (few.r, few.p, few.pi, few.q, few.f)), nu=few.nu)
    ips = _value("ips", few)
    assert abs(_value(name, many) - ips) < 0.02 * ips
    assert abs(_value(name, many) - ips) < abs(_value(name, few) - ips)


@pytest.mark.parametrize("name", ["ix", "ls", "lse", "os"])
def test_pessimists_are_not_above_ips(name: str) -> None:
    rows = _random_rows(60, seed=3)
    assert _value(name, rows) <= _value("ips", rows)


def test_without_a_model_dr_is_ips_and_sndr_snips() -> None:
    rows = _random_rows()
    zero = np.zeros(rows.n)
    bare = KnownRows(rows.r, rows.p, rows.pi, zero, zero, rows.nu)
    assert _value("dr", bare) == pytest.approx(_value("ips", rows))
    assert _value("sndr", bare) == pytest.approx(_value("snips", rows))
    assert switch_dr.switched(rows, math.inf) == pytest.approx(dr.terms(rows).values[0])
    assert switch_dr.switched(rows, -1.0) == pytest.approx(rows.f)


def test_a_policy_that_never_does_what_was_logged_has_no_snips() -> None:
    rows = _rows([1, 0], [0.5, 0.5], [0, 0])
    assert math.isnan(_value("snips", rows))


@pytest.mark.parametrize("name", ESTIMATORS.names)
def test_estimators_go_by_their_names_and_document_domain_limits_and_source(name: str) -> None:
    assert _estimator(name).name == name
    assert all(f"\n{word}: " in _module(name).__doc__ for word in ("Domain", "Limits", "Source"))


# --- units ---

NOT_SHIFTED = ("ips", "tips", "empirical-ips")  # by their definition, which their docs state


def _in_unit(
    factor: float, offset: float, *, partly: bool = False, weighted: bool = False, declared: bool = False
) -> ScoredPolicy:
    """Rewards r·factor + offset of rows with a few large weights; some or all known, with a model of missingness or
    without, with a declared range or without."""
    rng = np.random.default_rng(2)
    n = 300
    p = np.where(rng.random(n) < 0.1, 0.02, 0.5)
    r, q, f = (factor * values + offset for values in rng.uniform(-2, 7, (3, n)))
    rows = _rows(r, p, 0.4 * rng.random(n), q, f)
    observed = np.where(p < 0.1, 0.3, 0.6) if weighted else None
    span = (factor * -3 + offset, factor * 8 + offset) if declared else None
    known = rng.random(n) < 0.5 if partly else np.ones(n, bool)
    return _scored(rows, known, q=q, observed=observed, declared_range=span)


def _figures(name: str, policy: ScoredPolicy) -> tuple[list[float], float]:
    """The value and the ends of its intervals; and its standard error."""
    (estimate,) = _estimator(name).compute(policy)
    kinds = ("normal", "bernstein", "bootstrap")
    made = [intervals([estimate], IntervalSettings(kind, draws=60))[0] for kind in kinds]
    ends = [end for interval in made for end in (interval.low, interval.high) if end is not None]
    assert estimate.stderr is not None
    return [estimate.value, *ends], estimate.stderr


@pytest.mark.parametrize("case", ["all known", "some missing", "model of missingness", "declared range"])
@pytest.mark.parametrize("name", ESTIMATORS.names)
@given(factor=st.sampled_from([1e-6, 0.01, 3.7, 1000.0]), offset=st.sampled_from([0.0, -3.0, 50.0]))
@settings(max_examples=8, deadline=None)
def test_estimates_follow_the_unit_of_the_rewards(name: str, case: str, factor: float, offset: float) -> None:
    """r → factor·r + offset does the same to value, interval and bound, and multiplies the standard error by factor."""
    changes = {
        "partly": case in ("some missing", "model of missingness"),
        "weighted": case == "model of missingness",
        "declared": case == "declared range",
    }
    if name in NOT_SHIFTED:
        offset = 0
    plain, error = _figures(name, _in_unit(1, 0, **changes))
    moved, moved_error = _figures(name, _in_unit(factor, factor * offset, **changes))
    assert moved == pytest.approx([factor * (value + offset) for value in plain], rel=1e-7)
    assert moved_error == pytest.approx(factor * error, rel=1e-7)


def test_equal_rewards_have_their_reward_as_the_value() -> None:
    """A range of zero: the estimators of scaled rewards return the reward, without a standard error to speak of."""
    rows = _random_rows()
    policy = _scored(replace(rows, r=np.full(rows.n, 7.0)))
    for name in ("ix", "ls", "lse", "os"):
        (estimate,) = _estimator(name).compute(policy)
        assert (estimate.value, estimate.stderr) == (7.0, 0.0)


def test_an_outlier_does_not_change_what_the_unit_is() -> None:
    """One reward a million times as large: still the estimate of the other unit. Three of them are near ips."""
    rows = _random_rows()
    r = rows.r.copy()
    r[0] = 1e6
    values = [
        next(iter(_estimator(name).compute(_scored(replace(rows, r=unit * r))))).value
        for name in ("lse", "ls", "ix", "os")
        for unit in (1, 100)
    ]
    assert values[1::2] == pytest.approx([100 * value for value in values[::2]])
    assert values[:6:2] == pytest.approx([_value("ips", replace(rows, r=r))] * 3, rel=0.1)


def test_bounds_need_a_declared_range_and_say_so() -> None:
    """Rewards in [10, 30], declared as [0, 40]: the bounds are 40 times those of r/40. Bernstein's width is that of
    [0, 40]. Without a declared range there is none of them."""
    rows = _random_rows()
    scored = replace(rows, r=10 + 20 * rows.r, f=10 + 20 * rows.f, q=10 + 20 * rows.q)
    policy = _scored(scored, q=scored.q, declared_range=(0.0, 40.0))
    for name in ("ix", "ls"):
        (estimate,) = _estimator(name).compute(policy)
        (interval,) = intervals([estimate], IntervalSettings())
        bound = _terms(name, replace(scored, r=scored.r / 40)).lower_bound
        assert bound is not None
        assert (interval.low, interval.high) == (pytest.approx(40 * bound(0.05)), None)
        assert estimate.note == "biased towards the smallest reward; rewards in [0, 40], as declared"
        (estimate,) = _estimator(name).compute(_scored(scored))
        assert intervals([estimate], IntervalSettings())[0].kind is None
        assert estimate.note == "biased towards the smallest reward; no lower bound without --reward-range"
    widths = {"ips": 40 / scored.p.min(), "dr": 40 * (2 / scored.p.min() - 1)}
    for name, width in widths.items():
        (estimate,) = _estimator(name).compute(policy)
        (interval,) = intervals([estimate], IntervalSettings("bernstein"))
        assert (interval.kind, estimate.note) == ("bernstein", "rewards in [0, 40], as declared")
        half = bernstein_half_width(_error(estimate.terms), rows.n, width, 0.05)  # type: ignore[arg-type]
        assert interval.high == pytest.approx(estimate.value + half)
        (estimate,) = _estimator(name).compute(_scored(scored, q=scored.q))
        assert intervals([estimate], IntervalSettings("bernstein"))[0].kind == "normal"


def test_switch_dr_switches_at_the_same_weight_in_every_unit() -> None:
    """One row of weight 40 whose prediction is off by three times the range of the rewards: 9·40²/n² of variance is
    more than the squared bias 40²/n² of leaving it out. With 0 in the range, rewards of 1000 to 1001 would have a wide
    one."""
    r, p = np.linspace(0, 1, 50), np.full(50, 0.5)
    p[0] = 0.0125
    for offset in (0, 1000):
        q = r + offset
        rows = _rows(r + offset, p, np.full(50, 0.5), q + np.where(p < 0.5, 3, 0), q)
        (estimate,) = _estimator("switch-dr").compute(_scored(rows, q=rows.q))
        assert estimate.note is not None
        assert float(estimate.note.removeprefix("switches at w = ")) < 40


@pytest.mark.parametrize("kind", ["normal", "bernstein", "bootstrap"])
def test_estimates_that_are_biased_have_no_interval(kind: str) -> None:
    """`dm`, as biased as its model, and `tips` if a row that the policy can take has p < ν."""
    rows = _random_rows()
    below = rows.p < 0.2
    assert below.any()
    for name, nu, pi, wanted in (
        ("dm", 0.0, rows.pi, None),
        ("tips", 0.2, rows.pi, None),
        ("tips", 0.2, np.where(below, 0, rows.pi), kind),
        ("tips", 0.05, rows.pi, kind),
    ):
        policy = _scored(replace(rows, nu=nu, pi=pi), q=rows.q, declared_range=(0.0, 1.0))
        (estimate,) = _estimator(name).compute(policy)
        (interval,) = intervals([estimate], IntervalSettings(kind, draws=60))
        assert (interval.kind, interval.low is None) == (wanted, wanted is None)
        assert estimate.stderr is not None
        assert (wanted is None) == ("no interval" in (estimate.note or ""))


# --- beside Open Bandit Pipeline ---

STORED = json.loads((Path(__file__).parent / "obp_figures.json").read_text())


@pytest.mark.parametrize("name", STORED["values"])
def test_the_same_as_open_bandit_pipeline(name: str) -> None:
    """OBP 0.5.5 on the stored rows; `bench/estimators.py --store` made the figures."""
    stored = {key: np.asarray(values) for key, values in STORED["rows"].items()}
    index = np.arange(len(stored["a"]))
    rows = KnownRows(
        stored["r"],
        stored["p"],
        stored["pi"][index, stored["a"]],
        stored["q"][index, stored["a"]],
        (stored["pi"] * stored["q"]).sum(axis=1),
        STORED["nu"],
    )
    if name == "switch-dr":
        value = float(switch_dr.switched(rows, STORED["switch"]).mean())
    elif name == "os":
        value = float((shrinkage.shrunk(rows.w, STORED["shrinkage"]) * rows.r).mean())
    else:
        value = _value(name, rows)
    assert value == pytest.approx(STORED["values"][name], abs=1e-6)


# --- standard errors and intervals ---


def test_normal_interval_of_a_mean_by_hand() -> None:
    """By Student's t with two degrees of freedom: the kurtosis 1.5 would permit 12."""
    values = np.array([1.0, 2.0, 6.0])
    error = values.std(ddof=1) / math.sqrt(3)
    for estimate in (Terms([values]).estimate, mean_estimate(values)):
        (interval,) = intervals([estimate], IntervalSettings(level=0.9))
        assert (estimate.value, estimate.rows, estimate.stderr) == (3, 3, pytest.approx(error))
        assert estimate.influence == pytest.approx([-2, -1, 3])
        ends = (3 - 2.9199856 * error, 3 + 2.9199856 * error)
        assert (interval.low, interval.high) == pytest.approx(ends, rel=1e-6)
        assert interval.kind == "normal"


def test_degrees_of_freedom_by_hand() -> None:
    """Ten 1s among 1,000 have the kurtosis (1 − 3pq)/pq, p = 0.01: as many degrees as twice the 1s. Normal values have
    about as many as rows, and ±1 have n − 1. A variance that one row decides has two."""
    rare = np.repeat([0.99, -0.01], [10, 990])
    assert degrees_of_freedom(rare) == pytest.approx(2000 / ((1 - 3 * 0.0099) / 0.0099 - 1))
    assert degrees_of_freedom(rare) == pytest.approx(20, rel=0.05)
    assert degrees_of_freedom(1e100 * rare) == pytest.approx(degrees_of_freedom(rare))
    assert degrees_of_freedom(np.random.default_rng(0).standard_normal(10_000)) == pytest.approx(9999, rel=0.05)
    assert degrees_of_freedom(np.tile([1.0, -1.0], 50)) == 99
    assert degrees_of_freedom(np.zeros(5)) == 4
    assert degrees_of_freedom(np.append(1000.0, np.ones(1000))) == pytest.approx(2, rel=0.01)
    alone, paired = np.arange(1000), np.arange(1000) // 2
    assert degrees_of_freedom(rare, alone) == pytest.approx(degrees_of_freedom(rare))
    assert degrees_of_freedom(rare, paired) == pytest.approx(10, rel=0.05)


def test_intervals_of_skewed_rewards_cover_better_with_these_degrees_of_freedom() -> None:
    """Means of 300 squared exponential values, which are skewed: normal quantiles cover less often."""
    rng = np.random.default_rng(0)
    covered = np.zeros(2)
    for _ in range(2000):
        values = rng.exponential(1.0, 300) ** 2  # mean 2, skewed
        (interval,) = intervals([mean_estimate(values)], IntervalSettings())
        assert interval.low is not None
        assert interval.high is not None
        half = normal_quantile(0.95) * values.std(ddof=1) / math.sqrt(len(values))
        covered += interval.low <= 2 <= interval.high, abs(values.mean() - 2) <= half
    t, normal = covered / 2000
    assert normal < 0.935
    assert normal + 0.003 < t < 0.96


def test_standard_error_of_a_ratio_is_the_delta_methods() -> None:
    """Σwr/Σw has the influence w(r − v)/w̄."""
    rows = _random_rows()
    estimate = _terms("snips", rows).estimate
    influence = rows.w * (rows.r - estimate.value) / rows.w.mean()
    assert estimate.influence == pytest.approx(influence)
    assert estimate.stderr == pytest.approx(influence.std(ddof=1) / math.sqrt(rows.n), rel=1e-9)


def test_standard_error_of_clusters_by_hand() -> None:
    """Influences 1 −1 2 −2 in clusters of the first two and the others: sums 0 and 0. Paired otherwise: 3 and −3, so
    √(2/1·18)/4. Where each row is its own cluster, the plain one."""
    influence = np.array([1.0, -1, 2, -2])
    assert standard_error(influence, np.array([0, 0, 1, 1])) == 0
    assert standard_error(influence, np.array([0, 1, 0, 1])) == pytest.approx(math.sqrt(36) / 4)
    assert standard_error(influence, np.array([2, 0, 3, 1])) == pytest.approx(standard_error(influence))
    assert standard_error(influence, np.zeros(4, int)) is None


def test_difference_of_two_policies_is_paired() -> None:
    """mean(w₁r) − mean(w₂r) has the standard error of the mean of (w₁ − w₂)r: far below that of either."""
    rows = _random_rows()
    nearly = replace(rows, pi=rows.pi * 1.02)
    first, second = (_terms("ips", either).estimate for either in (nearly, rows))
    gap = difference(first, second)
    values = (nearly.w - rows.w) * rows.r
    assert (gap.value, gap.rows) == (pytest.approx(values.mean()), rows.n)
    assert gap.stderr == pytest.approx(values.std(ddof=1) / math.sqrt(rows.n))
    assert gap.stderr is not None
    assert first.stderr is not None
    assert gap.stderr < 0.05 * first.stderr
    (interval,) = intervals([gap], IntervalSettings())
    assert interval.kind == "normal"
    assert (difference(second, first).value, difference(first, first).stderr) == (-gap.value, 0)


def test_difference_needs_the_same_rows_and_has_no_error_where_an_estimate_has_none() -> None:
    first, fewer = mean_estimate(np.arange(5.0)), mean_estimate(np.arange(4.0))
    with pytest.raises(ValueError, match="estimates on 5 and 4 rows are not paired"):
        difference(first, fewer)
    gap = difference(Estimate(3.0, 5), first)
    assert (gap.value, gap.influence, gap.stderr) == (1.0, None, None)


@pytest.mark.parametrize("name", ESTIMATORS.names)
def test_standard_error_is_what_the_jackknife_says(name: str) -> None:
    """Leaving rows out one by one, with the estimator's constants as they are: the same to a few percent."""
    terms = _terms(name, _random_rows(400, seed=5))
    n = len(terms.values[0])
    replicates = terms.of_means(*((values.sum() - values) / (n - 1) for values in terms.values))
    jackknife = math.sqrt((n - 1) / n * float(((replicates - replicates.mean()) ** 2).sum()))
    assert _error(terms) == pytest.approx(jackknife, rel=0.03)


def test_one_row_has_no_error_and_no_interval() -> None:
    estimate = Terms([np.array([0.5])]).estimate
    (interval,) = intervals([estimate], IntervalSettings())
    assert (estimate.value, estimate.stderr) == (0.5, None)
    assert (interval.low, interval.high, interval.kind) == (None, None, None)


def test_bernstein_by_hand_and_only_for_means() -> None:
    """√(2L/n)·(S + b√(2L/(n − 1))) + bL/(3n), L = ln(3/δ).

    Less than two of Maurer and Pontil's for one side: √(2S²L/n) + 7bL/(3(n − 1)), L = ln(4/δ).
    """
    values = np.array([0.0, 1.0, 1.0, 0.0])
    log, spread = math.log(3 / 0.05), values.std(ddof=1)
    half = math.sqrt(2 * log / 4) * (spread + 2 * math.sqrt(2 * log / 3)) + 2 * log / 12
    assert bernstein_half_width(spread / 2, 4, 2.0, 0.05) == pytest.approx(half)
    looser = math.log(4 / 0.05)
    assert half < math.sqrt(2 * looser / 4) * spread + 7 * 2 * looser / (3 * 3)
    rows = _random_rows()
    estimates = [_terms(name, rows).estimate for name in ("ips", "snips")]
    assert [one.kind for one in intervals(estimates, IntervalSettings("bernstein"))] == ["bernstein", "normal"]


@pytest.mark.parametrize("name", ["ips", "tips", "dr"])
def test_widths_hold_every_value(name: str) -> None:
    """Bernstein's inequality is only as true as the interval that the values lie in. The extremes of one action in two:
    π in {0, ½, 1}, each reward and prediction 0 or 1, p = ¼ or 1."""
    cases = np.array(list(itertools.product((0, 0.5, 1), (0, 1), (0, 1), (0, 1), (0.25, 1))))
    pi, r, q, other, p = cases.T
    terms = _terms(name, KnownRows(r, p, pi, q, pi * q + (1 - pi) * other, nu=0))
    assert terms.width is not None
    assert np.ptp(terms.values) == pytest.approx(terms.width)


def test_bootstrap_is_near_the_normal_interval_and_the_same_for_the_same_seed() -> None:
    rows = _random_rows(500)
    chosen = [_terms(name, rows).estimate for name in ("ips", "snips", "beta-ips", "sndr")]
    normal = intervals(chosen, IntervalSettings())
    first, second = (intervals(chosen, IntervalSettings("bootstrap", draws=2000, seed=4)) for _ in range(2))
    assert first == second
    assert first != intervals(chosen, IntervalSettings("bootstrap", draws=2000, seed=5))
    for one, other in zip(first, normal, strict=True):
        assert one.kind == "bootstrap"
        width = other.high - other.low  # type: ignore[operator]
        assert one.low == pytest.approx(other.low, abs=0.1 * width)
        assert one.high == pytest.approx(other.high, abs=0.1 * width)


def test_bootstrap_leaves_out_five_in_a_hundred_however_few_the_draws() -> None:
    """Means of many normal values: the interval of 60 draws holds the next draw in 95 of 100, on average."""
    shares = []
    for seed in range(400):
        estimate = Terms([np.random.default_rng(seed).standard_normal(400)]).estimate
        (interval,) = intervals([estimate], IntervalSettings("bootstrap", draws=60, seed=seed))
        assert estimate.stderr is not None
        assert interval.low is not None
        assert interval.high is not None
        around = NormalDist(estimate.value, estimate.stderr)
        shares.append(around.cdf(interval.high) - around.cdf(interval.low))
    assert np.mean(shares) == pytest.approx(0.95, abs=0.008)


def test_bootstrap_of_equal_rows_is_their_value() -> None:
    (interval,) = intervals([Terms([np.full(37, 0.7)]).estimate], IntervalSettings("bootstrap", draws=60))
    assert (interval.low, interval.high) == pytest.approx((0.7, 0.7), rel=1e-12)


def test_own_lower_bounds_by_hand() -> None:
    """δ = 0.05, n = 3, L = ln(1/δ). ix: mean(πr/(p + g)) − L/(2gn), g = √(L/(2n)).

    ls: (exp(mean ln(1 + lwr) − L/n) − 1)/l, l = √(2L/n).
    """
    ix, ls = intervals([_terms(name, THREE).estimate for name in ("ix", "ls")], IntervalSettings())
    log = math.log(20)
    g, lam = math.sqrt(log / 6), math.sqrt(2 * log / 3)
    explored = (THREE.pi * THREE.r / (THREE.p + g)).mean()
    assert ix.low == pytest.approx(explored - log / (6 * g))
    assert ls.low == pytest.approx((math.exp(np.log(1 + lam * THREE.w * THREE.r).mean() - log / 3) - 1) / lam)
    assert (ix.high, ix.kind, ls.high, ls.kind) == (None, "lower-bound", None, "lower-bound")


def test_rows_of_equal_probability_change_nothing_and_others_stand_for_rows() -> None:
    """Without predictions, a row that is known with probability ½ is a row that is there twice."""
    rows = _random_rows(30)
    doubled = np.r_[np.arange(30), [4, 7]]
    probability = np.ones(30)
    probability[[4, 7]] = 0.5
    repeated = _rows(*(x[doubled] for x in (rows.r, rows.p, rows.pi, rows.q, rows.f)), nu=rows.nu)
    known = np.ones(30, bool)
    for name in ("ips", "snips", "dr", "beta-ips"):
        terms = _terms(name, rows)
        none = [np.zeros(30) for _ in terms.values]
        even = completed(terms, none, known, np.full(30, 0.3)).estimate
        assert even.value == pytest.approx(terms.estimate.value)
        uneven = completed(terms, none, known, probability).estimate
        assert uneven.value == pytest.approx(_value(name, repeated))


# --- with the rows without feedback ---


def _missing_rows(n: int, m: int, seed: int = 0) -> tuple[npt.NDArray[np.bool_], Any, Any]:
    rng = np.random.default_rng(seed)
    f = rng.random(n + m)
    known = rng.permutation(n + m) < n
    return known, f[known] + 0.3 * rng.standard_normal(n), f


def _powered(known: npt.NDArray[np.bool_], y: Any, f: Any) -> Terms:
    """`ppi-dr` where Y = f + w (r − q) is y: with w = 1 and q = f, the reward is y."""
    one = np.ones(len(y))
    rows = KnownRows(y, one, one, f[known], f[known], nu=0.0, known=known, f_of_all=f)
    return ppi_dr.terms(rows)


def test_prediction_powered_is_the_formula() -> None:
    """λ·mean_missing f + mean_known(Y − λf), λ = Cov(Y, f)/((1 + n/m) Var f) over the rows, to sampling noise."""
    known, y, f = _missing_rows(400, 1200)
    terms = _powered(known, y, f)
    assert terms.note is not None
    lam = float(terms.note.split()[2].rstrip(";"))
    # Cov and Var of the known rows: the estimate's own moments mix in the missing ones.
    wanted_lam = np.cov(y, f[known])[0, 1] / ((1 + 400 / 1200) * f[known].var(ddof=1))
    assert lam == pytest.approx(wanted_lam, abs=0.05)
    power = lam * 1600 / 1200
    wanted = lam * f[~known].mean() + (y - lam * f[known]).mean()
    assert terms.estimate.value == pytest.approx(wanted, abs=1e-3 * power)
    variance = lam**2 * f[~known].var(ddof=1) / 1200 + (y - lam * f[known]).var(ddof=1) / 400
    assert _error(terms) == pytest.approx(math.sqrt(variance), rel=0.02)


def test_prediction_powered_without_missing_rows_is_dr() -> None:
    rows = _random_rows()
    (powered,) = _estimator("ppi-dr").compute(_scored(rows, q=rows.q))
    (plain,) = _estimator("dr").compute(_scored(rows, q=rows.q))
    assert (powered.value, powered.stderr) == (plain.value, plain.stderr)
    assert powered.note == "no row without feedback: the same as dr"
    (interval,) = intervals([powered], IntervalSettings("bernstein"))
    assert interval.kind == "normal"


def test_with_a_model_of_missingness_prediction_powered_is_dr_too() -> None:
    rows, known = _random_rows(), np.arange(200) % 3 == 0
    policy = _scored(rows, known, q=rows.q, observed=np.full(200, 0.3))
    (powered,) = _estimator("ppi-dr").compute(policy)
    (plain,) = _estimator("dr").compute(policy)
    assert (powered.value, powered.stderr, powered.rows, powered.note) == (
        plain.value, plain.stderr, 200, "known rows weighted by the model of missingness",
    )  # fmt: skip
    assert powered.value != pytest.approx(_value("dr", rows))


@given(seed=st.integers(0, 1000), noise=st.floats(0, 3))
@settings(max_examples=60, deadline=None)
def test_prediction_powered_is_never_wider_than_dr(seed: int, noise: float) -> None:
    """Whatever the model is worth: λ falls to 0 where it is worth nothing."""
    rng = np.random.default_rng(seed)
    known, y, f = _missing_rows(100, 900, seed)
    f = f + noise * rng.standard_normal(1000)
    assert _error(_powered(known, y, f)) <= _error(Terms([y])) * 1.01


@pytest.mark.parametrize(("prediction", "probability"), [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
def test_completed_is_right_where_the_prediction_or_the_probability_is(prediction: float, probability: float) -> None:
    """Rows of high f answer four times as often: the known mean is off. f and P are told, or one is wrong."""
    rng = np.random.default_rng(0)
    f = rng.random(40_000)
    seen = np.where(f > 0.5, 0.4, 0.1)
    known = rng.random(40_000) < seen
    y = f + 0.2 * rng.standard_normal(40_000)
    assert y[known].mean() > 0.62
    told = probability * seen + (1 - probability) * 0.25
    terms = completed(Terms([y[known]]), [prediction * f], known, told)
    assert abs(terms.estimate.value - 0.5) < 4 * _error(terms) < 0.03


@pytest.mark.parametrize("name", ESTIMATORS.names)
def test_rows_that_are_tuned_on_others_have_their_parameters(name: str) -> None:
    """Of the rows that both have, the terms are the same: predictions that are right leave nothing to correct."""
    rng = np.random.default_rng(0)
    p, known = np.where(rng.random(300) < 0.1, 0.01, 0.5), np.arange(300) % 4 == 0
    p[1] = 1e-5  # a large weight that is not known, which would move what is chosen by weights
    whole = _rows(rng.random(300), p, 0.4 * rng.random(300), rng.random(300), rng.random(300))
    rows = _rows(*(x[known] for x in (whole.r, whole.p, whole.pi, whole.q, whole.f)))
    terms, predicted = _terms(name, rows), _terms(name, replace(whole, tuned_on=rows))
    for of_all, of_known in zip(predicted.values, terms.values, strict=True):
        assert of_all[known] == pytest.approx(of_known)


def test_completed_standard_error_is_that_of_the_formula() -> None:
    """Of f + o (Y − f), o = known/P, where mean(o) is near 1 and Y − f of mean 0."""
    known, y, f = _missing_rows(400, 1200)
    terms = completed(Terms([y]), [f], known, np.full(1600, 0.25))
    values = f.copy()
    values[known] += 4 * (y - f[known])
    assert terms.estimate.value == pytest.approx(values.mean())
    assert _error(terms) == pytest.approx(values.std(ddof=1) / 40, rel=0.01)


def test_mismatch_is_reported_of_a_wrong_probability_and_not_of_the_right_one() -> None:
    """By the weights w and the expected rewards w q of the policy."""
    rng = np.random.default_rng(0)
    w, q = rng.random((2, 20_000))
    probability = 0.1 + 0.4 * w
    known = rng.random(20_000) < probability
    rows = _rows(q, np.ones(20_000), w, q, q)
    assert mismatch(_scored(rows, known, q=q, observed=probability)) is None
    fault = mismatch(_scored(rows, known, q=q, observed=np.full(20_000, 0.3)))
    assert fault is not None
    assert fault.startswith("the model of missingness does not fit: weighted by it, known rows are ")
    # If all probabilities are too small by a fifth, weighted rows have the right means, but are too many.
    fault = mismatch(_scored(rows, known, q=q, observed=0.8 * probability))
    assert fault is not None
    assert fault.startswith("the model of missingness does not fit")


def test_feedback_by_weight_is_reported_without_a_model_too() -> None:
    """Known by w: the mean weight of the known rows is not that of all rows. Known at random, or all known: it is."""
    rng = np.random.default_rng(0)
    w = rng.random(20_000)
    rows = _rows(np.zeros(20_000), np.ones(20_000), w)
    fault = mismatch(_scored(rows, rng.random(20_000) < 0.1 + 0.4 * w))
    assert fault is not None
    assert fault.startswith("the mean weight of the known rows is ")
    assert fault.endswith(" standard errors from that of all rows")
    for known in (rng.random(20_000) < 0.3, np.ones(20_000, bool), np.zeros(20_000, bool)):
        assert mismatch(_scored(rows, known)) is None


@pytest.mark.parametrize(
    ("reward", "known", "declared", "text"),
    [
        ([3, 0, 5, 0], [1, 0, 1, 0], None, "all 2 known rewards are above 0, and 2 are missing"),
        ([-3, 0, -5, 0], [1, 0, 1, 0], None, "all 2 known rewards are below 0, and 2 are missing"),
        ([3, 0, 5, 0], [1, 0, 1, 0], (0.0, 9.0), "all 2 known rewards are above 0, and 2 are missing"),
        ([3, 0, 5, 0], [1, 0, 1, 0], (1.0, 5.0), None),
        ([-3, 0, -5, 0], [1, 0, 1, 0], (-5.0, -1.0), None),
        ([3, 0, 5, 0], [1, 1, 1, 0], None, None),
        ([-3, 0, 5, 0], [1, 0, 1, 0], None, None),
        ([3, 1, 5, 2], [1, 1, 1, 1], None, None),
        ([0, 0, 0, 0], [0, 0, 0, 0], None, None),
    ],
)
def test_known_rewards_on_one_side_of_zero(reward: Any, known: Any, declared: Any, text: str | None) -> None:
    ones = np.ones(4)
    policy = _scored(_rows(reward, ones, ones), np.array(known, bool), declared_range=declared)
    assert one_sided(policy.sample) == text


# --- how much the reward itself may matter ---


def _bound(values: Any, weights: Any, factor: float) -> float:
    """The smallest weighted mean with weights in [w/Γ, w·Γ], over all thresholds."""
    order = np.argsort(values)
    v, w = values[order], weights[order]
    total, size = np.r_[0, (w * v).cumsum()], np.r_[0, w.cumsum()]
    means = (factor * total + (total[-1] - total) / factor) / (factor * size + (size[-1] - size) / factor)
    return float(means.min())


def test_bound_of_a_weighted_mean_is_attained_by_a_threshold() -> None:
    """Beside every choice of the two extremes: a minimum of a quotient of linear functions is at a corner."""
    rng = np.random.default_rng(0)
    values, weights = rng.standard_normal(10), rng.random(10)
    corners = np.array(list(itertools.product((1 / 1.7, 1.7), repeat=10))) * weights
    assert _bound(values, weights, 1.7) == pytest.approx(((corners @ values) / corners.sum(axis=1)).min())


@given(seed=st.integers(0, 500))
@settings(max_examples=40, deadline=None)
def test_overturning_factor_moves_the_bound_to_zero(seed: int) -> None:
    """Γ² = Σ₊/Σ₋ without a standard error, for a mean above or below 0."""
    rng = np.random.default_rng(seed)
    values, weights = rng.standard_normal(50) + 0.3, rng.random(50)
    for sign in (1, -1):
        factor = overturning_factor(sign * values, weights, 0.0, 0.0)
        towards = values if weights @ values > 0 else -values
        assert _bound(towards, weights, factor) == pytest.approx(0, abs=1e-6)
        assert _bound(towards, weights, 0.99 * factor) > 0


def test_overturning_factor_by_hand() -> None:
    """Values 3, 1, −1 of equal weight: Γ² = 4/1. A mean of 1 with an error above 1 is not shown to be above 0: Γ = 1.
    No value below 0: ∞. Otherwise, at Γ the mean is z standard errors above 0."""
    values, ones = np.array([3.0, 1.0, -1.0]), np.ones(3)
    assert overturning_factor(values, ones, 0.0, 0.0) == pytest.approx(2)
    assert overturning_factor(values, ones, 1.0, 1.0) == 1
    assert overturning_factor(np.array([3.0, 1.0]), np.ones(2), 0.0, 0.0) == math.inf
    factor = overturning_factor(values, ones, 0.1, 0.5)
    u = np.array([1, 1, factor**2])
    mean = (u @ values) / u.sum()
    error = math.sqrt((u**2 @ (values - mean) ** 2) / u.sum() ** 2 + 0.1**2)
    assert mean == pytest.approx(0.5 * error, rel=1e-6)
    assert 1 < factor < 2


def _quantile(values: npt.NDArray[np.float64], o: npt.NDArray[np.float64]) -> float:
    """Of Student's t, for the influences of the weighted mean."""
    return t_quantile(o * (values - np.average(values, weights=o)), 0.05)


def test_gamma_of_rows_that_are_there_ten_times_is_that_of_their_clusters() -> None:
    rng = np.random.default_rng(1)
    n = 60
    rows = _rows(rng.random(n), np.full(n, 0.5), rng.uniform(0, 1, n), rng.random(n), rng.random(n))
    rows = replace(rows, r=rows.r + 2 * rows.pi)
    known = rng.random(n) < 0.8
    once = gamma(_scored(rows, known, q=rows.q))
    columns = {name: np.repeat(getattr(rows, name), 10) for name in ("r", "p", "pi", "q", "f")}
    many = replace(rows, **columns)
    cluster = np.repeat(np.arange(n), 10)
    clustered, alone = (gamma(_scored(many, np.repeat(known, 10), q=many.q, cluster=c)) for c in (cluster, None))
    assert once is not None
    assert clustered is not None
    assert alone is not None
    assert clustered.value == pytest.approx(once.value, rel=1e-6)
    assert alone.value > 1.05 * once.value > 1.05


def test_gamma_is_that_of_the_difference_to_the_logging_policy() -> None:
    """v = A + (w − 1)(r − q) of the known rows, A = mean(f − q) of all rows; o in place of 1 with a model of
    missingness; the mean reward in place of q and f without a reward model. None without missing feedback, or for the
    logging policy."""
    rng = np.random.default_rng(0)
    n = 4000
    rows = _rows(rng.random(n), np.full(n, 0.5), rng.uniform(0, 1, n), rng.random(n), rng.random(n))
    rows = replace(rows, r=rows.r + rows.pi, f=rows.f + 0.5)
    known, observed = rng.random(n) < 0.5, rng.uniform(0.3, 0.7, n)
    shift = rows.f - rows.q
    for o, changes in ((np.ones(n), {}), (1 / observed, {"observed": observed})):
        estimate = gamma(_scored(rows, known, q=rows.q, **changes))
        values = shift.mean() + (rows.w - 1) * (rows.r - rows.q)
        error = float(shift.std(ddof=1)) / math.sqrt(n)
        assert estimate is not None
        factor = overturning_factor(values[known], o[known], error, _quantile(values[known], o[known]))
        assert estimate.value == pytest.approx(factor, rel=1e-5)
        assert (estimate.rows, estimate.note) == (known.sum(), "better than the logging policy")
    bare = ScoredPolicy(_scored(rows, known).sample, {PI.name: rows.pi})
    estimate = gamma(bare)
    values = (rows.w - 1) * (rows.r - rows.r[known].mean())
    assert estimate is not None
    ones = np.ones(known.sum())
    factor = overturning_factor(values[known], ones, 0.0, _quantile(values[known], ones))
    assert estimate.value == pytest.approx(factor)
    worse = gamma(_scored(replace(rows, r=-rows.r, f=rows.q - 0.5), known, q=rows.q))
    assert worse is not None
    assert worse.note == "worse than the logging policy"
    assert gamma(_scored(rows, q=rows.q)) is None
    assert gamma(_scored(replace(rows, pi=rows.p.astype(np.float32)), known, q=rows.q)) is None


def test_gamma_is_the_same_in_every_unit() -> None:
    plain, moved = (gamma(_in_unit(*unit, partly=True)) for unit in ((1.0, 0.0), (100.0, -30.0)))
    assert plain is not None
    assert moved is not None
    assert moved.value == pytest.approx(plain.value)


def test_normal_quantile() -> None:
    assert normal_quantile(0.95) == pytest.approx(1.959963984540054)
