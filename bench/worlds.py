"""A battery of worlds: logs of many kinds with a known truth, and how much of the possible gain each learner gets.

    python bench/worlds.py --list
    python bench/worlds.py --half tuning [--worlds clicks bent] [--contenders ridge tips 'wce-s2bl --lam 3'] [--seeds 3]
    python bench/worlds.py --table                       # from the results of earlier runs, nothing is run
    python bench/worlds.py --write docs/learners.md      # the tables and the figure, from the results of earlier runs
    python bench/worlds.py --smoke                       # a minute: two small worlds, two contenders

The worlds are declared in synthetic_worlds.py and real_worlds.py. S2BL_DATA is the folder of FashionMNIST.

A contender is a peer (PEERS), or a method of `s2bl train`, with more options if needed; `default` is `s2bl train`
without a method. Its result is the share of the possible gain, (V − V_logging) / (V_best − V_logging), from the true
values of the policies on fresh contexts; V_best is that of the best deterministic policy. Peers choose one action. A
policy of s2bl has two results: of its most probable action, and as it acts.

Results are appended to RESULTS as they arrive. A run whose result is there is not repeated without --again. Seconds
are CPU seconds of one thread: of the peer's fitting, and of the whole command `s2bl train`, start-up included.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import peers
import polars as pl
import real_worlds
import synthetic_worlds
from synthetic_worlds import Draw

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.contract.logs.schema import LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer
from s2bl_cli.contract.policies import read_policy

WORLDS = {**synthetic_worlds.WORLDS, **real_worlds.WORLDS}

# Choices about learners (defaults, criteria of selection) are made on the first half, claims on the second. The split
# was fixed together with the worlds, before any tuning. The two worlds of a line are of related kinds.
PAIRS = (
    ("few-known", "clicks"),
    ("adverse-logging", "good-logging"),
    ("fmnist-good", "fmnist-adverse"),
    ("fmnist-uniform", "fmnist-random"),
    ("fines", "revenue"),
    ("sure-or-gamble", "heavy-tails"),
    ("selective", "loyal-customers"),
    ("categories", "rare-clicks"),
    ("bent", "bent-good"),
    ("breast-cancer", "two-actions"),
    ("half-percent", "many-actions"),
    ("digits", "all-known"),
    ("clipped", "epsilon-greedy"),
    ("improving", "estimated"),
)
HALVES = {"tuning": tuple(first for first, _ in PAIRS), "claims": tuple(second for _, second in PAIRS)}


def write_log(draw: Draw, target: Path, world: str, seed: int) -> None:
    """The log in the layout of docs/contract.md: cost = −reward, null if it is missing; every row is a train row."""
    rows = len(draw.action)
    arrays = LogArrays(
        context=draw.context,
        action=draw.action,
        propensity=draw.propensity,
        cost=np.where(draw.known, -draw.reward, 0).astype(np.float32),
        known=draw.known,
        is_test=np.zeros(rows, bool),
        label=None,
        pi0=None,
    )
    spec = LogSpec(draw.actions, ContextSpec(str(draw.context.dtype), draw.context.shape[1:]))
    lineage = step_of("bench-worlds", {"world": world, "seed": seed})
    with log_writer(str(target), spec, lineage, force=True) as writer:
        for first in range(0, rows, 8192):
            part = np.zeros(rows, bool)
            part[first : first + 8192] = True
            writer.write(log_batch(arrays.take(part), spec))


# --- contenders ---

PEERS = ("ridge", "boosted-trees", "ipw-classifier", "vw-mtr", "vw-dr")
METHODS = ("default", "dm-s2bl", "tips", "banditnet", "wce-s2bl", "cce-s2bl", "q-learning")
REFERENCE = "logging-argmax"  # the true logging policy's most probable action, which is not a learner
PEER_PROGRAM = Path(__file__).parent / "peer_learners.py"

Outcome = dict[str, Any]  # value_argmax, value_acts, seconds, or error
ONE_THREAD = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")}


class ContenderError(Exception):
    """A contender's own error text."""


