"""How the defaults of `s2bl train` were chosen: by the value of candidates on train rows with unseen feedback.

    S2BL_DATA=folder python bench/defaults.py [--only sampling|steps] [--dataset sample]

The log is a FashionMNIST log of a linear logging policy at τ = 10, masked to a share ρ with three seeds. Policies are
linear. The value of a candidate is the SNIPS estimate on the masked train rows, with their feedback from the log before
masking, for the stochastic policy (sampled) and for its argmax. Labels and test rows are not used. The output is
markdown.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.policies.network import network_from
from s2bl_cli.training.learner import Run
from s2bl_cli.training.run import TrainingRun
from s2bl_cli.training.settings import TrainSettings

SEEDS = (0, 1, 2)
SHARES = (0.02, 0.2)


def s2bl(*words):
    subprocess.run([sys.executable, "-m", "s2bl_cli", *map(str, words), "--quiet"], check=True)


class Bench:
    def __init__(self, folder, dataset="fmnist"):
        self._folder, self._taken = folder, {}
        self._log = folder / "log.parquet"
        data = () if dataset == "sample" else ("--data-dir", os.environ["S2BL_DATA"])
        s2bl("make-logs", "--dataset", dataset, *data, "--logging-model", "linear", "--tau", 10, "-o", self._log)
        with open_logs([str(self._log)]) as opened:
            rows = opened.read()
        self._rows = rows.take(~rows.is_test)

    def masked(self, share, seed):
        path = self._folder / f"{share}-{seed}.parquet"
        if not path.exists():
            s2bl("mask", self._log, "--rho", share, "--seed", seed, "-o", path)
        return str(path)

    def _hidden(self, share, seed):
        """The train rows whose feedback the mask hides."""
        if (share, seed) not in self._taken:
            with open_logs([self.masked(share, seed)]) as log:
                rows = log.read()
            self._taken[share, seed] = self._rows.take(~rows.known[~rows.is_test])
        return self._taken[share, seed]

    def values(self, share, seed, **settings):
        """SNIPS of the stochastic policy and of its argmax, in percent."""
        with open_logs([self.masked(share, seed)]) as log:
            training = TrainingRun(log, TrainSettings(seed=seed, **settings))
            (trained,) = training.policies(Run(torch.device("cpu")))
        hidden = self._hidden(share, seed)
        network = network_from(trained.policy.network, trained.policy.tensors, "policy")
        with torch.no_grad():
            parts = torch.from_numpy(hidden.context).split(8192)
            pi = torch.cat([torch.softmax(network(part), 1) for part in parts]).numpy()
        argmax = np.eye(pi.shape[1])[pi.argmax(1)]
        return [_snips(policy, hidden) for policy in (pi, argmax)]


def _snips(pi, rows):
    weight = pi[np.arange(rows.rows), rows.action] / rows.propensity
    return -100 * float((weight * rows.cost).sum() / weight.sum())


def table(head, rows):
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, rule, *rows)) + "\n"


def told(values):
    """Mean ± standard deviation over the seeds, for both values."""
    values = np.array(values)
    return [f"{mean:.1f} ± {std:.1f}" for mean, std in zip(values.mean(0), values.std(0, ddof=1), strict=True)]


def sampling(bench):
    rows = []
    cases = [*itertools.product(("tips", "wce-s2bl", "kl-s2bl", "cce-s2bl"), SHARES)]
    for method, share in cases:
        for way in ("paired", "mixed"):
            found = [bench.values(share, seed, method=method, sampling=way) for seed in SEEDS]
            rows.append((method, share, way, *told(found)))
            print(*rows[-1], file=sys.stderr, flush=True)
    print(table(("method", "ρ", "sampling", "sampled value", "argmax value"), rows))


STEPS = [
    *((lr, epochs, "constant") for lr in (0.0003, 0.001, 0.003) for epochs in (5, 10, 20)),
    *((lr, 10, schedule) for lr in (0.001, 0.003) for schedule in ("cosine", "one-cycle")),
]


def steps(bench):
    cases = [*itertools.product(("tips", "wce-s2bl", "cce-s2bl"), SHARES)]
    rows = []
    for lr, epochs, schedule in STEPS:
        found = {
            case: [
                bench.values(case[1], seed, method=case[0], lr=lr, epochs=epochs, schedule=schedule) for seed in SEEDS
            ]
            for case in cases
        }
        means = [np.mean(found[case], axis=0) for case in cases]
        overall = np.mean(means, axis=0)
        rows.append((lr, epochs, schedule, *(f"{d:.1f}, {a:.1f}" for d, a in [*means, overall])))
        print(*rows[-1], file=sys.stderr, flush=True)
    print(table(("lr", "epochs", "schedule", *(f"{method}, ρ {share}" for method, share in cases), "mean"), rows))


PARTS = {"sampling": sampling, "steps": steps}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--dataset", default="fmnist")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.dataset)
        for name, part in PARTS.items():
            if options.only in (None, name):
                part(bench)


if __name__ == "__main__":
    main()
