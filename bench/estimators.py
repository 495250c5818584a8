"""Compare the estimators with those of Open Bandit Pipeline (values and speed), and 50 policies with one.

    python bench/estimators.py                                          print all results as markdown
    python bench/estimators.py --store tests/metrics/obp_figures.json   store rows and OBP's values for the tests

OBP runs in a separate environment (`bench/peers.py`). Exits 1 unless values agree to 1e-6, normal intervals are at
least 20 times as fast as OBP's bootstrap on the same rows, and `s2bl evaluate` takes at most 3 times as long for 50
policies as for one.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from files import PEAK_PROGRAM, make_log
from peers import run_in_peers

from s2bl_cli.console import Console
from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.policies import NetworkSpec, Policy, read_policy, write_policy
from s2bl_cli.evaluation.candidates import LOGGING_CANDIDATE, of_policy
from s2bl_cli.evaluation.evaluate import Evaluation, score_on_log
from s2bl_cli.evaluation.settings import EvaluateSettings
from s2bl_cli.metrics.estimate import IntervalSettings, Terms, intervals
from s2bl_cli.metrics.estimators.os import shrunk
from s2bl_cli.metrics.estimators.switch_dr import switched
from s2bl_cli.metrics.sample import PI, VALUE_HAT, LoggedSample, ScoredPolicy
from s2bl_cli.registry import ESTIMATORS

NU, SWITCH, SHRINKAGE = 0.05, 1.5, 4.0

# OBP's estimator beside each of ours. It truncates weights, tips propensities: it is given truncated propensities.
OBP_PROGRAM = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import numpy as np
from obp.ope import (DirectMethod, DoublyRobust, DoublyRobustWithShrinkage, InverseProbabilityWeighting,
                     SelfNormalizedDoublyRobust, SelfNormalizedInverseProbabilityWeighting, SwitchDoublyRobust)
data, out, nu, switch, shrinkage, intervals = sys.argv[1:]
rows = np.load(data)
a, r, p = rows["a"], rows["r"], rows["p"]
pi, q = rows["pi"][:, :, None], rows["q"][:, :, None]
none = np.zeros_like(q)
nu, switch, shrinkage = float(nu), float(switch), float(shrinkage)
cases = {
    "ips": (InverseProbabilityWeighting(), p, None), "tips": (InverseProbabilityWeighting(), np.maximum(nu, p), None),
    "snips": (SelfNormalizedInverseProbabilityWeighting(), p, None), "dm": (DirectMethod(), None, q),
    "dr": (DoublyRobust(), p, q), "sndr": (SelfNormalizedDoublyRobust(), p, q),
    "switch-dr": (SwitchDoublyRobust(lambda_=switch), p, q),
    "os": (DoublyRobustWithShrinkage(lambda_=shrinkage), p, none),
}
values, seconds = {}, {}
for name, (estimator, score, model) in cases.items():
    given = dict(action_dist=pi, action=a, reward=r, position=np.zeros(len(a), int))
    if score is not None: given["pscore"] = score
    if model is not None: given["estimated_rewards_by_reg_model"] = model
    if name == "dm": given = {k: given[k] for k in ("action_dist", "estimated_rewards_by_reg_model", "position")}
    values[name] = float(estimator.estimate_policy_value(**given))
    if intervals == "yes":
        started = time.perf_counter()
        estimator.estimate_interval(**given, random_state=0)
        seconds[name] = time.perf_counter() - started
json.dump({"values": values, "seconds": seconds}, open(out, "w"))
"""


def softmax(logits):
    e = np.exp(logits)
    return e / e.sum(axis=1, keepdims=True)


def made_rows(count, actions, seed=0):
    """Rows with whole distributions and a reward model, rounded for a short JSON file."""
    rng = np.random.default_rng(seed)
    taste = rng.standard_normal((count, actions))
    pi0 = softmax(0.7 * taste)
    pi = softmax(taste + 0.5 * rng.standard_normal((count, actions))).round(6)
    pi[:, -1] = 1 - pi[:, :-1].sum(axis=1)
    a = (pi0.cumsum(axis=1) < rng.random((count, 1))).sum(axis=1).clip(max=actions - 1)
    mean = 1 / (1 + np.exp(-taste))
    r = (rng.random(count) < mean[np.arange(count), a]).astype(float)
    q = (0.8 * mean + 0.1).round(6)
    return {"a": a, "r": r, "p": pi0[np.arange(count), a].round(6), "pi": pi, "q": q}


def scored_policy(rows, nu=NU):
    count, actions = rows["pi"].shape
    logged = np.arange(count), rows["a"]
    known = np.ones(count, bool)
    sample = LoggedSample(rows["a"], rows["p"], rows["r"], known, None, actions, q=rows["q"][logged])
    columns = {PI.name: rows["pi"][logged], VALUE_HAT.name: (rows["pi"] * rows["q"]).sum(axis=1)}
    return ScoredPolicy(sample, columns, nu)


def obp_figures(rows, *, intervals):
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "rows.npz"), Path(folder, "out.json")
        np.savez(data, **rows)
        run_in_peers(OBP_PROGRAM, data, out, NU, SWITCH, SHRINKAGE, "yes" if intervals else "no")
        return json.loads(out.read_text())


def store(path):
    rows = made_rows(60, 4)
    figures = obp_figures(rows, intervals=False)
    kept = {name: values.tolist() for name, values in rows.items()}
    chosen = {"nu": NU, "switch": SWITCH, "shrinkage": SHRINKAGE}
    path.write_text(json.dumps({"obp": "0.5.5", **chosen, "rows": kept, "values": figures["values"]}) + "\n")


