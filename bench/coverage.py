"""Bias of the estimates, coverage of the intervals and the verdict, on simulated logs whose true value is known.

    python bench/coverage.py [--replications 2000] [--processes 1] [--only WORD] [--write docs/coverage.md]
    python bench/coverage.py --draw docs/coverage.md     only draw the figure again, from the tables of the page

Each replication draws a log, cross-fits a reward model on its known rows and runs the estimators, intervals and the
verdict of s2bl themselves. Contexts are one of 20 kinds, so the value of the policy is a sum and the reward model a
table of means, shrunk to the overall mean; or the models are those of s2bl. Exits 1 if a promise is broken. In the
worlds that have a section of their own:

    unbiased estimators     the mean over replications is within 3 standard errors of the truth
    normal, bootstrap       cover at 95 % ± 2 points
    Bernstein, ix, ls       cover at 95 % − 2 points or more: 95 % is their floor
    ppi-dr                  is at least 20 % narrower than dr at ρ = 0.05 where context predicts the reward well

Over the logs of all worlds:

    verdict "reliable"      normal intervals of each estimator cover at 93 % or more, the paired difference to the
                            logging policy at 95 % ± 2 points
    benign worlds           at least 80 % of the logs are "reliable"
    only purchases known    no log is "reliable"
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from s2bl_cli.metrics.dependence import dependence
from s2bl_cli.metrics.estimate import (
    IntervalSettings,
    difference,
    intervals,
)
from s2bl_cli.metrics.health import CAUTION, RELIABLE, UNRELIABLE
from s2bl_cli.metrics.missing_feedback import mismatch, one_sided
from s2bl_cli.metrics.sample import PI, VALUE_HAT, LoggedSample, ScoredPolicy
from s2bl_cli.registry import ESTIMATORS, METRICS
from s2bl_cli.reward_models.logistic import cross_fit
from s2bl_cli.reward_models.observation_model import cross_fit_observation
from s2bl_cli.reward_models.reward_model import assign_folds
from s2bl_cli.reward_models.settings import RewardModelSettings

KINDS, ACTIONS, FOLDS = 20, 5, 5
AT_ONCE = 50  # logs in memory
GROUPS = 4  # of contexts, by which feedback is missing in one world
LEVEL, SLACK = 0.95, 0.02
EXACT, FLOOR = "95 ± 2", "≥ 93"  # the two checks
CHECKS = {"normal": EXACT, "bootstrap": EXACT, "bernstein": FLOOR, "lower-bound": FLOOR}
UNBIASED = ("ips", "tips", "dr", "empirical-ips", "ppi-dr")  # the others only as rows grow
NO_PROMISE = ("dm",)  # as biased as its model
NAMES = ESTIMATORS.names
COMPARED = ("snips", "dr")  # whose differences to the logging policy are simulated
LEAST_LOGS = 100  # with fewer reliable logs, no rate is shown
CLICKS, GRADED, RARE, REVENUE = "clicks", "graded", "rare clicks", "revenue"
ROWS_PER_USER = 10
FIGURE = "figures/coverage.svg"  # beside the page


def softmax(logits):
    e = np.exp(logits)
    return e / e.sum(axis=1, keepdims=True)


class World:
    """A problem whose every probability is known.

    `rho` is the share of rows with feedback. With `missing_by`, who has it depends on context and action: on the
    action and one of four groups of contexts; on every kind of context and action, each with a rate of its own; on
    whether the first feature is far from 0, which also decides how high rewards are; or on the reward, which is known
    if it is positive. Without `modelled`, no model of missingness is used. Rewards are
    `CLICKS` (0 or 1), `GRADED` (near their mean), `RARE` (1 in about 0.5 % of the rows) or `REVENUE` (mostly 0, else
    lognormal). With `own_models` the models of reward and missingness are those of s2bl, which see features of the
    context, not its kind. The policy has logits `sharp`·taste, or takes the best action if `sharp` is None; the logging
    policy has `flat`·taste and as much noise. With `users`, a user has ten rows of one kind of context, and half of the
    draws in common. `benign`: "reliable" is promised.
    """

    def __init__(
        self,
        name,
        rows,
        rho=1.0,
        *,
        rewards=CLICKS,
        missing_by=None,
        modelled=True,
        own_models=False,
        actions=ACTIONS,
        sharp=1.2,
        flat=0.5,
        users=False,
        benign=False,
    ):
        self.name, self.rows, self.rho, self.rewards, self.missing_by = name, rows, rho, rewards, missing_by
        self.modelled, self.own_models, self.actions = modelled and missing_by is not None, own_models, actions
        self.users, self.benign = users, benign
        rng = np.random.default_rng(7)
        taste = rng.standard_normal((KINDS, actions))
        level = shown_level = rng.standard_normal((KINDS, 1)) * (1.5 if rewards == GRADED else 0.3)
        is_far = np.abs(taste[:, :1]) > np.median(np.abs(taste[:, 0]))
        if missing_by == "distance":
            level = np.where(is_far, 1.5, -1.5)
        self.rate = 1 / (1 + np.exp(-(level + (0.3 if rewards == GRADED else 1.0) * taste)))
        self.pi0 = softmax(flat * taste + flat * rng.standard_normal((KINDS, actions)))
        self.pi = np.eye(actions)[taste.argmax(axis=1)] if sharp is None else softmax(sharp * taste)
        self.price = np.exp(0.5 * taste)
        if rewards == RARE:
            self.rate = 0.004 * np.exp(0.7 * taste)
        if rewards == REVENUE:
            self.rate = 0.3 * self.rate
        self.mean = self.rate * self.price * np.exp(0.8**2 / 2) if rewards == REVENUE else self.rate
        self.seen = np.full((KINDS, actions), rho)
        if missing_by == "group":
            self.seen = rng.uniform(0.1, 0.6, (GROUPS, actions))[np.arange(KINDS) % GROUPS]
        if missing_by == "kind":
            self.seen = np.random.default_rng(11).uniform(0.1, 0.6, (KINDS, actions))
        if missing_by == "distance":
            self.seen = np.broadcast_to(np.where(is_far, 0.45, 0.05), (KINDS, actions))
        self.features = np.hstack([taste, shown_level, rng.standard_normal((KINDS, 2))]).astype(np.float32)
        self.value = float((self.pi * self.mean).sum(axis=1).mean())
        self.gain = self.value - float((self.pi0 * self.mean).sum(axis=1).mean())
        self.range = {CLICKS: (0.0, 1.0), RARE: (0.0, 1.0), GRADED: (0.02, 1.08), REVENUE: None}[rewards]

    def draw(self, rng):
        x = rng.integers(0, KINDS, self.rows)
        if self.users:
            x = np.repeat(x[: self.rows // ROWS_PER_USER], ROWS_PER_USER)
        below = rng.random((self.rows, 1))
        a = (self.pi0.cumsum(axis=1)[x] < below).sum(axis=1).clip(max=self.actions - 1)
        if self.rewards == GRADED:
            r = self.mean[x, a] + rng.uniform(-0.1, 0.1, self.rows)
        else:
            luck = rng.random(self.rows)
            if self.users:
                shared = np.repeat(rng.random(self.rows // ROWS_PER_USER), ROWS_PER_USER)
                luck = np.where(rng.random(self.rows) < 0.5, shared, luck)
            r = (luck < self.rate[x, a]).astype(float)
        if self.rewards == REVENUE:
            r *= self.price[x, a] * np.exp(rng.normal(0, 0.8, self.rows))
        return x, a, r, r > 0 if self.missing_by == "reward" else rng.random(self.rows) < self.seen[x, a]

    def assign_folds(self, known, seed):
        if not self.users:
            return assign_folds(known, FOLDS, seed)
        return np.repeat(assign_folds(np.ones(self.rows // ROWS_PER_USER, bool), FOLDS, seed), ROWS_PER_USER)


WORLDS = (
    World("All feedback known", rows=2000, rho=1.0),
    World("At ρ = 0.05", rows=20_000, rho=0.05),
    World("At ρ = 0.05, context predicts the reward well", rows=20_000, rho=0.05, rewards=GRADED),
    World("At ρ = 0.05, with the reward model of evaluate", rows=20_000, rho=0.05, rewards=GRADED, own_models=True),
    World("Missing by groups of contexts, by action", rows=10_000, rho=0.25, missing_by="group"),
    World(
        "Missing by context and action, with the models of evaluate",
        rows=10_000,
        rho=0.25,
        missing_by="kind",
        own_models=True,
    ),
    World(
        "Missing by context and action, with the models of evaluate, context predicts the reward well",
        rows=10_000,
        rho=0.25,
        missing_by="kind",
        own_models=True,
        rewards=GRADED,
    ),
)

# Without a section of their own: one line each.
OTHER_WORLDS = (
    World("clicks, 500 rows", 500, benign=True),
    World("clicks, 5,000 rows, a fifth known", 5000, 0.2, benign=True),
    World("graded, 1,000 rows", 1000, rewards=GRADED, benign=True),
    World("2 actions, 1,000 rows", 1000, actions=2, benign=True),
    World("50 actions, 5,000 rows", 5000, actions=50, benign=True),
    World("clicks, 200 rows", 200),
    World("50 actions, 1,000 rows", 1000, actions=50),
    World("best of 50 actions, uniform logging", 20_000, actions=50, flat=0.0, sharp=None),
    World("heavy weights, 500 rows", 500, sharp=4.0, flat=1.0),
    World("heavy weights, 2,000 rows", 2000, sharp=4.0, flat=1.0),
    World("heavy weights, 5,000 rows", 5000, sharp=4.0, flat=1.0),
    World("very heavy weights, 2,000 rows", 2000, actions=10, sharp=5.0, flat=1.5),
    World("opposite policy, 5,000 rows", 5000, actions=10, sharp=-1.2, flat=1.0),
    World("rare clicks, 2,000 rows", 2000, rewards=RARE),
    World("rare clicks, 5,000 rows", 5000, rewards=RARE),
    World("rare clicks, 20,000 rows", 20_000, rewards=RARE),
    World("rare clicks, heavy weights, 5,000 rows", 5000, rewards=RARE, actions=10, sharp=4.0, flat=1.5),
    World("revenue, 500 rows", 500, rewards=REVENUE),
    World("revenue, 2,000 rows", 2000, rewards=REVENUE),
    World("revenue, 5,000 rows", 5000, rewards=REVENUE),
    World("revenue, heavy weights, 5,000 rows", 5000, rewards=REVENUE, sharp=3.0, flat=1.0),
    World("missing by groups, 5,000 rows, no model", 5000, missing_by="group", modelled=False),
    World("missing by distance, 5,000 rows, no model", 5000, missing_by="distance", modelled=False, own_models=True),
    World("missing by distance, 5,000 rows, with the models of evaluate", 5000, missing_by="distance", own_models=True),
    World("only purchases known, 5,000 rows", 5000, rewards=REVENUE, missing_by="reward", modelled=False),
    World("500 users with 10 rows each", 5000, users=True),
)


def tables(cell, value, weight, fold, shrink, cells):
    """Cross-fitted means of every (context, action) cell, shrunk to the overall one: (folds, cells)."""
    made = []
    for j in range(FOLDS):
        learns = (fold != j) * weight
        total, count = (np.bincount(cell, learns * v, minlength=cells) for v in (value, 1.0))
        overall = total.sum() / count.sum()
        made.append((total + shrink * overall) / (count + shrink))
    return np.array(made)


class Logs:
    """Some logs of a world, with the models of reward and missingness that are cross-fitted on each."""

    def __init__(self, world, seeds):
        self.world, self.seeds = world, seeds
        self.drawn = [world.draw(np.random.default_rng([seed, world.rows])) for seed in seeds]
        self.folds = [world.assign_folds(known, seed) for (*_, known), seed in zip(self.drawn, seeds, strict=True)]
        self.q = self._own_rewards() if world.own_models else self._reward_tables()  # (folds, kinds, actions) each
        self.seen = [None] * len(seeds)  # P(known | x, a) of every row
        if world.missing_by is not None or world.rho < 1:
            self.seen = self._own_observations() if world.modelled and world.own_models else self._observation_tables()

    def _each(self):
        return zip(self.drawn, self.folds, self.seeds, strict=True)

    def _reward_tables(self):
        actions, made = self.world.actions, []
        for (x, a, r, known), fold, _ in self._each():
            table = tables(x * actions + a, r, known.astype(float), fold, 2, KINDS * actions)
            made.append(table.reshape(FOLDS, KINDS, actions))
        return made

    def _observation_tables(self):
        actions, made = self.world.actions, []
        for (x, a, _, known), fold, _ in self._each():
            group = x % GROUPS * actions + a
            table = tables(group, known.astype(float), np.ones(len(x)), fold, 2, GROUPS * actions)
            made.append(table[fold, group])
        return made

    def _own_rewards(self):
        every_kind, made = np.tile(self.world.features, (FOLDS, 1)), []
        for (x, a, r, known), fold, _ in self._each():
            model = cross_fit(self.world.features[x[known]], a[known], r[known], fold[known], self.world.actions)
            predicted = model.predict(every_kind, np.repeat(np.arange(FOLDS), KINDS))
            made.append(predicted.reshape(FOLDS, KINDS, self.world.actions).astype(float))
        return made

    def _own_observations(self):
        made = []
        for (x, a, _, known), fold, seed in self._each():
            settings = RewardModelSettings(folds=FOLDS, seed=seed)
            context = self.world.features[x]
            model = cross_fit_observation(context, a, known, fold, self.world.actions, settings)
            made.append(model.probability(context, a, fold).astype(float))
        return made


class Replication:
    """What s2bl finds in one log: estimates and intervals by name, differences to the logging policy, the verdict."""

    def __init__(self, logs, i, kinds, draws):
        world, (x, a, r, known), fold = logs.world, logs.drawn[i], logs.folds[i]
        q, seen = logs.q[i], logs.seen[i]
        sample = LoggedSample(
            a,
            world.pi0[x, a],
            np.where(known, r, 0.0),
            known,
            None,
            world.actions,
            q=q[fold, x, a],
            observed=seen if world.modelled else None,
            declared_range=world.range,
            cluster=np.arange(world.rows) // ROWS_PER_USER if world.users else None,
        )

        def scored(pi):
            return ScoredPolicy(sample, {PI.name: pi[x, a], VALUE_HAT.name: np.einsum("fxa,xa->fx", q, pi)[fold, x]})

        policy, logging = scored(world.pi), scored(world.pi0)
        estimates = {name: _estimate(name, policy) for name in NAMES}
        self.made = []  # name, value, interval
        for kind in kinds:
            settings = IntervalSettings(kind, LEVEL, draws, logs.seeds[i])
            made = intervals(list(estimates.values()), settings)
            self.made += [
                (name, estimate.value, interval)
                for (name, estimate), interval in zip(estimates.items(), made, strict=True)
            ]
        self.gains = []
        for name in COMPARED:
            gain = difference(estimates[name], _estimate(name, logging))
            (interval,) = intervals([gain], IntervalSettings())
            self.gains.append((name, gain.value, interval))
        concerns = [mismatch(policy)]
        if seen is not None:
            probability = seen.astype(np.float32) if world.modelled else None
            concerns.append(dependence(world.features[x], a, known, sample.cluster, probability=probability))
        self.is_mismatch = world.modelled and any(fault is not None for fault in concerns)
        concerns.append(one_sided(sample))
        judged = ScoredPolicy(sample, policy.columns, concerns=tuple(filter(None, concerns)))
        (verdict,) = METRICS.load("health").compute(judged)
        self.verdict = int(verdict.value)
        (ess,) = METRICS.load("ess").compute(policy)
        self.ess = ess.value


def _estimate(name, policy):
    (estimate,) = ESTIMATORS.load(name).compute(policy)
    return replace(estimate, cluster=policy.sample.cluster_of(estimate.rows))


def is_covered(interval, value):
    return interval.low <= value and (interval.high is None or value <= interval.high)


class Simulation:
    """All replications of a world: arrays with one number per log."""

    def __init__(self, world, kinds, replications, draws):
        self.world, self.replications = world, replications
        self.values = {name: np.empty(replications) for name in NAMES}
        self.covered = {name: {} for name in NAMES}  # name → interval → replications
        self.widths = {name: {} for name in NAMES}
        self.gain_covered = {name: np.empty(replications) for name in COMPARED}
        self.is_mismatch, self.verdict, self.ess = (np.zeros(replications) for _ in range(3))
        for start in range(0, replications, AT_ONCE):
            logs = Logs(world, range(start, min(start + AT_ONCE, replications)))
            for i in logs.seeds:
                self._add(i, Replication(logs, i - start, kinds, draws))

    def _add(self, i, one):
        for name, value, interval in one.made:
            self.values[name][i] = value
            if interval.kind is not None:
                for kept, number in (
                    (self.covered, is_covered(interval, self.world.value)),
                    (self.widths, np.inf if interval.high is None else interval.high - interval.low),
                ):
                    kept[name].setdefault(interval.kind, np.full(self.replications, np.nan))[i] = number
        for name, _, interval in one.gains:
            self.gain_covered[name][i] = is_covered(interval, self.world.gain)
        self.is_mismatch[i], self.verdict[i], self.ess[i] = one.is_mismatch, one.verdict, one.ess

    @property
    def normal(self):
        """Whether normal intervals of estimates and of differences cover, by name."""
        estimates = {name: kinds["normal"] for name, kinds in self.covered.items() if "normal" in kinds}
        return {**estimates, **{f"{name} gain": covered for name, covered in self.gain_covered.items()}}


def is_kept(rate, check):
    return rate >= LEVEL - SLACK and (check == FLOOR or rate <= LEVEL + SLACK)


def table(simulation):
    """The world's section of the report, and the promises it breaks."""
    world, values, covered, widths = simulation.world, simulation.values, simulation.covered, simulation.widths
    replications, is_reliable = simulation.replications, simulation.verdict == RELIABLE
    columns = [kind for kind in CHECKS if any(kind in covered[name] for name in NAMES)]
    lines, broken = [], []
    for name in NAMES:
        error = values[name].std(ddof=1) / np.sqrt(replications)
        z = (values[name].mean() - world.value) / error
        if name in UNBIASED and world.missing_by is None and abs(z) > 3:
            broken.append(f"{world.name}: {name} is biased, {z:.1f} standard errors")
        cells = []
        for kind in columns:
            rate = covered[name][kind].mean() if kind in covered[name] else None
            is_broken = rate is not None and name not in NO_PROMISE and not is_kept(rate, CHECKS[kind])
            cells.append("" if rate is None else f"{rate:.1%}" + (" ✗" if is_broken else ""))
            if is_broken:
                broken.append(f"{world.name}: the {kind} interval of {name} covers in {rate:.1%} ({CHECKS[kind]})")
        half = [f"{widths[name][kind].mean():.4f}" if kind in widths[name] else "" for kind in ("normal", "bernstein")]
        half = half if "bernstein" in columns else half[:1]
        shown = " | ".join([*half, *cells])
        lines.append(f"| `{name}` | {values[name].mean():.4f} | {z:+.1f} | {shown} |")
    narrower = 1 - np.mean(widths["ppi-dr"]["normal"]) / np.mean(widths["dr"]["normal"])
    if world.rewards == GRADED and world.rho == 0.05 and narrower < 0.2:
        broken.append(f"{world.name}: ppi-dr is only {narrower:.1%} narrower than dr")
    named = [f"{kind}: {CHECKS[kind]}" for kind in columns]
    width = ["width", "bernstein width"] if "bernstein" in columns else ["width"]
    head = ["estimator", "mean", "bias in s.e.", *width, *named]
    known = (world.pi0 * world.seen).sum(axis=1).mean()
    words = (
        f"## {world.name}\n\n{replications:,} logs of {world.rows:,} rows, about {world.rows * known:,.0f} of them "
        f"known; the true value is {world.value:.4f}. The verdict is reliable in {is_reliable.mean():.1%} of the logs. "
    )
    if world.missing_by is None:
        words += f"The interval of `ppi-dr` is {narrower:.1%} narrower than that of `dr`."
    else:
        mismatch_rate = simulation.is_mismatch.mean()
        words += f"A mismatch of the model of missingness is reported in {mismatch_rate:.1%} of the logs."
    rule = "| --- |" + " ---: |" * (len(head) - 1)
    return "\n".join([words, "", f"| {' | '.join(head)} |", rule, *lines]), broken


