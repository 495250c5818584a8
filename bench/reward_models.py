"""What the reward models of `evaluate` do to its intervals, on simulated logs whose true value is known.

    python bench/reward_models.py [--replications 200] [--only WORLD,...] [--models logistic,ridge] [--rows 5000]

Each replication draws a world of `synthetic_worlds.py` anew, with 5,000 rows of which a tenth have feedback (or the
world's own share, if it has fewer rows), cross-fits the reward models and computes `dr` and `ppi-dr` of three policies:
a good one (the softmax of a linear fit to the true rewards), the uniform one, and the logging policy sharpened. A model
has the log-probabilities of the logging policy as a feature or not: those that a log stores, or those of the copy.

Prints, per world, policy and model: the width of the intervals as a multiple of that of the logistic model without the
feature, coverage, and the root mean squared error as a multiple; over all logs and over those whose verdict is not
`unreliable`.
"""

import argparse
import sys
import zlib
from collections import defaultdict

import numpy as np
import torch
from synthetic_worlds import WORLDS, softmax

from s2bl_cli.metrics.estimate import IntervalSettings, intervals
from s2bl_cli.metrics.health import UNRELIABLE
from s2bl_cli.metrics.sample import PI, VALUE_HAT, LoggedSample, ScoredPolicy, log_of
from s2bl_cli.registry import ESTIMATORS, METRICS, REWARD_MODELS
from s2bl_cli.reward_models.logging_copy import fit_logging_copy, rows_to_copy
from s2bl_cli.reward_models.reward_model import assign_folds

FOLDS, TEST_ROWS = 5, 10_000
NONE, STORED, COPY = "none", "stored", "copy"
BASE = ("logistic", NONE)
CHOSEN = (
    "clicks",
    "good-logging",
    "adverse-logging",
    "revenue",
    "rare-clicks",
    "two-actions",
    "all-known",
    "epsilon-greedy",
    "improving",
    "clipped",
    "estimated",
    "bent-good",
)


def replicate(name, seed, rows, models, features):
    """(policy, model, feature) → a row of numbers per estimator."""
    world = WORLDS[name]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), 77])
    shape = (world.features, world.actions)
    rows = min(rows, world.rows)
    scores = world.scores(rng, *shape)
    rewards, policy = world.rewards(rng, scores, shape), world.logging(rng, scores, shape)
    x = world.contexts(rng, rows, world.features).astype(np.float32)
    pi0, index = policy(x.astype(float), np.arange(rows) / rows), np.arange(rows)
    a = (pi0.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=world.actions - 1)
    r = rewards.draw(rng, x.astype(float), a)
    share = world.known if world.known > 0.1 else 0.1
    known = world.observed(rng, x.astype(float), a, share)
    test = world.contexts(rng, TEST_ROWS, world.features)
    mean, test_pi0 = rewards.mean(test), policy(test, np.arange(TEST_ROWS) / TEST_ROWS)
    with_constant = np.c_[test, np.ones(len(test))]
    maps = np.linalg.lstsq(with_constant, mean, rcond=None)[0] * 3 / mean.std()
    policies = {
        "good": lambda x, pi0: softmax(np.c_[x, np.ones(len(x))] @ maps),
        "uniform": lambda x, pi0: np.full_like(pi0, 1 / pi0.shape[1]),
        "sharpened": lambda x, pi0: softmax(1.5 * np.log(np.maximum(pi0, 1e-30))),
    }
    fold, at = assign_folds(known, FOLDS, seed), np.flatnonzero(known)
    copied = np.sort(rng.permutation(rows)[: rows_to_copy(*shape)])
    copy = fit_logging_copy(x[copied], a[copied], pi0[copied, a[copied]], world.actions)
    log_pi0 = {
        NONE: None,
        STORED: log_of(pi0.astype(np.float32)),
        COPY: None if copy is None else copy.log_probabilities(x).numpy(),
    }
    predictions = {}
    for model in models:
        for feature in features:
            given = log_pi0[feature]
            score = None if given is None else given[at, a[at]]
            fitted = REWARD_MODELS.load(model)(x[at], a[at], r[at], fold[at], world.actions, score=score)
            predictions[model, feature] = fitted.predict(x, fold, None if given is None else torch.from_numpy(given))
    results = {}
    for policy_name, probabilities in policies.items():
        pi = probabilities(x, pi0)
        truth = float((probabilities(test, test_pi0) * mean).sum(axis=1).mean())
        for key, q in predictions.items():
            sample = LoggedSample(
                a.astype(np.int32), pi0[index, a], np.where(known, r, 0.0), known, None, world.actions, q=q[index, a]
            )
            columns = {
                PI.name: pi[index, a],
                VALUE_HAT.name: (pi * q).sum(axis=1),
                "unsupported": np.zeros(rows),
            }
            scored = ScoredPolicy(sample, columns)
            (verdict,) = METRICS.load("health").compute(scored)
            for estimator in ("dr", "ppi-dr"):
                (estimate,) = ESTIMATORS.load(estimator).compute(scored)
                (interval,) = intervals([estimate], IntervalSettings())
                covers = interval.low <= truth <= interval.high
                numbers = (interval.high - interval.low, covers, (estimate.value - truth) ** 2, verdict.value)
                results[policy_name, *key, estimator] = numbers
    return results, copy is not None


def print_world(name, replications, rows, models, features):
    drawn = [replicate(name, seed, rows, models, features) for seed in range(replications)]
    kept = defaultdict(list)
    for results, _ in drawn:
        for key, numbers in results.items():
            kept[key].append(numbers)
    copied = np.mean([is_copied for _, is_copied in drawn])
    for key, numbers in kept.items():
        policy, model, feature, estimator = key
        width, covers, error, verdict = np.array(numbers, float).T
        base_width, _, base_error, base_verdict = np.array(kept[policy, *BASE, estimator], float).T
        # The same logs in every line: those that are not unreliable with any of the compared models.
        trusted = (base_verdict > UNRELIABLE) & (verdict > UNRELIABLE)
        cells = [f"{trusted.mean():.0%}"]
        for chosen in (np.ones(len(width), bool), trusted):
            if chosen.sum() < 20:
                cells += ["", "", ""]
                continue
            cells += [
                f"{np.mean(width[chosen] / base_width[chosen]):.3f}",
                f"{100 * covers[chosen].mean():.1f}",
                f"{np.sqrt(error[chosen].mean() / base_error[chosen].mean()):.3f}",
            ]
        print(f"| {name} | {policy} | {estimator} | {model} | {feature} | {' | '.join(cells)} |", flush=True)
    print(f"{name}: a copy in {copied:.0%} of the logs", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--only", default=",".join(CHOSEN))
    parser.add_argument("--models", default="logistic,ridge")
    parser.add_argument("--features", default=f"{NONE},{STORED},{COPY}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    head = "world | policy | estimator | model | feature | not unreliable"
    head += " | width | covers, % | error | width, not unreliable | covers, % | error"
    print(f"| {head} |\n|{' --- |' * 12}", flush=True)
    for name in options.only.split(","):
        print_world(name, options.replications, options.rows, options.models.split(","), options.features.split(","))


if __name__ == "__main__":
    main()
