"""Gains over a baseline: paired on the same rows, alone and for several policies at once, and the verdict on them."""

from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from learning_fixtures import arrays_of, blobs, one_hot, table_policy, write_arrays
from scipy.special import stdtrit
from score_fixtures import settings_of

from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.scores import LOGGING_POLICY, read_scores
from s2bl_cli.evaluation import comparison
from s2bl_cli.metrics import gains
from s2bl_cli.metrics.estimate import (
    Estimate,
    IntervalSettings,
    Terms,
    degrees_of_freedom,
    difference,
    intervals,
    standard_error,
)
from s2bl_cli.registry import ESTIMATORS

Run = Callable[..., Any]

BIASED = ("ix", "ls", "dm")  # no interval of their own, so none of a difference


def _rows(path: Path, policy: str = "p.safetensors") -> dict[str, dict[str, Any]]:
    table, _ = read_scores([str(path)])
    return {row["metric"]: row for row in table.to_pylist() if row["policy"] == policy and row["label"] is None}


def _write(folder: Path, known: Any = 1.0, **policies: Any) -> None:
    """A log of three blobs without a stored π₀, and policies by their tables."""
    rows = blobs(600, known=known, test_rows=0)
    write_arrays(folder / "log.parquet", arrays_of(rows.context, rows.action, rows.propensity,
                 np.where(rows.known, rows.cost, np.nan)), 3)  # fmt: skip
    for name, table in policies.items():
        table_policy(folder / f"{name}.safetensors", table)


GOOD = np.full((3, 3), 0.2) + 0.4 * np.eye(3)
BAD = np.full((3, 3), 0.4) - 0.2 * np.eye(3)


# --- the difference of two estimates ---


def test_a_difference_by_hand() -> None:
    """Influences 1 0 −1 and 1 −1 0: their difference is 0 1 −1, with a standard error of √(2/2/3)."""
    one, other = Estimate(3.0, 3, np.array([1.0, 0, -1])), Estimate(1.0, 3, np.array([1.0, -1, 0]))
    gain = difference(one, other)
    assert (gain.value, gain.rows) == (2.0, 3)
    assert gain.stderr == pytest.approx(np.sqrt(1 / 3))


def test_bootstrapped_differences_resample_both_sides_together() -> None:
    """The ratio of two means less one of the means. Without pairing it would be as wide as both together."""
    rng = np.random.default_rng(0)
    noise, own = rng.standard_normal(500), 0.1 * rng.standard_normal(500)
    one = Terms([1 + noise + own, np.ones(500)], lambda a, b: a / b).estimate
    other = Terms([noise]).estimate
    settings = IntervalSettings("bootstrap", draws=2000)
    alone, _, both = intervals([one, other, difference(one, other)], settings)
    assert both.kind == "bootstrap"
    assert alone.high is not None
    assert both.low is not None
    assert both.high is not None
    assert both.high - both.low == pytest.approx(2 * 1.96 * 0.1 / np.sqrt(500), rel=0.1)
    assert alone.high - both.high > 0.03
    assert both.low < one.value - other.value < both.high


@pytest.mark.parametrize("kind", ["normal", "bernstein", "bootstrap"])
def test_a_difference_with_a_biased_estimate_has_no_interval(kind: str) -> None:
    values = np.random.default_rng(0).random(100)
    biased = Terms([values], lower_bound=lambda delta: 0.0, biased=True).estimate
    gain = difference(Terms([values + 1], width=2.0).estimate, biased)
    assert gain.stderr is not None
    (interval,) = intervals([gain], IntervalSettings(kind, draws=100))
    assert (interval.low, interval.high, interval.kind) == (None, None, None)


def test_intervals_of_several_comparisons_have_bonferronis_level() -> None:
    values = np.random.default_rng(0).standard_normal(100)
    alone = Estimate(0.0, 100, values)
    assert alone.stderr is not None
    for comparisons in (1, 2, 50):
        (interval,) = intervals([Estimate(0.0, 100, values, comparisons=comparisons)], IntervalSettings(level=0.9))
        quantile = stdtrit(degrees_of_freedom(values), 1 - 0.05 / comparisons)
        assert interval.high == pytest.approx(quantile * alone.stderr)


