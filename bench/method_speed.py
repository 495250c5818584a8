"""CPU seconds of the direct methods and of `auto`, compared with the gradient methods of an earlier tree.

    git archive 8588e7d | tar x -C BEFORE        # the last commit without the direct methods
    S2BL_DATA=folder python bench/method_speed.py BEFORE [--rounds 3] [--write docs/benchmarks.md]

1. FashionMNIST, 60,000 × 784, feedback on 2 % of the rows: `dm-s2bl`, and `auto` with linear policies, against the
   earlier `wce-s2bl`.
2. A million rows × 40, 50 actions, feedback on 10 %: `dm-s2bl`, in memory and streamed, against the earlier `tips`.

Whole commands with their defaults and one thread, start-up included. They take turns, and the best round counts. The
earlier tree makes the logs, so that both can read them. Exits 1 if a promise is broken.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from train import table, write_log

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.contract.logs.schema import LogSpec

NOW = Path(__file__).resolve().parent.parent
ROWS, FEATURES, ACTIONS, KNOWN = 1_000_000, 40, 50, 0.1
PIECES = 10
START, END = "<!-- measured:methods -->\n", "<!-- /measured -->"


class Command(NamedTuple):
    log: str
    is_before: bool
    words: tuple[str, ...]


class Cost(NamedTuple):
    seconds: float
    peak_mb: float


COMMANDS = {
    "FashionMNIST: earlier wce-s2bl": Command("fmnist", True, ("--method", "wce-s2bl")),
    "FashionMNIST: dm-s2bl": Command("fmnist", False, ("--method", "dm-s2bl")),
    "FashionMNIST: auto, linear": Command("fmnist", False, ("--method", "auto", "--model", "linear")),
    "a million rows: earlier tips": Command("million", True, ("--method", "tips")),
    "a million rows: dm-s2bl": Command("million", False, ("--method", "dm-s2bl")),
    "a million rows: dm-s2bl --stream on": Command("million", False, ("--method", "dm-s2bl", "--stream", "on")),
}
PROMISES = (
    ("FashionMNIST: dm-s2bl", "FashionMNIST: earlier wce-s2bl", 1.5),
    ("FashionMNIST: auto, linear", "FashionMNIST: earlier wce-s2bl", 6.0),
    ("a million rows: dm-s2bl", "a million rows: earlier tips", 0.5),
)


def run(tree: Path, *words: str) -> Cost:
    """Run `s2bl` of a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "s2bl_cli", *words, "--quiet"], env=environment, cwd=tree)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: s2bl {' '.join(words)}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def write_fmnist(before: Path, path: Path) -> None:
    whole = path.with_name("fmnist-known.parquet")
    data = ("--dataset", "fmnist", "--data-dir", os.environ["S2BL_DATA"])
    logging = ("--tau", "10", "--logging-model", "mlp", "--epochs", "3", "--seed", "0")
    run(before, "make-logs", *data, *logging, "-o", str(whole))
    run(before, "mask", str(whole), "--rho", "0.02", "--seed", "0", "-o", str(path))


def write_million(path: Path) -> None:
    rng = np.random.default_rng(0)
    effects = rng.standard_normal((FEATURES, ACTIONS)) / np.sqrt(FEATURES)

    def piece(rows: int) -> LogArrays:
        context = rng.standard_normal((rows, FEATURES)).astype(np.float32)
        logits = context @ effects
        logged = np.exp(logits / 2)
        logged /= logged.sum(axis=1, keepdims=True)
        drawn = (logged.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=ACTIONS - 1)
        at = np.arange(rows), drawn
        known = rng.random(rows) < KNOWN
        rewarded = rng.random(rows) < 1 / (1 + np.exp(2 - logits[at]))
        return LogArrays(
            context=context,
            action=drawn.astype(np.int32),
            propensity=logged[at].astype(np.float32),
            cost=np.where(known, -rewarded.astype(np.float32), 0).astype(np.float32),
            known=known,
            is_test=np.zeros(rows, bool),
            label=None,
            pi0=None,
        )

    spec = LogSpec(ACTIONS, ContextSpec("float32", (FEATURES,)), ())
    write_log(path, spec, (piece(ROWS // PIECES) for _ in range(PIECES)))


def measure(before: Path, folder: Path, rounds: int) -> dict[str, Cost]:
    """The best of all rounds, and the highest peak."""
    logs = {"fmnist": folder / "fmnist.parquet", "million": folder / "million.parquet"}
    write_fmnist(before, logs["fmnist"])
    write_million(logs["million"])
    costs: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            tree = before if command.is_before else NOW
            words = ("train", str(logs[command.log]), *command.words, "--threads", "1", "--force")
            costs[name].append(run(tree, *words, "-o", str(folder / "policy.safetensors")))
            print(f"{name}: {costs[name][-1].seconds:.1f} CPU s", flush=True)
    return {
        name: Cost(min(cost.seconds for cost in of_name), max(cost.peak_mb for cost in of_name))
        for name, of_name in costs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        costs = measure(arguments.before.resolve(), Path(folder), arguments.rounds)
    rows = [(name, f"{cost.seconds:.1f}", f"{cost.peak_mb:,.0f}") for name, cost in costs.items()]
    lines = [table(("command", "CPU seconds", "peak MB"), *rows)]
    broken = False
    for name, peer, limit in PROMISES:
        ratio = costs[name].seconds / costs[peer].seconds
        broken |= ratio > limit
        lines.append(f"- {'BROKEN' if ratio > limit else 'holds'}: {name} in {ratio:.2f} × {peer}, at most {limit:g} ×")
    words = "\n".join(lines) + "\n"
    print(words)
    if arguments.write:
        page = arguments.write.read_text()
        start, end = page.index(START) + len(START), page.index(END, page.index(START))
        arguments.write.write_text(f"{page[:start]}\n{words}\n{page[end:]}")
    sys.exit(int(broken))


if __name__ == "__main__":
    main()
