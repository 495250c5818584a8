"""Bias of the estimates and coverage of the intervals, on simulated logs whose true value is known.

    python bench/coverage.py [--replications 2000] [--only WORD] [--write docs/coverage.md]
    python bench/coverage.py --draw docs/coverage.md     only draw the figure again, from the tables of the page

Each replication draws a log, cross-fits a reward model on its known rows and runs the estimators and intervals of s2bl
themselves. Contexts are one of 20 kinds, so the value of the policy is a sum and the reward model a table of means,
shrunk to the overall mean; or the models are those of s2bl. All takes about 12 minutes of one processor. Exits 1 if a
promise is broken:

    unbiased estimators     the mean over replications is within 3 standard errors of the truth
    normal, bootstrap       cover at 95 % ± 2 points
    Bernstein, ix, ls       cover at 95 % − 2 points or more: 95 % is their floor
    ppi-dr                  is at least 20 % narrower than dr at ρ = 0.05 where context predicts the reward well
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

from s2bl_cli.metrics.estimate import IntervalSettings, intervals
from s2bl_cli.metrics.missing_feedback import mismatch
from s2bl_cli.metrics.sample import PI, VALUE_HAT, LoggedSample, ScoredPolicy
from s2bl_cli.registry import ESTIMATORS
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
FIGURE = "figures/coverage.svg"  # beside the page


def softmax(logits):
    e = np.exp(logits)
    return e / e.sum(axis=1, keepdims=True)


class World:
    """A problem whose every probability is known.

    `rho` is the share of rows with feedback. With `missing_by`, who has it depends on context and action: on the
    action and one of four groups of contexts, or on every kind of context and action, each with a rate of its own.
    `graded` rewards lie near their mean, others are 0 or 1. With `own_models` the models of reward and missingness are
    those of s2bl, which see features of the context, not its kind.
    """

    def __init__(self, name, rows, rho, *, graded=False, missing_by=None, own_models=False):
        self.name, self.rows, self.rho, self.graded, self.missing_by = name, rows, rho, graded, missing_by
        self.own_models = own_models
        rng = np.random.default_rng(7)
        taste = rng.standard_normal((KINDS, ACTIONS))
        level = rng.standard_normal((KINDS, 1)) * (1.5 if graded else 0.3)
        self.mean = 1 / (1 + np.exp(-(level + (0.3 if graded else 1.0) * taste)))
        self.pi0 = softmax(0.5 * taste + 0.5 * rng.standard_normal((KINDS, ACTIONS)))
        self.pi = softmax(1.2 * taste)
        self.seen = np.full((KINDS, ACTIONS), rho)
        if missing_by == "group":
            self.seen = rng.uniform(0.1, 0.6, (GROUPS, ACTIONS))[np.arange(KINDS) % GROUPS]
        if missing_by == "kind":
            self.seen = np.random.default_rng(11).uniform(0.1, 0.6, (KINDS, ACTIONS))
        self.features = np.hstack([taste, level, rng.standard_normal((KINDS, 2))]).astype(np.float32)
        self.value = float((self.pi * self.mean).sum(axis=1).mean())

    def draw(self, rng):
        x = rng.integers(0, KINDS, self.rows)
        a = (self.pi0.cumsum(axis=1)[x] < rng.random((self.rows, 1))).sum(axis=1).clip(max=ACTIONS - 1)
        if self.graded:
            r = self.mean[x, a] + rng.uniform(-0.1, 0.1, self.rows)
        else:
            r = (rng.random(self.rows) < self.mean[x, a]).astype(float)
        return x, a, r, rng.random(self.rows) < self.seen[x, a]


WORLDS = (
    World("All feedback known", rows=2000, rho=1.0),
    World("At ρ = 0.05", rows=20_000, rho=0.05),
    World("At ρ = 0.05, context predicts the reward well", rows=20_000, rho=0.05, graded=True),
    World("At ρ = 0.05, with the reward model of evaluate", rows=20_000, rho=0.05, graded=True, own_models=True),
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
        graded=True,
    ),
)


def tables(cell, value, weight, fold, shrink):
    """Cross-fitted means of every (context, action) cell, shrunk to the overall one: (folds, cells)."""
    made = []
    for j in range(FOLDS):
        learns = (fold != j) * weight
        total, count = (np.bincount(cell, learns * v, minlength=KINDS * ACTIONS) for v in (value, 1.0))
        overall = total.sum() / count.sum()
        made.append((total + shrink * overall) / (count + shrink))
    return np.array(made)


class Logs:
    """Some logs of a world, with the models of reward and missingness that are cross-fitted on each."""

    def __init__(self, world, seeds):
        self.world, self.seeds = world, seeds
        self.drawn = [world.draw(np.random.default_rng([seed, world.rows])) for seed in seeds]
        self.folds = [assign_folds(known, FOLDS, seed) for (*_, known), seed in zip(self.drawn, seeds, strict=True)]
        self.q = self._own_rewards() if world.own_models else self._reward_tables()  # (folds, kinds, actions) each
        self.seen = [None] * len(seeds)  # P(known | x, a) of every row
        if world.missing_by is not None:
            self.seen = self._own_observations() if world.own_models else self._observation_tables()

    def _each(self):
        return zip(self.drawn, self.folds, self.seeds, strict=True)

    def _reward_tables(self):
        made = [tables(x * ACTIONS + a, r, known.astype(float), fold, 2) for (x, a, r, known), fold, _ in self._each()]
        return [table.reshape(FOLDS, KINDS, ACTIONS) for table in made]

    def _observation_tables(self):
        made = []
        for (x, a, _, known), fold, _ in self._each():
            group = x % GROUPS * ACTIONS + a
            made.append(tables(group, known.astype(float), np.ones(len(x)), fold, 2)[fold, group])
        return made

    def _own_rewards(self):
        every_kind, made = np.tile(self.world.features, (FOLDS, 1)), []
        for (x, a, r, known), fold, _ in self._each():
            model = cross_fit(self.world.features[x[known]], a[known], r[known], fold[known], ACTIONS)
            predicted = model.predict(every_kind, np.repeat(np.arange(FOLDS), KINDS))
            made.append(predicted.reshape(FOLDS, KINDS, ACTIONS).astype(float))
        return made

    def _own_observations(self):
        made = []
        for (x, a, _, known), fold, seed in self._each():
            settings = RewardModelSettings(folds=FOLDS, seed=seed)
            context = self.world.features[x]
            model = cross_fit_observation(context, a, known, fold, ACTIONS, settings, nonlinear=True)
            made.append(model.probability(context, a, fold).astype(float))
        return made


def replicate(logs, i, kinds, draws):
    """Value, low, high and kind of every estimator under every kind of interval; and whether a mismatch is reported."""
    world, (x, a, r, known), fold, q, seen = logs.world, logs.drawn[i], logs.folds[i], logs.q[i], logs.seen[i]
    f = np.einsum("fxa,xa->fx", q, world.pi)[fold, x]
    reward = np.where(known, r, 0.0)
    sample = LoggedSample(a, world.pi0[x, a], reward, known, None, ACTIONS, q=q[fold, x, a], observed=seen)
    policy = ScoredPolicy(sample, {PI.name: world.pi[x, a], VALUE_HAT.name: f}, nu=0.001)
    named = {}
    for name in NAMES:
        (named[name],) = ESTIMATORS.load(name).compute(policy)
    made = []
    for kind in kinds:
        settings = IntervalSettings(kind, LEVEL, draws, logs.seeds[i])
        made += [
            (name, estimate.value, interval)
            for (name, estimate), interval in zip(named.items(), intervals(list(named.values()), settings), strict=True)
        ]
    return made, mismatch(policy) is not None


def simulate(world, replications, draws):
    kinds = ("normal", "bootstrap") if world.missing_by else ("normal", "bernstein", "bootstrap")
    values = {name: np.empty(replications) for name in NAMES}
    covered = {name: {} for name in NAMES}  # name → interval → replications
    widths = {name: {} for name in NAMES}
    reported = np.zeros(replications)
    for start in range(0, replications, AT_ONCE):
        logs = Logs(world, range(start, min(start + AT_ONCE, replications)))
        for i in logs.seeds:
            made, reported[i] = replicate(logs, i - start, kinds, draws)
            for name, value, interval in made:
                values[name][i] = value
                if interval.kind is not None:
                    low, high = interval.low, np.inf if interval.high is None else interval.high
                    covered[name].setdefault(interval.kind, np.empty(replications))[i] = low <= world.value <= high
                    widths[name].setdefault(interval.kind, np.empty(replications))[i] = high - low
    return values, covered, widths, reported


def is_kept(rate, check):
    return rate >= LEVEL - SLACK and (check == FLOOR or rate <= LEVEL + SLACK)


def table(world, replications, draws):
    """The world's rows of the report, and the promises it breaks."""
    values, covered, widths, reported = simulate(world, replications, draws)
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
        checked = "none" if name in NO_PROMISE else ""
        shown = " | ".join([*half, *cells])
        lines.append(f"| `{name}` | {values[name].mean():.4f} | {z:+.1f} | {shown} | {checked} |")
    narrower = 1 - np.mean(widths["ppi-dr"]["normal"]) / np.mean(widths["dr"]["normal"])
    if world.graded and world.rho == 0.05 and narrower < 0.2:
        broken.append(f"{world.name}: ppi-dr is only {narrower:.1%} narrower than dr")
    named = [f"{kind}: {CHECKS[kind]}" for kind in columns]
    width = ["width", "bernstein width"] if "bernstein" in columns else ["width"]
    head = ["estimator", "mean", "bias in s.e.", *width, *named, "check"]
    known = (world.pi0 * world.seen).sum(axis=1).mean()
    words = (
        f"## {world.name}\n\n{replications:,} logs of {world.rows:,} rows, about {world.rows * known:,.0f} of them "
        f"known; the true value is {world.value:.4f}. "
    )
    if world.missing_by is None:
        words += f"The interval of `ppi-dr` is {narrower:.1%} narrower than that of `dr`."
    else:
        words += f"A mismatch of the model of missingness is reported in {reported.mean():.1%} of the logs."
    rule = "| --- |" + " ---: |" * (len(head) - 2) + " --- |"
    return "\n".join([words, "", f"| {' | '.join(head)} |", rule, *lines]), broken


