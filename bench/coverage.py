"""Are the estimates unbiased, and do the intervals cover? Simulated logs whose true value is known.

    python bench/coverage.py [--replications 2000] [--write docs/coverage.md]

Each replication draws a log, cross-fits a reward model on its known rows and runs the estimators and intervals of s2bl
themselves. Contexts are one of 20 kinds, so the value of the policy is a sum and the reward model a table of means,
shrunk to the overall mean, which is quick enough for thousands of fits. Exits 1 if a promise is broken:

    unbiased estimators     the mean over replications is within 3 standard errors of the truth
    normal, bootstrap       cover at 95 % ± 2 points
    Bernstein, ix, ls       cover at 95 % or more: they hold for every number of rows, and are wide
    ppi-dr                  is at least 20 % narrower than dr at ρ = 0.05 where context tells the reward well
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from s2bl_cli.cost_models.cost_model import assign_folds, cross_fit
from s2bl_cli.evaluation.estimators.estimator import KnownRows
from s2bl_cli.evaluation.estimators.ppi_dr import doubly_robust_outcome, prediction_powered
from s2bl_cli.evaluation.intervals import IntervalSettings, estimates, reweighted
from s2bl_cli.registry import ESTIMATORS

KINDS, ACTIONS, FOLDS = 20, 5, 5
GROUPS = 4  # of contexts, by which feedback is missing in one world
LEVEL = 0.95
UNBIASED = ("ips", "tips", "dr", "empirical-ips", "ppi-dr")  # the others only as rows grow
NO_PROMISE = ("dm",)  # as biased as its model
NAMES = [name for name in ESTIMATORS.names if name != "ppi-dr"] + ["ppi-dr"]


def softmax(logits):
    e = np.exp(logits)
    return e / e.sum(axis=1, keepdims=True)


class World:
    """A problem whose every probability is known.

    `rho` is the share of rows with feedback; with `depends`, who has it depends on context and action. `graded`
    rewards lie near their mean, others are 0 or 1. With `own_model` the reward model is that of s2bl, which
    sees features of the context, not its kind.
    """

    def __init__(self, name, rows, rho, *, graded=False, depends=False, own_model=False):
        self.name, self.rows, self.rho, self.graded, self.depends = name, rows, rho, graded, depends
        self.own_model = own_model
        rng = np.random.default_rng(7)
        taste = rng.standard_normal((KINDS, ACTIONS))
        level = rng.standard_normal((KINDS, 1)) * (1.5 if graded else 0.3)
        self.mean = 1 / (1 + np.exp(-(level + (0.3 if graded else 1.0) * taste)))
        self.pi0 = softmax(0.5 * taste + 0.5 * rng.standard_normal((KINDS, ACTIONS)))
        self.pi = softmax(1.2 * taste)
        self.seen = np.full((KINDS, ACTIONS), rho)
        if depends:
            self.seen = rng.uniform(0.1, 0.6, (GROUPS, ACTIONS))[np.arange(KINDS) % GROUPS]
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
    World("At ρ = 0.05, context tells the reward well", rows=20_000, rho=0.05, graded=True),
    World("At ρ = 0.05, with the reward model of s2bl", rows=20_000, rho=0.05, graded=True, own_model=True),
    World("Missing by context and action, reweighted", rows=20_000, rho=0.25, depends=True),
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


def replicate(world, rng, kinds, draws, seed):
    """(value, low, high) of every estimator under every kind of interval."""
    x, a, r, known = world.draw(rng)
    cell, fold = x * ACTIONS + a, assign_folds(known, FOLDS, seed)
    if world.own_model:
        model = cross_fit(world.features[x[known]], a[known], -r[known], fold[known], ACTIONS)
        q = -np.stack([model.predict(world.features, np.full(KINDS, j)) for j in range(FOLDS)]).astype(float)
    else:
        q = tables(cell, r, known.astype(float), fold, 2).reshape(FOLDS, KINDS, ACTIONS)
    f = np.einsum("fxa,xa->fx", q, world.pi)[fold, x]
    p, pi = world.pi0[x, a], world.pi[x, a]
    rows = KnownRows(r[known], p[known], pi[known], q[fold, x, a][known], f[known], nu=0.001)
    weight = None
    if world.depends:
        group = x % GROUPS * ACTIONS + a
        weight = 1 / tables(group, known.astype(float), np.ones(world.rows), fold, 2)[fold, group][known]
    named = {}
    for name in NAMES[:-1]:
        terms = ESTIMATORS.load(name).terms(rows)
        named[name] = terms if weight is None else reweighted(terms, weight)
    outcome = doubly_robust_outcome(rows.r, rows.w, rows.q, rows.f)
    named["ppi-dr"] = prediction_powered(known, outcome, f, weight)
    found = {}
    for kind in kinds:
        made = estimates(list(named.values()), IntervalSettings(kind, LEVEL, draws, seed))
        found[kind] = dict(zip(named, made, strict=True))
    return found


def simulate(world, replications, kinds, draws):
    values = {name: np.empty(replications) for name in NAMES}
    covered = {kind: {name: np.zeros(replications) for name in NAMES} for kind in kinds}
    made_by = {kind: {} for kind in kinds}
    widths = {name: np.empty(replications) for name in NAMES}
    for i in range(replications):
        rng = np.random.default_rng([i, world.rows])
        found = replicate(world, rng, kinds, draws, i)
        for kind in kinds:
            for name, one in found[kind].items():
                values[name][i] = one.value
                high = np.inf if one.high is None else one.high
                covered[kind][name][i] = one.interval is None or one.low <= world.value <= high
                made_by[kind][name] = one.interval
                if kind == "normal":
                    widths[name][i] = np.nan if one.high is None else one.high - one.low
    return values, covered, made_by, widths


def table(world, replications, kinds, draws):
    """The world's rows of the report, and the promises it breaks."""
    values, covered, made_by, widths = simulate(world, replications, kinds, draws)
    lines, broken = [], []
    for name in NAMES:
        error = values[name].std(ddof=1) / np.sqrt(replications)
        z = (values[name].mean() - world.value) / error
        if name in UNBIASED and not world.depends and abs(z) > 3:
            broken.append(f"{world.name}: {name} is biased, {z:.1f} standard errors")
        cells = []
        for kind in kinds:
            rate, made = covered[kind][name].mean(), made_by[kind][name]
            if made == kind or made == "lower-bound":
                cells.append(f"{rate:.1%}" + (" (own)" if made == "lower-bound" else ""))
            else:
                cells.append("")
            if made != kind and made != "lower-bound":
                continue
            at_least = made != "normal" and made != "bootstrap"
            if name not in NO_PROMISE and (rate < LEVEL - 0.02 or (rate > LEVEL + 0.02 and not at_least)):
                broken.append(f"{world.name}: the {made} interval of {name} covers in {rate:.1%}")
        width = np.nanmean(widths[name]) if np.isfinite(widths[name]).any() else np.nan
        shown = "" if np.isnan(width) else f"{width:.4f}"
        lines.append(f"| `{name}` | {values[name].mean():.4f} | {z:+.1f} | {shown} | {' | '.join(cells)} |")
    narrower = 1 - np.mean(widths["ppi-dr"]) / np.mean(widths["dr"])
    if world.graded and narrower < 0.2:
        broken.append(f"{world.name}: ppi-dr is only {narrower:.1%} narrower than dr")
    head = f"| estimator | mean | bias in s.e. | width | {' | '.join(kinds)} |\n| --- | ---: | ---: | ---: |"
    head += " ---: |" * len(kinds)
    known = (world.pi0 * world.seen).sum(axis=1).mean() if world.depends else world.rho
    words = (
        f"## {world.name}\n\n{replications:,} logs of {world.rows:,} rows, about {world.rows * known:,.0f} of them "
        f"known; the true value is {world.value:.4f}. The interval of `ppi-dr` is {narrower:.1%} "
        f"narrower than that of `dr`."
    )
    return "\n".join([words, "", head, *lines]), broken