def overview(simulations):
    """The coverage of normal intervals in every world, on all logs and on those with the verdict "reliable"; and the
    promises on verdicts that are broken."""
    names = [name for name in simulations[0].normal if name not in ("tips", "empirical-ips")]  # here the same as ips
    lines, broken, below = [], [], []
    for simulation in simulations:
        world, is_reliable = simulation.world, simulation.verdict == RELIABLE
        shares = [(simulation.verdict == level).mean() for level in (RELIABLE, CAUTION, UNRELIABLE)]
        if world.benign and shares[0] < 0.8:
            broken.append(f"{world.name}: only {shares[0]:.1%} of the logs are reliable")
        if world.missing_by == "reward" and shares[0] > 0:
            broken.append(f"{world.name}: {shares[0]:.1%} of the logs are reliable")
        cells = []
        for name in names:
            covered = simulation.normal[name]
            cell = f"{100 * covered.mean():.1f}"
            if is_reliable.sum() >= LEAST_LOGS:
                rate = covered[is_reliable].mean()
                cell += f" / {100 * rate:.1f}"
                if rate < LEVEL - SLACK:
                    below.append((rate, name, world.name))
            cells.append(cell)
        title = f"{world.name} (benign)" if world.benign else world.name
        verdicts = " / ".join(f"{100 * share:.0f}" for share in shares)
        lines.append(f"| {title} | {np.median(simulation.ess):,.0f} | {verdicts} | {' | '.join(cells)} |")
    pooled = []
    for name in names:
        rates = [simulation.normal[name][simulation.verdict == RELIABLE] for simulation in simulations]
        rate = np.concatenate(rates).mean()
        pooled.append(f"**{100 * rate:.1f}**")
        if not is_kept(rate, EXACT if name.endswith("gain") else FLOOR):
            broken.append(f"intervals of {name} in reliable logs cover in {rate:.1%}")
    number = sum(int((simulation.verdict == RELIABLE).sum()) for simulation in simulations)
    lines.append(f"| **all reliable logs** ({number:,}) | | | {' | '.join(pooled)} |")
    head = ["world", "ESS", "verdicts", *(f"`{name}`" if "gain" not in name else name for name in names)]
    rule = "| --- |" + " ---: |" * (len(head) - 1)
    return "\n".join([f"| {' | '.join(head)} |", rule, *lines]), _exceptions(below), broken