def _run(words: Sequence[object]) -> tuple[str, float]:
    """What a command prints, and its CPU seconds, which other processes of the machine hardly change."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*map(str, words)], env=ONE_THREAD, stdout=out, stderr=errors, text=True)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            lines = errors.read().strip().splitlines()
            raise ContenderError(lines[-1] if lines else f"exit code {process.returncode}")
        return out.read(), usage.ru_utime + usage.ru_stime


def run_peer(name: str, draw: Draw, folder: Path) -> Outcome:
    data, chosen, known = folder / "known.npz", folder / "chosen.npy", draw.known
    if not data.exists():
        np.savez(
            data,
            **{column: getattr(draw, column)[known] for column in ("context", "action", "propensity", "reward")},
            test_context=draw.test_context,
            actions=draw.actions,
        )
    printed, _ = _run([peers.PYTHON, PEER_PROGRAM, name, data, chosen])
    value = draw.value_of_actions(np.load(chosen))
    return {"value_argmax": value, "value_acts": value, "seconds": float(printed)}


def run_s2bl(words: str, draw: Draw, folder: Path, seed: int) -> Outcome:
    method, *options = shlex.split(words)
    chosen = () if method == "default" else ("--method", method)
    policy = folder / "policy.safetensors"
    command = (sys.executable, "-m", "s2bl_cli", "train", folder / "log.parquet", *chosen, *options)
    _, seconds = _run([*command, "--seed", seed, "--threads", 1, "--quiet", "--force", "-o", policy])
    argmax, acts = policy_actions(policy, draw.test_context)
    return {"value_argmax": draw.value_of_actions(argmax), "value_acts": draw.value(acts), "seconds": seconds}


def policy_actions(
    policy: Path, contexts: npt.NDArray[np.generic]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """The most probable action of each row, and the probabilities by which the policy acts: (rows, actions)."""
    import torch

    from s2bl_cli.policies.acting import action_probabilities
    from s2bl_cli.policies.network import network_from

    loaded = read_policy(str(policy)).policy
    network = network_from(loaded.network, loaded.tensors, str(policy))
    with torch.no_grad():
        logits = torch.cat([network(part) for part in torch.from_numpy(contexts).split(4096)])
    return logits.argmax(1).numpy(), action_probabilities(logits, loaded.acts).numpy()


def run_contender(name: str, draw: Draw, folder: Path, seed: int) -> Outcome:
    try:
        if name == REFERENCE:
            value = draw.value_of_actions(draw.test_pi0.argmax(axis=1))
            return {"value_argmax": value, "value_acts": value, "seconds": 0.0}
        return run_peer(name, draw, folder) if name in PEERS else run_s2bl(name, draw, folder, seed)
    except ContenderError as error:
        return {"error": str(error)}


# --- runs ---

RESULTS = real_worlds.FOLDER / "results.jsonl"
SLOW = ("half-percent", "many-actions", "fmnist-good", "fmnist-adverse", "fmnist-uniform", "fmnist-random")
SEEDS, SEEDS_OF_SLOW = 10, 3


def run_world(name: str, seed: int, contenders: Sequence[str], rows: int | None = None) -> Iterator[Outcome]:
    """A log of the world, and one result per contender."""
    draw = WORLDS[name].draw(seed, rows)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write_log(draw, folder / "log.parquet", name, seed)
        for contender in contenders:
            outcome = run_contender(contender, draw, folder, seed)
            yield {
                "world": name,
                "seed": seed,
                "contender": contender,
                "commit": _commit(),
                "logging_value": draw.logging_value,
                "best_value": draw.best_value,
                **outcome,
            }


def _commit() -> str:
    words = ("git", "-C", Path(__file__).parent, "describe", "--always", "--dirty")
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def run_all(names: Sequence[str], contenders: Sequence[str], seeds: int | None, jobs: int, again: bool) -> None:
    finished = set()
    if RESULTS.exists() and not again:
        finished = {(r["world"], r["contender"], r["seed"]) for r in _lines(RESULTS) if "error" not in r}
    todo = []
    for name in names:
        for seed in range(seeds or (SEEDS_OF_SLOW if name in SLOW else SEEDS)):
            remaining = [contender for contender in contenders if (name, contender, seed) not in finished]
            if remaining:
                todo.append((name, seed, remaining))

    def run_one(task: tuple[str, int, list[str]]) -> None:
        for result in run_world(*task):
            with open(RESULTS, "a") as file:  # one write per line: lines of several jobs do not mix
                file.write(json.dumps(result) + "\n")
            print(_line(result), file=sys.stderr, flush=True)

    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    peers.make_peers()
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run_one, todo))


def _lines(file: Path) -> list[Outcome]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _line(result: Outcome) -> str:
    start = f"{result['world']:18}{result['seed']:3}  {result['contender']:20}"
    if "error" in result:
        return f"{start} {result['error']}"
    possible = result["best_value"] - result["logging_value"]
    shares = [(result[name] - result["logging_value"]) / possible for name in ("value_argmax", "value_acts")]
    return f"{start}{shares[0]:8.3f}{shares[1]:8.3f}{result['seconds']:8.1f} s"


# --- tables ---

ARGMAX, ACTS, SECONDS = "argmax", "acts", "seconds"


def load_results(file: Path) -> pl.DataFrame:
    """One row per world, contender and seed: the latest result, with the shares of the possible gain."""
    empty = dict.fromkeys(("value_argmax", "value_acts", "seconds", "error"))
    latest = {(r["world"], r["contender"], r["seed"]): {**empty, **r} for r in _lines(file)}
    possible = pl.col("best_value") - pl.col("logging_value")
    return pl.DataFrame(list(latest.values()), infer_schema_length=None).with_columns(
        ((pl.col("value_argmax") - pl.col("logging_value")) / possible).alias(ARGMAX),
        ((pl.col("value_acts") - pl.col("logging_value")) / possible).alias(ACTS),
    )


class Cell:
    """Results of one contender in one world: mean and standard error over the seeds."""

    def __init__(self, values: Sequence[float | None]) -> None:
        present = [value for value in values if value is not None]
        self.failed = len(values) - len(present)
        self.runs = len(present)
        self.mean = float(np.mean(present)) if present else float("nan")
        self.stderr = float(np.std(present, ddof=1) / np.sqrt(self.runs)) if self.runs > 1 else float("nan")

    def text(self, bold: bool) -> str:
        if self.failed or not self.runs:
            return f"failed ({self.failed})" if self.failed else "–"
        mean = f"**{self.mean:.2f}**" if bold else f"{self.mean:.2f}"
        return mean if np.isnan(self.stderr) else f"{mean} ± {self.stderr:.2f}"


Cells = dict[tuple[str, str], Cell]  # world, contender


def cells(results: pl.DataFrame, quantity: str) -> Cells:
    grouped = results.group_by("world", "contender", maintain_order=True).agg(pl.col(quantity))
    return {(world, contender): Cell(values) for world, contender, values in grouped.iter_rows()}


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def share_table(found: Cells, names: Sequence[str], contenders: Sequence[str]) -> str:
    """Shares of the possible gain. The highest mean of the learners is bold; the last rows summarise the worlds."""
    rows, learners = [], [contender for contender in contenders if contender != REFERENCE]
    complete = [name for name in names if all(_has_mean(found, name, contender) for contender in learners)]
    for name in names:
        means = [found[name, contender].mean for contender in learners if _has_mean(found, name, contender)]
        row = [name]
        for contender in contenders:
            cell = found.get((name, contender), Cell([]))
            row.append(cell.text(contender in learners and bool(means) and cell.mean == max(means)))
        rows.append(row)
    if complete:
        means = {contender: [found[name, contender].mean for name in complete] for contender in learners}
        best = np.max(list(means.values()), axis=0)
        summaries = {
            f"mean of {len(complete)} worlds": np.mean,
            "median": np.median,
            "lowest": np.min,
        }
        for title, summary in summaries.items():
            rows.append([title, *(f"{summary(means[c]):.2f}" if c in means else "" for c in contenders)])
        shortfall = {contender: best - values for contender, values in means.items()}
        for title, summary in {"mean shortfall to the best": np.mean, "largest shortfall": np.max}.items():
            rows.append([title, *(f"{summary(shortfall[c]):.2f}" if c in means else "" for c in contenders)])
    return _markdown(("world", *contenders), rows)


def _has_mean(found: Cells, name: str, contender: str) -> bool:
    return (name, contender) in found and not np.isnan(found[name, contender].mean)


def seconds_table(results: pl.DataFrame, names: Sequence[str], contenders: Sequence[str]) -> str:
    found = cells(results, SECONDS)
    learners = [contender for contender in contenders if contender != REFERENCE]
    rows = []
    for name in names:
        taken = [found[name, c].mean if _has_mean(found, name, c) else None for c in learners]
        rows.append([name, *("–" if seconds is None else f"{seconds:.1f}" for seconds in taken)])
    return _markdown(("world", *learners), rows)


def present(
    results: pl.DataFrame, names: Sequence[str], contenders: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """The worlds and contenders to show that have results, in the order of this file, others last."""
    worlds, found = set(results["world"]), list(dict.fromkeys(results["contender"]))
    if contenders is None:
        order = (*(c for c in found if c not in (*PEERS, REFERENCE)), *PEERS, REFERENCE)
        contenders = [contender for contender in order if contender in found]
    return [name for name in names if name in worlds], [contender for contender in contenders if contender in found]


def tables(results: pl.DataFrame, names: Sequence[str], contenders: Sequence[str]) -> str:
    """Markdown: the worlds, the shares by argmax and as the policies act, the seconds."""
    titles = {ARGMAX: "Argmax", ACTS: "As the policies act (peers: their one action)"}
    parts = []
    for half, members in HALVES.items():
        shown = [name for name in members if name in names]
        for quantity, title in titles.items() if shown else ():
            parts.append(f"{title}, {half} half:\n\n{share_table(cells(results, quantity), shown, contenders)}")
    parts.append(f"CPU seconds:\n\n{seconds_table(results, names, contenders)}")
    return "\n\n".join(parts)


def world_table(names: Sequence[str]) -> str:
    rows = []
    for name in names:
        world = WORLDS[name]
        half = next(half for half, members in HALVES.items() if name in members)
        size = (f"{world.rows:,} × {world.features}", f"{world.actions:,}", f"{100 * world.known:g} %")
        rows.append((f"{name}: {world.text}", half, *size))
    return _markdown(("world", "half", "rows × features", "actions", "known"), rows)


# --- the page and its figure ---

START, END = "<!-- measured:worlds -->", "<!-- /measured -->"
FIGURE = "figures/worlds.svg"  # beside the page
LEFT_EDGE = -0.5  # shares below are drawn at the edge

PAGE = """The share of the possible gain, (V − V_logging) / (V_best − V_logging), from true values: 0 is the logging
policy, 1 the best deterministic policy. Mean ± standard error over SEEDS seeds; the best mean of a row is bold. Choices
about learners were made on the tuning half alone. `default` is `s2bl train` without a method.MISSING