INTRO = """# Do the intervals cover?

Simulated logs whose true value is known, made by

```sh
python bench/coverage.py --write docs/coverage.md
```

Contexts are one of 20 kinds, with 5 actions. Every replication draws a log, cross-fits a reward model (a table of
shrunken means; in one section, the model of `s2bl evaluate` itself) and runs the [estimators](estimators.md) and
intervals of `s2bl evaluate`. The columns: the estimate's mean over the replications; its distance from the truth, in
standard errors of that mean (beyond ±3 is bias); the mean width of the normal interval; and in how many replications
each kind of 95 % interval held the true value.

- `ips`, `tips` (no propensity is below ν here), `dr`, `empirical-ips` and `ppi-dr` are unbiased; the others become so
  as rows grow.
- Normal and bootstrap intervals should cover in 95 % ± 2 points. Bernstein intervals hold for every number of rows, and
  so do the lower bounds of `ix` and `ls` (marked own): they should cover in 95 % or more.
- An empty cell: Bernstein's inequality is for plain means, and the estimator is none, or weighted (then the normal
  interval is used); the bounds of `ix` and `ls` are not for weighted rows either.
- `dm` is as biased as its model, and its interval does not promise to hold the value.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=400, help="of the bootstrap")
    parser.add_argument("--write", type=Path, help="write the tables to this page")
    options = parser.parse_args()
    parts, broken = [INTRO], []
    for world in WORLDS:
        # Where all rows enter ppi-dr's bootstrap, it is the slow part: in two worlds it is enough.
        kinds = ("normal", "bernstein", "bootstrap") if world.rho == 1 else ("normal", "bernstein")
        replications = options.replications // 2 if world.own_model else options.replications  # a real fit each
        text, faults = table(world, replications, kinds, options.draws)
        print(text, "\n", flush=True)
        parts.append(text)
        broken += faults
    if options.write:
        options.write.write_text("\n".join(parts[:1]) + "\n" + "\n\n".join(parts[1:]) + "\n")
    for fault in broken:
        print(f"BROKEN: {fault}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
