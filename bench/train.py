"""Speed of `train`, compared with other tools and with the floor, in one run.

    python bench/train.py [--rounds 5] [--epochs 4] [--log LOG] [--large] [--no-docs]

On the same log, with batches of 128 and the same network:

1. One epoch of s2bl's linear policy and of its mlp of 100 units, with `--risk tips --reg none` and all feedback known.
2. One epoch of Open Bandit Pipeline's NNPolicyLearner with one hidden layer of 100 units.
3. Vowpal Wabbit's `--cb`: one pass over its text, and one pass over its cache.
4. The floor: the matrix products of a step alone (forward and weight gradient), on contiguous memory, with one thread
   and with all. A program is compared with the floor for its number of threads.
5. The default command (a linear policy, `--risk tips --reg wce`): the whole command, and one epoch of it; 24
   combinations of λ and seed; 10,000 actions. With --large also `--stream`, on the same log and on one of 10 GB, which
   needs that much disk space.

Everything runs in separate processes that take turns over several rounds, so that a busy moment of the machine affects
all of them. The best epoch counts. The log is FashionMNIST at τ = 10 (from the folder in S2BL_DATA), or random pixels
of the same shape without that folder. Prints tables and writes them to docs/benchmarks.md, with a figure.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from files import make_log
from peers import run_in_peers

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.contract.logs.reading import open_logs, rows_per_batch
from s2bl_cli.contract.logs.schema import LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer

ROWS, FEATURES, ACTIONS, BATCH, HIDDEN = 60_000, 784, 10, 128, 100
STEPS = ROWS // BATCH
MANY_ROWS, MANY_FEATURES, MANY_ACTIONS = 100_000, 64, 10_000
LARGE_BYTES = 10 * 10**9

LAMS, SEEDS = "0.01,0.03,0.1,0.3,1,3,10,30", "0,1,2"
PLAIN = ("--risk", "tips", "--reg", "none")
MLP = ("--model", "mlp", "--hidden", str(HIDDEN))
WCE = ("--risk", "tips", "--reg", "wce")
GRID = ("--lam", LAMS, "--seeds", SEEDS)

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, FIGURE = DOCS / "benchmarks.md", DOCS / "figures" / "bench-train.svg"
OPENING, CLOSING = "<!-- measured:train -->\n", "<!-- /measured -->"

# The command itself, its epochs timed. Imported before the command sets it, torch needs
# OMP_WAIT_POLICY from the environment.
TRAIN_PROGRAM = """
import json, re, sys, time
from s2bl_cli.app import main
from s2bl_cli.training.loop import TrainState
epochs, train_epoch = [], TrainState.train_epoch
def timed(state, *words):
    started = time.perf_counter()
    metrics = train_epoch(state, *words)
    epochs.append(time.perf_counter() - started)
    return metrics
TrainState.train_epoch = timed
try:
    main()