![Share of the possible gain by world and learner](FIGURE)

TABLES

The worlds:

WORLDS

The peers see the known rows alone: ridge regression and boosted trees per action (scikit-learn), a logistic regression
of the actions weighted by reward / propensity, and Vowpal Wabbit (cb_adf, five passes). Seconds are CPU seconds
of one thread: of a peer's fitting, and of the whole command `s2bl train`, start-up included. `logging-argmax` is the
true logging policy's most probable action.

```sh
S2BL_DATA=folder python bench/worlds.py
python bench/worlds.py --write docs/learners.md
```"""


def write_page(page: Path, results: pl.DataFrame, names: Sequence[str], contenders: Sequence[str]) -> None:
    """Replace the text between the page's marks, or append it, and draw the figure."""
    counts = sorted(set(results.group_by("world", "contender").len()["len"]))
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    missing = [name for name in WORLDS if name not in names]
    sentence = f" Worlds that were not run: {', '.join(missing)}." if missing else ""
    text = PAGE.replace("SEEDS", seeds).replace("FIGURE", FIGURE).replace("MISSING", sentence)
    text = text.replace("TABLES", tables(results, names, contenders)).replace("WORLDS", world_table(names))
    old = page.read_text() if page.exists() else ""
    if START not in old:
        old = f"{old.rstrip()}\n\n## A battery of worlds\n\n{START}\n{END}\n".lstrip()
    before, _, rest = old.partition(START)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{START}\n{text}\n{END}{after}")
    draw_figure(results, names, contenders, page.parent / FIGURE)


