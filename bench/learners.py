"""Compare learners on FashionMNIST logs: a table of accuracies, and the commands that make it.

    S2BL_DATA=folder python bench/learners.py WORK [--threads 2]

There are logs of four logging policies (τ = 10, adverse, uniform, random), two shares of feedback, and three masks and
seeds. Policies are linear, with the defaults of `train`. Every learner that has a λ has the same search: three values,
by 3-fold cross-validation on the known rows, by the SNIPS estimate of the argmax policy. Only the last step,
`evaluate`, uses labels and test rows. Files that exist in WORK are not made again. It takes about ten minutes on two
cores.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

LOGGING = {
    "tau10": ("--tau", "10", "--epochs", "5"),
    "adverse": ("--logging-model", "linear", "--tau", "10", "--adverse"),
    "uniform": ("--logging-model", "uniform"),
    "random": ("--logging-model", "random"),
}
GRIDS = {
    "tips": None,
    "wce-s2bl": "0.3,1,3",
    "wce-s2blk": "0.3,1,3",
    "kl-s2bl": "0.0003,0.003,0.03",
    "cce-s2bl": "0.3,1,3",
    "banditnet": None,
    "dm-s2bl": None,
}
ON_OTHER_LOGS = ("tips", "wce-s2bl", "cce-s2bl", "dm-s2bl")
SEARCH = ("--select", "snips", "--select-on", "argmax", "--folds", "3")
RUNS = [
    *(("tau10", rho, method) for rho in ("0.02", "0.2") for method in GRIDS),
    *((logging, "0.02", method) for logging in list(LOGGING)[1:] for method in ON_OTHER_LOGS),
]
SEEDS = ("0", "1", "2")


def s2bl(*words: str) -> None:
    print("s2bl", *words, flush=True)
    subprocess.run([sys.executable, "-m", "s2bl_cli", *words], check=True)


def made(path: Path, *words: str) -> str:
    if not path.exists():
        s2bl(*words, "--quiet", "-o", str(path))
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--threads", default="1")
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    data = ("--data-dir", os.environ["S2BL_DATA"])
    for logging in LOGGING:
        made(work / f"{logging}.parquet", "make-logs", "--dataset", "fmnist", *data, *LOGGING[logging])
    for seed in SEEDS:
        for logging, rho, method in RUNS:
            log = str(work / f"{logging}.parquet")
            masked = made(work / f"{logging}-{rho}-{seed}.parquet", "mask", "--rho", rho, "--seed", seed, log)
            lam = GRIDS[method]
            search = () if lam is None else ("--lam", lam, *SEARCH)
            run = ("--seed", seed, "--threads", arguments.threads)
            target = work / f"{logging}-{rho}-{method}-{seed}.safetensors"
            made(target, "train", "--method", method, *search, *run, masked)
    for logging in LOGGING:
        policies = sorted(str(path) for path in work.glob(f"{logging}-*.safetensors"))
        scores = work / f"scores-{logging}.parquet"
        made(scores, "evaluate", *policies, "--logs", str(work / f"{logging}.parquet"), "--metrics", "labels")
        for metric in ("argmax-accuracy", "sampled-accuracy"):
            s2bl("report", str(scores), "--table", "main", "--metric", metric, "--quiet")


if __name__ == "__main__":
    main()