finally:
    import torch
    peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
    print(json.dumps({"epochs": epochs, "threads": torch.get_num_threads(), "peak": int(peak[1]) // 1024}))
"""

# Products whose result has ten columns take MKL several times as long as their transposes: nn.Linear's own layout
# (x·Wᵀ, δᵀ·x) beside the one that is quickest here (W·xᵀ, δ·x).
FLOOR_PROGRAM = """
import json, sys, time, torch
steps, batch, features, actions, hidden, seeds, lams, rounds = map(int, sys.argv[1:])
x = torch.randn(steps * batch, features).split(batch)
W, V, U = torch.randn(actions, features), torch.randn(hidden, features), torch.randn(actions, hidden)
d, dt = torch.randn(batch, actions), torch.randn(actions, batch)
Ws, dts = torch.randn(seeds, lams * actions, features), torch.randn(seeds, lams * actions, batch)
def linear_as_layer(x):
    x @ W.T; d.T @ x
def linear(x):
    W @ x.T; dt @ x
def mlp_as_layer(x):
    h = x @ V.T; h @ U.T; d.T @ h; (d @ U).T @ x
def mlp(x):
    h = V @ x.T; U @ h; dt @ h.T; (U.T @ dt) @ x
def many(x):
    for W, dt in zip(Ws, dts):
        W @ x.T; dt @ x
best = {}
for threads in sorted({1, torch.get_num_threads()}):
    torch.set_num_threads(threads)
    for step in (linear_as_layer, linear, mlp_as_layer, mlp, many):
        for _ in range(rounds):
            started = time.perf_counter()
            for part in x:
                step(part)
            seconds = time.perf_counter() - started
            name = f"{step.__name__}, {threads}"
            best[name] = min(best.get(name, 1e9), seconds)
print(json.dumps(best))
"""

OBP_PROGRAM = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import numpy as np
import obp.policy.offline as offline
data, actions, hidden, batch, epochs = sys.argv[1], *map(int, sys.argv[2:])
rows = np.load(data)
marks = []
def marked(rounds, **words):  # in the place of its progress bar
    for one in rounds:
        marks.append(time.perf_counter())
        yield one
    marks.append(time.perf_counter())
offline.tqdm = marked
context = rows["context"].reshape(len(rows["context"]), -1).astype(np.float32) / 255
learner = offline.NNPolicyLearner(n_actions=actions, dim_context=context.shape[1], off_policy_objective="ipw",
                                  hidden_layer_size=(hidden,), batch_size=batch, max_iter=epochs,
                                  n_iter_no_change=10**9, random_state=0)  # else it leaves an epoch's batches early
learner.fit(context=context, action=rows["action"], reward=-rows["cost"], pscore=rows["propensity"])
print(json.dumps({"epochs": np.diff(marks).tolist()}))
"""

VW_PROGRAM = """
import json, sys, time
import vowpalwabbit
text, cache, actions, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
def seconds(words):
    started = time.perf_counter()
    vw = vowpalwabbit.Workspace(f"--cb {actions} --quiet {words}")
    taken = time.perf_counter() - started
    assert vw.get_weighted_examples() == rows, vw.get_weighted_examples()
    vw.finish()
    return taken
plain = seconds(f"-d {text}")
seconds(f"-d {text} --cache_file {cache} -k")
print(json.dumps({"text": plain, "cache": seconds(f"--cache_file {cache} --passes 1")}))
"""

VERSIONS_PROGRAM = """
from importlib.metadata import version
print(version("obp"), version("vowpalwabbit"))
"""

FIGURE_PROGRAM = """
import json, sys
import matplotlib
matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "s2bl"
import matplotlib.pyplot as plt
bars, title, out = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
figure, axes = plt.subplots(figsize=(8, 0.45 * len(bars) + 1.1), layout="constrained")
names, seconds, kinds = zip(*bars)
colours = {"s2bl": "#1f6f8b", "peer": "#c97b3d", "floor": "#a9a9a9"}
drawn = axes.barh(names, seconds, color=[colours[kind] for kind in kinds])
axes.bar_label(drawn, labels=[f"{value:.3f}" for value in seconds], padding=3)
axes.invert_yaxis()
axes.set_xlabel("seconds per epoch, less is better")
axes.set_title(title, loc="left", fontsize=10)
axes.spines[["top", "right"]].set_visible(False)
axes.margins(x=0.12)
figure.savefig(out, metadata={"Date": None})
"""


# --- data ---


def fashion_log(folder):
    """The log and its description."""
    log = folder / "log.parquet"
    data = os.environ.get("S2BL_DATA")
    if data is None:
        make_log(log, ROWS * 7 // 6)
        return log, "random pixels (S2BL_DATA is not set) of FashionMNIST's shape"
    words = ["make-logs", "--dataset", "fmnist", "--data-dir", data, "--logging-model", "linear", "--tau", "10"]
    subprocess.run([sys.executable, "-m", "s2bl_cli", *words, "--quiet", "-o", str(log)], check=True)
    return log, "FashionMNIST, logging policy linear at τ = 10"


def train_rows(log):
    with open_logs([str(log)]) as opened:
        rows = opened.read()
    return rows.take(~rows.is_test)


def write_vw_text(rows, path):
    """`action:cost:probability | pixel:value …`, pixels of 0 left out. (--cb counts actions from 1.)"""
    words = [[f" {pixel}:{value}" for value in range(256)] for pixel in range(FEATURES)]
    with open(path, "w") as file:
        for image, action, cost, p in zip(
            rows.context.reshape(-1, FEATURES), rows.action, rows.cost, rows.propensity, strict=True
        ):
            seen = np.flatnonzero(image)
            pixels = "".join([words[i][v] for i, v in zip(seen.tolist(), image[seen].tolist(), strict=True)])
            file.write(f"{action + 1}:{cost:g}:{p:.6g} |{pixels}\n")


def random_rows(rng, rows, context, actions):
    return LogArrays(
        context=context,
        action=rng.integers(0, actions, rows).astype(np.int32),
        propensity=np.full(rows, 1 / actions, np.float32),
        cost=-(rng.random(rows) < 0.1).astype(np.float32),
        known=np.ones(rows, bool),
        is_test=np.zeros(rows, bool),
        label=None,
        pi0=None,
    )


def write_log(path, spec, pieces):
    """Write a log from row groups that are made one at a time."""
    with log_writer(str(path), spec, step_of("make-logs", {}), force=True) as writer:
        for piece in pieces:
            writer.write(log_batch(piece, spec))


def write_many_actions(path):
    rng = np.random.default_rng(0)
    spec = LogSpec(MANY_ACTIONS, ContextSpec("float32", (MANY_FEATURES,)), ())
    context = rng.standard_normal((MANY_ROWS, MANY_FEATURES)).astype(np.float32)
    write_log(path, spec, [random_rows(rng, MANY_ROWS, context, MANY_ACTIONS)])


def write_large(path, size=LARGE_BYTES):
    """Write random pixels, which cannot be compressed."""
    rng = np.random.default_rng(0)
    spec = LogSpec(ACTIONS, ContextSpec("uint8", (1, 28, 28)), ())
    rows = rows_per_batch(spec.context)
    pieces = math.ceil(size / (rows * FEATURES))
    contexts = (rng.integers(0, 256, (rows, 1, 28, 28), dtype=np.uint8) for _ in range(pieces))
    write_log(path, spec, (random_rows(rng, rows, context, ACTIONS) for context in contexts))


# --- measurements ---


def trained(log, out, epochs, *words):
    """Seconds of each epoch, threads and peak MiB of `s2bl train`, in a separate process."""
    command = ["train", str(log), *words, "--batch-size", str(BATCH), "--epochs", str(epochs)]
    ran = subprocess.run(
        [sys.executable, "-c", TRAIN_PROGRAM, *command, "--quiet", "--force", "-o", str(out)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )
    return json.loads(ran.stdout.splitlines()[-1])


def whole_command(log, out, *words):
    """Seconds of the whole command `s2bl train` with default settings."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "s2bl_cli", "train", str(log), *words, "--quiet", "--force", "-o", str(out)]
    subprocess.run(command, check=True)
    return time.perf_counter() - started


def floor():
    sizes = map(str, (STEPS, BATCH, FEATURES, ACTIONS, HIDDEN, len(SEEDS.split(",")), len(LAMS.split(",")), 5))
    ran = subprocess.run([sys.executable, "-c", FLOOR_PROGRAM, *sizes], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout)


def measure(folder, log, rounds, epochs):
    """The best seconds of each program over all rounds."""
    rows = train_rows(log)
    assert rows.rows == ROWS, rows.rows
    data, text, many = folder / "rows.npz", folder / "rows.txt", folder / "many.parquet"
    np.savez(data, context=rows.context, action=rows.action, cost=rows.cost, propensity=rows.propensity)
    write_vw_text(rows, text)
    write_many_actions(many)
    policy, several = folder / "policy.safetensors", f"{folder / 'policies'}/"
    best, facts = {}, {}

    def keep(name, seconds):
        best[name] = min(best.get(name, math.inf), seconds)

    def ours(name, source, out, count, *words):
        run = trained(source, out, count, *words)
        keep(name, min(run["epochs"]))
        facts[name] = {"threads": run["threads"], "peak": run["peak"]}

    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for name, seconds in floor().items():
            keep(f"floor {name}", seconds)
        ours("linear", log, policy, 2 * epochs, *PLAIN)
        ours("mlp", log, policy, 2 * epochs, *PLAIN, *MLP)
        obp = json.loads(run_in_peers(OBP_PROGRAM, data, ACTIONS, HIDDEN, BATCH, epochs).splitlines()[-1])
        keep("obp", min(obp["epochs"]))
        ours("one", log, policy, 2 * epochs, *WCE)
        ours("many at once", log, several, epochs, *WCE, *GRID)
        keep("command of one", whole_command(log, policy, *WCE))
        keep("command of many", whole_command(log, several, *WCE, *GRID))
        vw = json.loads(run_in_peers(VW_PROGRAM, text, folder / "rows.cache", ACTIONS, ROWS).splitlines()[-1])
        keep("vw text", vw["text"])
        keep("vw cache", vw["cache"])
        if number < 2:
            ours("many actions", many, policy, 2, *PLAIN)
    return best, facts


def measure_stream(folder, log, rounds, epochs):
    """Compare `--stream on` with the log in memory, and measure peak memory and rate on a log of 10 GB."""
    policy, large = folder / "policy.safetensors", folder / "large.parquet"
    best = {}
    for _ in range(rounds):
        for way in ("off", "on"):
            run = trained(log, policy, epochs, *WCE, "--stream", way)
            best[way] = min(best.get(way, math.inf), *run["epochs"])
    started = time.perf_counter()
    write_large(large)
    print(f"a log of 10 GB written in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    with open_logs([str(large)]) as opened:
        rows = opened.rows
    run = trained(large, policy, 1, *WCE, "--stream", "on")
    size = large.stat().st_size
    large.unlink()
    return {**best, "peak": run["peak"], "rows": rows, "bytes": size, "seconds": run["epochs"][0]}


# --- words ---


def table(head, *rows):
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, ruler, *rows)) + "\n"


FLOORS = {
    "linear": "linear",
    "linear_as_layer": "linear, products as nn.Linear lays them out",
    "mlp": f"mlp of {HIDDEN}",
    "mlp_as_layer": "mlp, products as nn.Linear lays them out",
    "many": "24 linear: 8 `--lam` × 3 `--seeds`",
}


def floor_of(name, best, facts, floor_name=None):
    return best[f"floor {floor_name or name}, {facts[name]['threads']}"]


def speed_table(best, facts):
    def row(what, seconds, floor_name=None, *, threads=""):
        beside_floor = f"{seconds / best[floor_name]:.1f}" if floor_name else ""
        return what, f"{seconds:.3f}", f"{best['obp'] / seconds:.1f}", beside_floor, threads

    own = {name: facts[name]["threads"] for name in ("linear", "mlp")}
    every = max(int(name.rsplit(", ", 1)[1]) for name in best if name.startswith("floor"))
    rows = [
        row("s2bl, linear", best["linear"], f"floor linear, {own['linear']}", threads=own["linear"]),
        row(f"s2bl, mlp of {HIDDEN}", best["mlp"], f"floor mlp, {own['mlp']}", threads=own["mlp"]),
        row(f"OBP's NNPolicyLearner, {HIDDEN} units", best["obp"], f"floor mlp, {every}", threads="all"),
        row("Vowpal Wabbit cb, a pass over its text", best["vw text"], threads="its own"),
        row("Vowpal Wabbit cb, a pass over its cache", best["vw cache"], threads="its own"),
    ]
    for name, words in FLOORS.items():
        for threads in sorted({1, every}):
            rows.append(row(f"floor, {words}", best[f"floor {name}, {threads}"], threads=threads))
    return table(("what", "seconds per epoch", "times as fast as OBP", "times its floor", "threads"), *rows)


def many_table(best, facts):
    count = len(LAMS.split(",")) * len(SEEDS.split(","))

    def row(what, name, command):
        epoch, whole = f"{best[name]:.3f}", "" if command is None else f"{best[command]:.1f}"
        beside = f"{best[name] / best['one']:.1f}" if command else ""
        whole_beside = f"{best[command] / best['command of one']:.1f}" if command else ""
        return what, epoch, beside, whole, whole_beside, facts[name]["threads"], facts[name]["peak"]

    rows = [
        row("one linear policy, `--reg wce`: the default command", "one", "command of one"),
        row(f"{count} side by side: 8 `--lam` × 3 `--seeds`", "many at once", "command of many"),
        row(f"{MANY_ACTIONS:,} actions, {MANY_ROWS:,}×{MANY_FEATURES} float32, `--reg none`", "many actions", None),
    ]
    head = ("what", "seconds per epoch", "times one", "seconds per command", "times one", "threads", "peak MiB")
    return table(head, *rows)


def stream_table(stream):
    rows = [
        ("in memory", f"{stream['off']:.3f}", ""),
        ("`--stream on`", f"{stream['on']:.3f}", ""),
        (
            f"`--stream on`, {stream['rows']:,} rows, {stream['bytes'] / 1e9:.1f} GB",
            f"{stream['seconds']:.1f}",
            stream["peak"],
        ),
    ]
    return table(("linear, `--reg wce`", "seconds per epoch", "peak MiB"), *rows)


def promises(best, facts, stream):
    """The expected ratios, and whether this run meets them."""
    told = [
        ("linear at least 6 times as fast per epoch as OBP's mlp", best["obp"] / best["linear"], ">=", 6),
        ("mlp at least 2 times as fast per epoch as OBP's", best["obp"] / best["mlp"], ">=", 2),
        ("linear within 3 times its floor", best["linear"] / floor_of("linear", best, facts), "<=", 3),
        ("mlp within 3 times its floor", best["mlp"] / floor_of("mlp", best, facts), "<=", 3),
        (
            "24 combinations within 2 times their floor",
            best["many at once"] / floor_of("many at once", best, facts, "many"),
            "<=",
            2,
        ),
        (
            "24 combinations at least 5 times as fast as 24 commands",
            24 * best["command of one"] / best["command of many"],
            ">=",
            5,
        ),
    ]
    if stream is not None:
        told.append(("`--stream` in less than twice the time", stream["on"] / stream["off"], "<=", 2))
        told.append(("`--stream` under 1.5 GB on 10 GB", stream["peak"] * 2**20 / 1e9, "<=", 1.5))
    return [(what, value, value >= limit if sign == ">=" else value <= limit) for what, value, sign, limit in told]


def draw(best, facts):
    bars = [
        ("s2bl, linear", best["linear"], "s2bl"),
        ("floor, linear", floor_of("linear", best, facts), "floor"),
        (f"s2bl, mlp of {HIDDEN}", best["mlp"], "s2bl"),
        (f"floor, mlp of {HIDDEN}", floor_of("mlp", best, facts), "floor"),
        (f"OBP, mlp of {HIDDEN}", best["obp"], "peer"),
        ("VW cb, cache", best["vw cache"], "peer"),
        ("VW cb, text", best["vw text"], "peer"),
    ]
    FIGURE.parent.mkdir(exist_ok=True)
    run_in_peers(
        FIGURE_PROGRAM, json.dumps(bars), f"{ROWS:,}×{FEATURES}, {ACTIONS} actions, batches of {BATCH}", FIGURE
    )


def write_page(words):
    text = PAGE.read_text()
    start, end = text.index(OPENING) + len(OPENING), text.index(CLOSING)
    PAGE.write_text(text[:start] + "\n" + words + "\n" + text[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4, help="epochs of each contender in a round; s2bl takes twice")
    parser.add_argument("--log", type=Path, help="a log of 60,000×784 uint8 train rows, instead of making one")
    parser.add_argument("--large", action="store_true", help="measure --stream too; needs 10 GB of disk")
    parser.add_argument("--no-docs", action="store_true", help="print only")
    options = parser.parse_args()
    os.environ.pop("OMP_NUM_THREADS", None)  # every contender has the threads that it takes by itself
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log, what = (options.log, "the given log") if options.log else fashion_log(folder)
        best, facts = measure(folder, log, options.rounds, options.epochs)
        stream = measure_stream(folder, log, options.rounds, options.epochs) if options.large else None
    obp, vw = run_in_peers(VERSIONS_PROGRAM).split()
    promised = promises(best, facts, stream)
    held = [f"- {'holds' if holds else 'BROKEN'}: {told} ({value:,.1f})" for told, value, holds in promised]
    words = "\n".join(
        [
            f"{ROWS:,}×{FEATURES} uint8, {ACTIONS} actions, batches of {BATCH}: {what}. {os.cpu_count()} CPU cores "
            f"({platform.machine()}), no GPU; load {os.getloadavg()[0]:.1f} at the end. Python "
            f"{platform.python_version()}, torch {version('torch')}, obp {obp}, vowpalwabbit {vw}. The best epoch of "
            f"{options.rounds} rounds of {options.epochs} (s2bl {2 * options.epochs}); the programs take turns.",
            "",
            speed_table(best, facts),
            "Many policies at once, and many actions:\n",
            many_table(best, facts),
            *([stream_table(stream)] if stream else []),
            *held,
        ]
    )
    print(words)
    if not options.no_docs:
        draw(best, facts)
        write_page(words)
    if any(not holds for _, _, holds in promised):
        sys.exit(1)


if __name__ == "__main__":
    main()