def beside_obp(count):
    """Compare values and speed on the same rows."""
    rows = made_rows(count, 10, seed=1)
    peer = obp_figures(rows, intervals=True)
    lines, broken = [], []
    for name, theirs in peer["values"].items():
        times = []
        for _ in range(15):
            started = time.perf_counter()
            estimate = estimate_of(name, scored_policy(rows))  # afresh, as OBP does: weights are kept once computed
            intervals([estimate], IntervalSettings())
            times.append(time.perf_counter() - started)
        ours, slow = statistics.median(times), peer["seconds"][name]
        off = abs(estimate.value - theirs)
        lines.append(
            f"| `{name}` | {estimate.value:.6f} | {theirs:.6f} | {off:.0e} | {1000 * ours:.2f} | {1000 * slow:.0f} | "
            f"{slow / ours:,.0f} |"
        )
        if off > 1e-6:
            broken.append(f"{name} differs from OBP's by {off:.1e}")
        if slow < 20 * ours:
            broken.append(f"{name} with a normal interval is only {slow / ours:.1f} times as fast as OBP's bootstrap")
    head = "| estimator | s2bl | OBP | difference | s2bl, ms | OBP, ms | times |\n| --- |" + " ---: |" * 6
    words = f"{count:,} rows, 10 actions; estimate and 95 % interval: normal here, OBP's bootstrap there\n"
    print("\n".join([words, head, *lines, ""]), flush=True)
    return broken


def estimate_of(name, policy):
    """The estimate of s2bl, with OBP's parameters."""
    rows = policy.known_rows
    if name == "switch-dr":
        return Terms([switched(rows, SWITCH)]).estimate
    if name == "os":
        return Terms([shrunk(rows.w, SHRINKAGE) * rows.r]).estimate
    (estimate,) = ESTIMATORS.load(name).compute(policy)
    return estimate


def write_policies(folder, count):
    rng = np.random.default_rng(0)
    spec = NetworkSpec("linear", ContextSpec("uint8", (1, 28, 28)), 10)
    paths = []
    for i in range(count):
        tensors = {
            "shift": rng.uniform(50, 60, 784).astype(np.float32),
            "scale": np.full(784, 0.01, np.float32),
            "body.1.weight": rng.standard_normal((10, 784)).astype(np.float32) / 28,
            "body.1.bias": np.zeros(10, np.float32),
        }
        path = Path(folder, f"{i}.safetensors")
        write_policy(Policy(spec, 100, 100, Step("train", {"seed": i}, "0"), tensors), str(path), force=True)
        paths.append(path)
    return paths


def many_policies(count, repeats):
    """Score 50 policies and one on the same log, as commands and in this process (without starting Python and torch).

    Times are CPU seconds, which do not depend on other load of the machine.
    """
    broken = []
    print("| scores | where | one policy, CPU s | 50 policies, CPU s | times |\n| --- | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        small, big = Path(folder, "small.parquet"), Path(folder, "big.parquet")
        make_log(small, count)
        paths = write_policies(folder, 50)
        candidates = [of_policy(read_policy(str(path))) for path in paths]
        for metrics in ("all", "labels"):
            for where, run, policies in (
                ("command", run_command, paths),
                ("in process", run_here, candidates),
            ):
                run(policies[:1], small, metrics)  # warms the caches
                one, many = [], []
                for _ in range(repeats):
                    one.append(run(policies[:1], small, metrics))
                    many.append(run(policies, small, metrics))
                ratio = statistics.median(many) / statistics.median(one)
                medians = f"{statistics.median(one):.2f} | {statistics.median(many):.2f}"
                print(f"| {metrics} | {where} | {medians} | {ratio:.1f} |", flush=True)
                if where == "command" and ratio > 3:
                    broken.append(f"50 policies take {ratio:.1f} times as long as one ({metrics})")
        make_log(big, 4 * count)
        peaks = [peak_memory(path, paths) for path in (small, big)]
        print(
            f"\n{count:,}×784 uint8. Peak memory of `s2bl evaluate` with 50 policies: {peaks[0]} MiB for {count:,} "
            f"rows, {peaks[1]} MiB for 4 times as many (contexts: {4 * count * 784 >> 20} MiB)"
        )
    return broken


def run_here(candidates, path, metrics):
    settings, started = EvaluateSettings(split="all", metrics=metrics), time.process_time()
    with open_logs([str(path)]) as log:
        quiet = Console(quiet=True).progress
        score_on_log([*candidates, LOGGING_CANDIDATE], log, settings, torch.device("cpu"), quiet, Evaluation())
    return time.process_time() - started


def evaluate_words(policies, path, metrics):
    words = ["evaluate", *map(str, policies), "--logs", str(path), "--split", "all", "--metrics", metrics]
    return [*words, "--quiet", "--force", "-o", str(path.with_suffix(".scores"))]


def run_command(policies, path, metrics):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "s2bl_cli", *evaluate_words(policies, path, metrics)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def peak_memory(path, policies):
    words = evaluate_words(policies, path, "all")
    done = subprocess.run([sys.executable, "-c", PEAK_PROGRAM, *words], check=True, capture_output=True, text=True)
    return int(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--store", type=Path, help="write rows and OBP's figures for the tests, and stop")
    parser.add_argument("--only", choices=("obp", "policies"))
    options = parser.parse_args()
    if options.store:
        store(options.store)
        return 0
    broken = [] if options.only == "policies" else beside_obp(options.rows)
    broken += [] if options.only == "obp" else many_policies(options.rows, options.repeats)
    for fault in broken:
        print(f"BROKEN: {fault}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