def test_draws_that_are_too_few_for_a_quantile_give_a_normal_interval() -> None:
    """Of 100 draws no one is beyond the 0.025/50 quantile."""
    estimate = Terms([np.random.default_rng(0).standard_normal(100)]).estimate
    many = Estimate(estimate.value, 100, estimate.influence, terms=estimate.terms, comparisons=50)
    kinds = [interval.kind for interval in intervals([estimate, many], IntervalSettings("bootstrap", draws=100))]
    assert kinds == ["bootstrap", "normal"]


def test_paired_intervals_cover() -> None:
    """400 logs of 300 rows, two policies and a baseline: a single 95 % interval of the SNIPS gain covers the true gain
    in 95 ± 2.5 %, and all simultaneous ones at once in 95 % or more, less the noise of the simulation."""
    rng = np.random.default_rng(0)
    truth = np.array([0.6, 0.5, 0.4])
    policies, baseline = np.array([[0.6, 0.2, 0.2], [0.2, 0.4, 0.4]]), np.array([0.3, 0.3, 0.4])
    logging = np.array([0.2, 0.3, 0.5])
    gains = policies @ truth - baseline @ truth
    single = together = 0
    for _ in range(400):
        action = rng.choice(3, 300, p=logging)
        reward = 10 + (rng.random(300) < truth[action])
        estimates = [_snips(pi[action] / logging[action], reward) for pi in (*policies, baseline)]
        paired = [difference(estimate, estimates[-1]) for estimate in estimates[:2]]
        (first, second) = (
            intervals([Estimate(g.value, g.rows, g.influence, comparisons=k) for g in paired], IntervalSettings())
            for k in (1, 2)
        )
        single += int(_holds(first[0], gains[0]))
        together += int(all(_holds(interval, gain) for interval, gain in zip(second, gains, strict=True)))
    assert 0.925 <= single / 400 <= 0.975
    assert together / 400 >= 0.935


def _snips(w: Any, r: Any) -> Estimate:
    return Terms([w * r, w], lambda reward, weight: reward / weight).estimate


def _holds(interval: Any, value: float) -> bool:
    return bool(interval.low <= value <= interval.high)


# --- evaluate ---


def test_gains_by_hand(run: Run, tmp_path: Path) -> None:
    """One context, logged uniformly: w = 1.8 0.2 1.8 0.2, rewards 1 0 0 1. The gain: (w − 1) r = 0.8 0 0 −0.8."""
    rows = arrays_of(one_hot([0, 0, 0, 0], 1), [0, 1, 0, 1], [0.5] * 4, [-1, 0, 0, -1])
    write_arrays(tmp_path / "log.parquet", rows, 2)
    table_policy(tmp_path / "p.safetensors", [[0.9, 0.1]])
    assert run("evaluate", "p.safetensors", "--logs", "log.parquet", "--metrics", "ips").code == 0
    scores = _rows(tmp_path / "scores.parquet")
    assert set(scores) == {"ips", "ips-gain", "ips-gain-simultaneous", "better"}
    gain = scores["ips-gain"]
    error = np.std([0.8, 0, 0, -0.8], ddof=1) / 2
    assert (gain["value"], gain["rows"]) == (pytest.approx(0, abs=1e-7), 4)
    assert gain["stderr"] == pytest.approx(error, rel=1e-6)
    half = 3.1824463 * error  # Student's t, three degrees of freedom
    assert (gain["low"], gain["high"]) == pytest.approx((-half, half), rel=1e-5)
    assert (gain["level"], gain["interval"], gain["note"]) == (0.95, "normal", "over the logging policy")
    assert settings_of(gain)["baseline"] == LOGGING_POLICY
    assert "baseline" not in settings_of(scores["ips"])
    assert not set(_rows(tmp_path / "scores.parquet", LOGGING_POLICY)) & set(gains.NAMES)


@pytest.mark.parametrize("known", [1.0, 0.5])
def test_every_estimator_with_an_interval_has_a_gain_with_one(run: Run, tmp_path: Path, known: float) -> None:
    _write(tmp_path, known, p=GOOD)
    assert run("evaluate", "p.safetensors", "--logs", "log.parquet").code == 0
    scores, logging = _rows(tmp_path / "scores.parquet"), _rows(tmp_path / "scores.parquet", LOGGING_POLICY)
    for name in ESTIMATORS.names:
        gain, corrected = scores[f"{name}-gain"], scores[f"{name}-gain-simultaneous"]
        assert gain["value"] == pytest.approx(scores[name]["value"] - logging[name]["value"]), name
        assert (gain["low"] is None) == (name in BIASED), name
        assert {k: v for k, v in gain.items() if k != "metric"} == {
            k: v for k, v in corrected.items() if k != "metric"
        }  # of one policy
        unpaired = np.hypot(scores[name]["stderr"], logging[name]["stderr"])
        assert 0 < gain["stderr"] < 0.95 * unpaired, name