def _exceptions(below):
    if not below:
        return "In every world, intervals of reliable logs cover in 93 % of the logs or more."
    by_world = {}
    for rate, name, world in sorted(below):
        by_world.setdefault(world, []).append((rate, name))
    items = [
        f"- {world}: {', '.join(name for _, name in rates)} (the lowest {rates[0][0]:.1%})"
        for world, rates in by_world.items()
    ]
    return "\n".join(
        ["The intervals of reliable logs cover in less than 93 % of the logs in these worlds:", "", *items]
    )


INTRO = """# Interval coverage

![Coverage of 95 % intervals per estimator and simulated world](figures/coverage.svg)

The figure shows how often 95 % intervals contain the true value, per estimator (rows) and simulated world (colours). It
has the worlds that have a section below. The line is the nominal level, and the grey band is the range that passes the
check. The true value is known, because the logs are simulated. This command simulates them and writes this page:

```sh
python bench/coverage.py --write docs/coverage.md
```

## The verdict

The [verdict](evaluate.md#reliability-of-the-estimates-health) of `s2bl evaluate` has to show in which logs the
intervals can be used. The table has the coverage of normal 95 % intervals in REPLICATIONS logs per world: in all logs /
in the logs whose verdict is reliable, if there are LEAST or more of these. The standard error of a rate is SE points in
all logs. `snips gain` and `dr gain` are paired differences to the logging policy. ESS is the median effective sample
size. The verdicts are the shares of reliable, caution and unreliable logs in %.

OVERVIEW

EXCEPTIONS

- **Checks.** Over all reliable logs, the intervals of every estimator cover in 93 % or more, and those of the
  differences in 95 ± 2 %. In the benign worlds (good overlap, 500 known rows or more, feedback missing at random), at
  least 80 % of the logs are reliable. If only purchases are known, no log is reliable.
- **Rewards** are 0 or 1 (clicks), close to their mean (graded), 1 in about 0.5 % of the rows (rare clicks), or mostly 0
  and otherwise lognormal (revenue). Weights are heavy if the policy is much more decided than the logging policy.
- **Few rows that carry the estimate** are the main reason for low coverage: rare clicks, purchases of very different
  amounts, a few large weights. What is large is rare, so most logs have too little of it, and their estimates and
  standard errors are too small. The verdict is computed from the same rows and cannot see what is missing in them. With
  heavy weights and skewed revenue, logs that look fine cover less often than all logs.
- **The mean weight** shows some of what is missing, because its expectation is 1. In a log without the rare large
  weights it is too small. So a mean weight that is more than two standard errors from 1 is a reason for caution,
  although that happens by chance in 5 % of the logs.
- **Feedback that is missing by context and action** makes values biased without `--missing-model`. `evaluate` detects
  it, and such logs are not reliable. In the worlds "missing by distance", rewards are high and feedback is common where
  the first feature is far from 0, on either side.
- **Limits on the influences of a gain** were tried: the largest share of one row, the number of rows that carry it, its
  kurtosis and its skewness. Each leaves logs that cover less often. With heavy weights and skewed revenue, for example,
  the `dr` gain covers in 87.9 % of the reliable logs, and in 81.0 % of those in which no row has a quarter of its
  variance (400 logs).
- **Users** have ten rows each, which are not independent. The standard errors are those of clusters.

## Setup of the sections

There are 20 kinds of contexts and 5 actions. Each replication draws a log, cross-fits a reward model, and computes the
[estimators](estimators.md) and intervals of `s2bl evaluate`, with DRAWS bootstrap samples instead of 1,000. The reward
model is a table of shrunken means, or the model of `s2bl evaluate` if the heading says so. The columns of the tables
are:

- **mean**: the mean of the estimate over all replications;
- **bias in s.e.**: its difference from the true value, in standard errors of that mean; beyond ±3 it is bias;
- **width**: the mean width of the normal interval and of the Bernstein interval;
- **coverage**: per kind of interval, the share of replications in which it contains the true value. The heading has the
  check, and ✗ marks a rate that fails it.

| interval | check | reason |
| --- | --- | --- |
| `normal`, `bootstrap` | 95 ± 2 | their level is approximate, and improves with more rows |
| `bernstein`, the lower bounds of `ix` and `ls` | ≥ 93 | their level is a minimum: "at least 95 %" |

The Bernstein interval and the two lower bounds are valid for any number of rows and any distribution of the rewards
within their declared range. So they must be wide enough for the worst distribution, in which terms are nearly always
equal and very rarely as large as the smallest propensity allows. On other logs, including these, they cover more often
than stated. The tables show the price, which is their width.

- `ips`, `tips` (no propensity is below ν here), `dr`, `empirical-ips` and `ppi-dr` are unbiased. The bias of the others
  vanishes as the number of rows grows, except for `dm`, which is as biased as its model and has no interval.
- A cell is empty if the interval does not exist. The Bernstein inequality applies only to unbiased means; other
  estimators keep the normal interval. With a model of missingness, neither the Bernstein interval nor the bounds of
  `ix` and `ls` exist.
- In the last three sections, feedback is missing by context and action, and `--missing-model` is simulated. The first
  of them fits a table of rates by action and group of contexts, which can be exact. In the other two, every kind of
  context and action has its own random rate between 0.1 and 0.6. There the models are those of `s2bl evaluate`, which
  use eight features of the context, so they are not exact. In all three sections `ppi-dr` equals `dr`.
"""