INTRO = """# Interval coverage

![Coverage of 95 % intervals per estimator and simulated world](figures/coverage.svg)

The figure shows how often 95 % intervals contain the true value, per estimator (rows) and simulated world (colours).
The line is the nominal level, and the grey band is the range that passes the check. `dm` is left out, because it has no
check. The true value is known, because the logs are simulated. This command simulates them and writes this page:

```sh
python bench/coverage.py --write docs/coverage.md
```

## Setup

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
| all of `dm` | none | it is as biased as its model, and its interval ignores that bias |

The Bernstein interval and the two lower bounds are valid for any number of rows and any distribution of the rewards
within their range. So they must be wide enough for the worst distribution, in which terms are nearly always equal and
very rarely as large as the smallest propensity allows. On other logs, including these, they cover more often than
stated. The tables show the price, which is their width.

- `ips`, `tips` (no propensity is below ν here), `dr`, `empirical-ips` and `ppi-dr` are unbiased. The bias of the others
  vanishes as the number of rows grows.
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
            section = line.removeprefix("## ")
        elif line.startswith("| estimator"):
            head = [name.partition(":")[0] for name in cells]
        elif head and line.startswith("| `"):
            for kind, cell in zip(head, cells, strict=True):
                if kind in CHECKS and cell:
                    rates[section, kind, cells[0].strip("`")] = float(cell.split("%")[0])
    return rates


def draw(page, target):
    """Coverage of every interval and world against the nominal level. `dm`, which has no check, is left out."""
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=119, help="of the bootstrap; best one less than a multiple of 40")
    parser.add_argument("--only", default="", help="the worlds whose name has this in it")
    parser.add_argument("--write", type=Path, help="write the tables to this page")
    parser.add_argument("--draw", type=Path, help="draw the figure of this page again, without a simulation")
    options = parser.parse_args()
    if options.draw:
        draw(options.draw.read_text(), options.draw.parent / FIGURE)
        return 0
    torch.set_num_threads(1)
    parts, broken = [INTRO.replace("DRAWS", str(options.draws))], []
    for world in (world for world in WORLDS if options.only in world.name):
        started = time.process_time()
        text, faults = table(world, options.replications, options.draws)
        print(text, "\n", flush=True)
        print(f"{world.name}: {time.process_time() - started:.0f} CPU s", file=sys.stderr, flush=True)
        parts.append(text)
        broken += faults
    if options.write:
        options.write.write_text("\n".join(parts[:1]) + "\n" + "\n\n".join(parts[1:]) + "\n")
        draw(options.write.read_text(), options.write.parent / FIGURE)
    for fault in broken:
        print(f"BROKEN: {fault}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