def test_gains_of_several_policies_are_corrected_for_their_number(run: Run, tmp_path: Path) -> None:
    _write(tmp_path, p=GOOD, q=BAD, r=GOOD[::-1])
    names = ("p.safetensors", "q.safetensors", "r.safetensors")
    ran = run("evaluate", *names, "--logs", "log.parquet", "--metrics", "snips")
    assert (
        "log.parquet: scored on all 600 rows, all with feedback, no labels; gains corrected for 3 policies"
        in ran.stderr
    )
    for name in names:
        scores = _rows(tmp_path / "scores.parquet", name)
        gain, corrected = scores["snips-gain"], scores["snips-gain-simultaneous"]
        assert (corrected["value"], corrected["stderr"]) == (gain["value"], gain["stderr"])
        # Of many rows, Student's t is nearly normal.
        halves = [(row["high"] - row["low"]) / 2 / gain["stderr"] for row in (gain, corrected)]
        normal = [NormalDist().inv_cdf(1 - 0.025 / k) for k in (1, 3)]
        assert halves == pytest.approx(normal, rel=0.03)
        assert min(np.subtract(halves, normal)) > 0
        assert corrected["note"] == "over the logging policy; 3 policies compared (Bonferroni)"


def test_the_summary_says_better_worse_or_not_shown_to_be(run: Run, tmp_path: Path) -> None:
    """By the estimator of the value and by the simultaneous interval. Losses are printed as positive numbers."""
    _write(tmp_path, p=GOOD, q=BAD)
    ran = run("evaluate", "p.safetensors", "q.safetensors", "uniform", "--logs", "log.parquet")
    lines = {line.split()[0]: line for line in ran.stderr.splitlines() if " on log.parquet: " in line}
    scores = {name: _rows(tmp_path / "scores.parquet", name) for name in ("p.safetensors", "q.safetensors", "uniform")}
    gains = {name: rows["dr-gain-simultaneous"] for name, rows in scores.items()}
    for name, value, words in (
        ("p.safetensors", 1, "better by {value:.4f} [{low:.4f}, {high:.4f}] than the logging policy"),
        ("q.safetensors", -1, "worse by {value:.4f} [{low:.4f}, {high:.4f}] than the logging policy"),
    ):
        low, high = sorted((abs(gains[name]["low"]), abs(gains[name]["high"])))
        words = words.format(value=abs(gains[name]["value"]), low=low, high=high)
        assert (scores[name]["better"]["value"], scores[name]["better"]["note"]) == (value, words)
        assert f": value (dr) {scores[name]['dr']['value']:.4f} in [" in lines[name]
        assert f"; {words}; reliable: " in lines[name]
    assert "value (dr) " in lines[LOGGING_POLICY]
    few = arrays_of(one_hot([0] * 40, 1), [0, 1] * 20, [0.5] * 40, [-1, 0, 0, -1, 0] * 8)
    write_arrays(tmp_path / "few.parquet", few, 2)
    table_policy(tmp_path / "same.safetensors", [[0.6, 0.4]])
    ran = run("evaluate", "same.safetensors", "--logs", "few.parquet", "--metrics", "snips", "--force")
    gain = _rows(tmp_path / "scores.parquet", "same.safetensors")["snips-gain"]
    words = (
        f"not shown to be better than the logging policy ({gain['value']:.4f} [{gain['low']:.4f}, {gain['high']:.4f}])"
    )
    assert gain["low"] < 0 < gain["high"]
    assert words in ran.stderr