def coverage_rates(page):
    """(section, interval, estimator) → coverage in percent, from the tables of the page."""
    rates, section, head = {}, "", []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("## "):
            section, head = line.removeprefix("## "), []
        elif line.startswith("| estimator"):
            head = [name.partition(":")[0] for name in cells]
        elif head and line.startswith("| `"):
            for kind, cell in zip(head, cells, strict=True):
                if kind in CHECKS and cell:
                    rates[section, kind, cells[0].strip("`")] = float(cell.split("%")[0])
    return rates


def draw(page, target):
    """Coverage of every interval and world against the nominal level. `dm`, which has no interval, is left out."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "s2bl"
    import matplotlib.pyplot as plt

    rates = coverage_rates(page)
    sections = list(dict.fromkeys(section for section, _, _ in rates))
    names = [name for name in NAMES if name not in NO_PROMISE]
    figure, panels = plt.subplots(1, 3, figsize=(9, 5.2), sharey=True, layout="constrained")
    titles = {
        ("normal",): "normal",
        ("bootstrap",): "bootstrap",
        ("bernstein", "lower-bound"): "Bernstein, lower bounds",
    }
    for panel, (kinds, title) in zip(panels, titles.items(), strict=True):
        is_floor = CHECKS[kinds[0]] == FLOOR
        panel.axvspan(93, 100.5 if is_floor else 97, color="0.92")
        panel.axvline(100 * LEVEL, color="0.4", linewidth=1)
        for i, section in enumerate(sections):
            points = [
                (rate, names.index(n))
                for (s, k, n), rate in rates.items()
                if s == section and k in kinds and n in names
            ]
            if points:
                x, y = zip(*points, strict=True)
                panel.scatter(x, [row + (i - 3) * 0.1 for row in y], s=12, color=f"C{i}")
        panel.set(title=title, xlabel="coverage, %", xlim=(92, 100.5 if is_floor else 98))
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    dots = [plt.Line2D([], [], marker="o", linestyle="", markersize=4, color=f"C{i}") for i in range(len(sections))]
    figure.legend(dots, sections, loc="outside lower center", fontsize=8)
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, metadata={"Date": None})


def simulate(world, replications, draws):
    torch.set_num_threads(1)
    started = time.process_time()
    kinds = ("normal",)
    if world.name in [some.name for some in WORLDS]:  # a copy, if this is another process
        kinds = ("normal", "bootstrap") if world.missing_by else ("normal", "bernstein", "bootstrap")
    simulation = Simulation(world, kinds, replications, draws)
    print(f"{world.name}: {time.process_time() - started:.0f} CPU s", file=sys.stderr, flush=True)
    return simulation


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=119, help="of the bootstrap; best one less than a multiple of 40")
    parser.add_argument("--processes", type=int, default=1, help="a world is simulated by one of them")
    parser.add_argument("--only", default="", help="the worlds whose name has this in it")
    parser.add_argument("--write", type=Path, help="write the tables to this page")
    parser.add_argument("--draw", type=Path, help="draw the figure of this page again, without a simulation")
    options = parser.parse_args()
    if options.draw:
        draw(options.draw.read_text(), options.draw.parent / FIGURE)
        return 0
    worlds = [world for world in (*WORLDS, *OTHER_WORLDS) if options.only in world.name]
    simulations, sections, broken = [], [], []
    with ProcessPoolExecutor(options.processes) as pool:
        simulate_world = partial(simulate, replications=options.replications, draws=options.draws)
        for world, simulation in zip(worlds, pool.map(simulate_world, worlds), strict=True):
            simulations.append(simulation)
            if world in WORLDS:
                text, faults = table(simulation)
                print(text, "\n", flush=True)
                sections.append(text)
                broken += faults
    seen, exceptions, faults = overview(simulations)
    print(seen, exceptions, sep="\n\n", end="\n\n", flush=True)
    broken += faults
    if options.write:
        numbers = {"REPLICATIONS": f"{options.replications:,}", "LEAST": str(LEAST_LOGS), "DRAWS": str(options.draws)}
        numbers["SE"] = f"{100 * np.sqrt(LEVEL * (1 - LEVEL) / options.replications):.1f}"
        page = INTRO
        for word, number in {**numbers, "OVERVIEW": seen, "EXCEPTIONS": exceptions}.items():
            page = page.replace(word, number)
        options.write.write_text("\n\n".join([page.rstrip("\n"), *sections]) + "\n")
        draw(options.write.read_text(), options.write.parent / FIGURE)
    for fault in broken:
        print(f"BROKEN: {fault}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