def draw_figure(results: pl.DataFrame, names: Sequence[str], contenders: Sequence[str], target: Path) -> None:
    """A line per world, a mark per learner: dots for policies of s2bl, crosses for peers."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "s2bl"
    import matplotlib.pyplot as plt

    found = cells(results, ARGMAX)
    figure, axes = plt.subplots(figsize=(9, 0.3 * len(names) + 1.6), layout="constrained")
    axes.axvline(0, color="0.4", linewidth=1)
    axes.axvline(1, color="0.85", linewidth=1)
    axes.hlines(range(len(names)), LEFT_EDGE, 1, color="0.93", linewidth=1, zorder=0)
    for number, contender in enumerate(c for c in contenders if c != REFERENCE):
        points = [
            (found[name, contender].mean, row) for row, name in enumerate(names) if _has_mean(found, name, contender)
        ]
        x, y = np.array(points).reshape(-1, 2).T
        marker = "x" if contender in PEERS else "o"
        axes.scatter(np.clip(x, LEFT_EDGE, None), y, s=26, marker=marker, color=f"C{number % 10}", label=contender)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel=f"share of the possible gain (below {LEFT_EDGE}: drawn at the edge)", xlim=(LEFT_EDGE - 0.03, 1.03))
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=5, fontsize=8)
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, metadata={"Date": None})


# --- command line ---


def smoke() -> None:
    """Two small worlds, a peer and a method: whether everything runs."""
    peers.make_peers()
    for name in ("clicks", "two-actions"):
        for result in run_world(name, 0, ("ridge", "tips --epochs 1"), rows=500):
            print(_line(result))
            if "error" in result:
                sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES, help="only the worlds of this half")
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, metavar="NAME", help="only these worlds")
    parser.add_argument(
        "--contenders", nargs="+", metavar="NAME", help="peers, or methods, also with options: 'wce-s2bl --lam 3'"
    )
    parser.add_argument("--seeds", type=int, help=f"per world (default: {SEEDS}, slow worlds {SEEDS_OF_SLOW})")
    parser.add_argument("--jobs", type=int, default=1, help="worlds to run at the same time")
    parser.add_argument("--again", action="store_true", help="repeat runs that have results")
    parser.add_argument("--list", action="store_true", help="print the worlds")
    parser.add_argument("--table", action="store_true", help="print the tables of earlier results")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write tables and figure of earlier results")
    parser.add_argument("--smoke", action="store_true", help="a quick run that checks everything works")
    options = parser.parse_args()

    names = options.worlds or HALVES.get(options.half) or (*HALVES["tuning"], *HALVES["claims"])
    if options.smoke:
        return smoke()
    if options.list:
        return print(world_table(names))
    if not (options.table or options.write):
        contenders = options.contenders or (REFERENCE, *PEERS, *METHODS)
        run_all(names, contenders, options.seeds, options.jobs, options.again)
    results = load_results(RESULTS)
    shown, order = present(results, names, options.contenders)
    if options.write:
        return write_page(options.write, results, shown, order)
    print(tables(results, shown, order))
    return None


if __name__ == "__main__":
    main()