def test_any_policy_can_be_the_baseline(run: Run, tmp_path: Path) -> None:
    """A file that is among the policies, by any path; one that is not, which is scored too; the uniform one; none."""
    _write(tmp_path, p=GOOD, q=BAD)
    words = ("--logs", "log.parquet", "--metrics", "snips", "--force")
    both, values = ("p.safetensors", "q.safetensors"), {}
    for given, baseline, name, policies in (
        (both, "q.safetensors", "q.safetensors", [*both]),
        (both, tmp_path / "q.safetensors", "q.safetensors", [*both]),
        (("p.safetensors",), "./q.safetensors", "q.safetensors", [*both]),
        (("p.safetensors",), "uniform", "uniform", ["p.safetensors", "uniform"]),
        (("p.safetensors",), "logging", LOGGING_POLICY, ["p.safetensors"]),
        (("p.safetensors",), "none", None, ["p.safetensors"]),
    ):  # fmt: skip
        assert run("evaluate", *given, "--compare-to", baseline, *words).code == 0
        table, lineage = read_scores([str(tmp_path / "scores.parquet")])
        assert list(dict.fromkeys(table["policy"].to_pylist())) == [*policies, LOGGING_POLICY]
        compared = {row["policy"]: settings_of(row)["baseline"] for row in table.to_pylist() if "gain" in row["metric"]}
        others = {*policies, LOGGING_POLICY} - {name}
        assert compared == ({} if name is None else dict.fromkeys(others, name))
        again = command_lines(lineage[0])[-1]
        shown = "2-train.safetensors" if name == "q.safetensors" else baseline
        assert f"--compare-to {shown} " in again
        assert str(tmp_path) not in str(lineage[0])
        if name is not None:
            scores = _rows(tmp_path / "scores.parquet")
            values[name] = scores["snips-gain"]["value"]
            words_of_baseline = {"uniform": "the uniform policy", LOGGING_POLICY: "the logging policy"}.get(name, name)
            assert scores["better"]["note"].endswith(f" than {words_of_baseline}")
    assert values["q.safetensors"] > values[LOGGING_POLICY] > 0


def test_a_baseline_that_does_not_exist_is_refused(run: Run, tmp_path: Path) -> None:
    _write(tmp_path, p=GOOD)
    ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", "--compare-to", "old.safetensors")
    assert (ran.code, ran.stderr) == (2, "s2bl: old.safetensors does not exist: check the name and the folder\n")


@pytest.mark.parametrize("interval", ["normal", "bootstrap"])
def test_estimates_of_the_baseline_that_are_not_kept_are_computed_again(
    run: Run, tmp_path: Path, interval: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, 0.5, p=GOOD, q=BAD)
    words = ("p.safetensors", "q.safetensors", "--logs", "log.parquet", "--interval", interval)
    words = (*words, "--bootstrap-samples", "100", "--compare-to", "q.safetensors")
    assert run("evaluate", *words, "-o", "kept.parquet").code == 0
    monkeypatch.setattr(comparison, "_KEPT_BYTES", 0)
    assert run("evaluate", *words, "-o", "again.parquet").code == 0
    assert (tmp_path / "kept.parquet").read_bytes() == (tmp_path / "again.parquet").read_bytes()


def test_bootstrapped_gains_agree_with_normal_ones(run: Run, tmp_path: Path) -> None:
    _write(tmp_path, p=GOOD, q=BAD)
    made = {}
    for interval in ("normal", "bootstrap"):
        words = ("--logs", "log.parquet", "--metrics", "snips,dr", "--interval", interval, "-o", f"{interval}.parquet")
        assert run("evaluate", "p.safetensors", "q.safetensors", *words).code == 0
        made[interval] = _rows(tmp_path / f"{interval}.parquet")
    for name in ("snips-gain", "snips-gain-simultaneous", "dr-gain"):
        normal, drawn = made["normal"][name], made["bootstrap"][name]
        assert drawn["interval"] == "bootstrap"
        assert (drawn["low"], drawn["high"]) == pytest.approx((normal["low"], normal["high"]), abs=0.02)


def test_the_logging_policy_has_a_dr_value_whether_its_distribution_is_stored_or_not(run: Run, tmp_path: Path) -> None:
    """Not stored: dr is the mean reward of the known rows, its influence r less the mean. Stored: with q̂(x, π₀)."""
    rows = blobs(600, known=0.5, test_rows=0)
    write_arrays(tmp_path / "stored.parquet", rows, 3)
    _write(tmp_path, 0.5)
    for log in ("log", "stored"):
        assert run("evaluate", "logging", "--logs", f"{log}.parquet", "-o", f"{log}-scores.parquet").code == 0
    reward = -rows.cost[rows.known].astype(np.float64)
    drawn, stored = (_rows(tmp_path / f"{log}-scores.parquet", LOGGING_POLICY) for log in ("log", "stored"))
    assert drawn["dr"]["value"] == pytest.approx(reward.mean(), rel=1e-6)
    assert drawn["dr"]["stderr"] == pytest.approx(standard_error(reward - reward.mean()), rel=1e-6)
    assert stored["dr"]["value"] == pytest.approx(reward.mean(), abs=0.02)
    assert stored["dr"]["stderr"] < drawn["dr"]["stderr"]


# --- report ---


@pytest.mark.parametrize("name", gains.NAMES)
def test_every_gain_describes_itself(name: str) -> None:
    metric = gains.gain_metric(name)
    assert (metric.name, metric.group) == (name, "gain")
    assert metric.better == (None if name == "better" else "high")
    assert ("simultaneous" in metric.title) == name.endswith("-simultaneous")


def _table(text: str) -> dict[str, list[str]]:
    """The rows of a table of values, by their estimator: the cells."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    place = rows[0].index("estimator")
    return {row[place]: row[place + 1 :] for row in rows[2:]}


def test_report_shows_gains_below_the_values(run: Run, tmp_path: Path) -> None:
    """A row per estimator that can be the headline, with intervals, and the verdict in words. All else is as without
    gains."""
    _write(tmp_path, p=GOOD)
    for baseline in ("none", "logging", "uniform"):
        words = ("--logs", "log.parquet", "--compare-to", baseline, "-o", f"{baseline}.parquet")
        assert run("evaluate", "p.safetensors", "uniform", *words).code == 0
    plain, with_gains = (run("report", f"{name}.parquet", "--table", "ope").stdout for name in ("none", "logging"))
    rows = {name: cells for name, cells in _table(with_gains).items() if "gain" not in name}
    assert rows == _table(plain)
    gain = _rows(tmp_path / "logging.parquet")["dr-gain"]
    shown = f"{gain['value']:.4f} [{gain['low']:.4f}, {gain['high']:.4f}]"
    assert _table(with_gains)["DR gain over the logging policy"][0].strip("*") == shown
    assert [name.split()[0] for name in _table(with_gains) if "gain" in name] == ["IPS", "SNIPS", "DR", "PPI-DR"]
    better = _rows(tmp_path / "logging.parquet")["better"]["note"]
    assert f"\np.safetensors on log.parquet: {better}\n" in with_gains
    only = run("report", "logging.parquet", "--table", "ope", "--metric", "sndr").stdout
    assert [name for name in _table(only) if "gain" in name] == ["SNDR gain over the logging policy"]
    both = run("report", "logging.parquet", "uniform.parquet", "--table", "ope", "--metric", "dr").stdout
    assert [name for name in _table(both) if "gain" in name] == [
        "DR gain over the logging policy",
        "DR gain over the uniform policy",
    ]


def test_a_table_of_one_gain_has_intervals_and_names_the_baseline(run: Run, tmp_path: Path) -> None:
    _write(tmp_path, p=GOOD)
    for baseline in ("logging", "uniform"):
        words = ("--logs", "log.parquet", "--compare-to", baseline, "-o", f"{baseline}.parquet")
        assert run("evaluate", "p.safetensors", "uniform", *words).code == 0
    gain = _rows(tmp_path / "logging.parquet")["snips-gain"]
    ran = run("report", "logging.parquet", "--metric", "snips-gain")
    assert ran.code == 0
    assert ran.stdout.startswith("Gain over the logging policy by SNIPS, single run, with 95 % intervals (normal)\n")
    assert f"{gain['value']:.4f} [{gain['low']:.4f}, {gain['high']:.4f}]" in ran.stdout
    assert "Logging policy" not in ran.stdout, "it has no gain over itself"
    ran = run("report", "uniform.parquet", "--metric", "snips-gain")
    assert ran.stdout.startswith("Gain over the uniform policy by SNIPS, ")
    assert "Logging policy" in ran.stdout
    value = _rows(tmp_path / "logging.parquet")["snips"]
    ran = run("report", "logging.parquet", "--metric", "snips")
    assert ran.stdout.startswith("Expected reward by SNIPS, single run, with 95 % intervals (normal)\n")
    assert f"{value['value']:.4f} [{value['low']:.4f}, {value['high']:.4f}]" in ran.stdout
    # Two baselines are two gains, not two values of one.
    ran = run("report", "logging.parquet", "uniform.parquet", "--metric", "snips-gain", "--table", "main")
    assert ran.code == 0, ran.stderr
    assert ran.stdout.startswith("Gain over the baseline by SNIPS")
    assert "baseline logging-policy" in ran.stdout
    assert "baseline uniform" in ran.stdout


# --- claims ---


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        ("p > logging", 0),
        ("p > logging-policy", 0),
        ("logging < p", 0),
        ("p.safetensors >= logging", 0),
        ("p > uniform", 0),
        ("p > q", 0),
        ("q > logging", 1),
        ("logging > p", 1),
    ],
)
def test_confident_claims_name_policies_and_baselines(run: Run, tmp_path: Path, claim: str, code: int) -> None:
    """The gain is the one of `evaluate --compare-to`, with its interval, by the estimator of the value."""
    _write(tmp_path, p=GOOD, q=BAD)
    baseline = next(
        (word for name, word in {"uniform": "uniform", "q": "q.safetensors"}.items() if claim.endswith(f" {name}")),
        "logging",
    )
    words = ("p.safetensors", "q.safetensors", "uniform", "--logs", "log.parquet", "--compare-to", baseline)
    assert run("evaluate", *words).code == 0
    ran = run("report", "scores.parquet", "-o", "table.md", "--check", claim, "--confident")
    assert ran.code == code, ran.stderr
    assert ran.stderr.startswith("holds: " if code == 0 else "warning: fails: ")
    if claim in ("p > logging", "p > uniform", "p > q"):
        gain = _rows(tmp_path / "scores.parquet")["ppi-dr-gain"]
        numbers = f"{gain['value']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}] (ppi-dr)"
        assert f"a difference of {numbers}" in ran.stderr


def test_a_confident_claim_needs_a_paired_difference(run: Run, tmp_path: Path) -> None:
    _write(tmp_path, p=GOOD, q=BAD)
    assert run("evaluate", "p.safetensors", "q.safetensors", "--logs", "log.parquet").code == 0
    ran = run("report", "scores.parquet", "--metric", "dr", "--check", "p > q", "--confident")
    assert (ran.code, ran.stdout, ran.stderr) == (
        2,
        "",
        "s2bl: --check 'p > q' --confident: these scores have no paired difference of dr: run s2bl evaluate with "
        "--compare-to q.safetensors\n",
    )
    assert run("report", "scores.parquet", "--metric", "dr", "--check", "p > q").code == 0, "by the values alone"
    ran = run("report", "scores.parquet", "--metric", "ix", "--check", "p > logging", "--confident")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: --confident needs an interval, and ix has none: try --metric dr or snips\n",
    )


def test_a_margin_moves_a_confident_claim(run: Run, tmp_path: Path) -> None:
    """It holds up to the lower end of the interval, where the plain claim holds up to the value."""
    _write(tmp_path, p=GOOD)
    assert run("evaluate", "p.safetensors", "--logs", "log.parquet", "--metrics", "snips,health").code == 0
    gain = _rows(tmp_path / "scores.parquet")["snips-gain"]
    check = ("report", "scores.parquet", "--metric", "snips", "-o", "table.md", "--force", "--check")
    for margin, plain, confident in (
        (gain["low"] - 1e-4, 0, 0),
        (gain["low"] + 1e-4, 0, 1),
        (gain["value"] + 1e-4, 1, 1),
    ):
        claim = f"p > logging + {margin:.6f}"
        assert (run(*check, claim).code, run(*check, claim, "--confident").code) == (plain, confident)


def test_an_unreliable_log_shows_nothing(run: Run, tmp_path: Path) -> None:
    """Propensities that are half of what they were: the gain is large, its interval excludes 0, and the mean weight
    is 2."""
    rows = blobs(600, test_rows=0)
    context, half = rows.context, rows.propensity / 2
    write_arrays(tmp_path / "log.parquet", arrays_of(context, rows.action, half, rows.cost), 3)
    table_policy(tmp_path / "p.safetensors", GOOD)
    assert run("evaluate", "p.safetensors", "--logs", "log.parquet", "--metrics", "ips,health").code == 0
    check = ("report", "scores.parquet", "--metric", "ips", "-o", "table.md", "--force", "--check", "p > logging")
    assert run(*check).code == 0
    ran = run(*check, "--confident")
    assert ran.code == 1
    assert "] (ips); p.safetensors on log.parquet: unreliable: the mean weight is " in ran.stderr
