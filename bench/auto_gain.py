"""Whether the gain that `train --method auto` prints is honest, on small logs whose truth is known.

    python bench/auto_gain.py [--replications 100] [--jobs 2] [--write docs/learners.md]

Each replication draws a log of a quick world (synthetic_worlds.py, with fewer rows), runs `auto` with its defaults, and
compares the printed gain over the logging policy with the true gain of the policy as it acts. If the logging policy is
kept, no gain is printed, and the log does not count. Exits 1 if over all other logs

    the 95 % interval covers the true gain in less than 93 %, or
    it excludes 0 in less than 80 % of the logs whose true gain is more than three standard errors
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s2bl_cli.training.comparison import LOGGING_NAME

QUICK = {  # rows of each world
    "two-actions": 500,
    "clicks": 4_000,
    "good-logging": 10_000,
    "epsilon-greedy": 4_000,
    "all-known": 450,
    "estimated": 4_000,
}
LEVEL, LEAST_COVERAGE, LEAST_POWER, CLEAR = 0.95, 0.93, 0.8, 3.0
START, END = "<!-- measured:auto-gain -->", "<!-- /measured -->"


class Replication(NamedTuple):
    world: str
    estimate: float
    low: float
    high: float
    truth: float  # of the policy that was written
    chosen: str

    @property
    def covers(self) -> bool:
        return self.low <= self.truth <= self.high

    @property
    def stderr(self) -> float:
        return (self.high - self.low) / (2 * 1.96)


def replicate(world: str, seed: int) -> Replication:
    import torch
    from worlds import WORLDS, write_log

    from s2bl_cli.contract.logs.columns import LogColumns
    from s2bl_cli.contract.logs.reading import open_logs
    from s2bl_cli.policies.acting import action_probabilities
    from s2bl_cli.policies.network import network_from
    from s2bl_cli.training.auto_run import AutoRun
    from s2bl_cli.training.learner import Run
    from s2bl_cli.training.settings import TrainSettings

    torch.set_num_threads(1)
    draw = WORLDS[world].draw(seed, QUICK[world])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "log.parquet")
        write_log(draw, file, world, seed)
        with open_logs([str(file)], LogColumns()) as log:
            (trained,) = AutoRun(log, TrainSettings("auto", seed=seed)).policies(Run(torch.device("cpu")))
    policy, choice = trained.policy, trained.choice
    assert choice is not None
    with torch.no_grad():
        logits = network_from(policy.network, policy.tensors, "the policy")(torch.from_numpy(draw.test_context))
        pi = action_probabilities(logits, policy.acts).numpy()
    truth = draw.value(pi) - draw.logging_value
    return Replication(world, choice.gain, choice.gain_low, choice.gain_high, truth, choice.chosen)


def table(replications: Sequence[Replication]) -> str:
    """Markdown: one row per world, and one for all logs."""
    head = ("world", "logs", "covers", "mean gain", "mean true gain", "clear gains shown", "logging policy kept")
    groups = {world: [r for r in replications if r.world == world] for world in QUICK}
    rows = [_row(world, of_world) for world, of_world in groups.items() if of_world]
    rows.append(_row("**all logs**", replications))
    rule = ("---", *("---:" for _ in head[1:]))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def _row(name: str, replications: Sequence[Replication]) -> tuple[str, ...]:
    covers, power, clear = rates(replications)
    kept = np.mean([r.chosen == LOGGING_NAME for r in replications])
    means = (np.mean([r.estimate for r in replications]), np.mean([r.truth for r in replications]))
    shown = "–" if not clear else f"{100 * power:.1f} % of {clear}"
    return (
        name,
        f"{len(replications):,}",
        f"{100 * covers:.1f} %",
        *(f"{mean:.4f}" for mean in means),
        shown,
        f"{100 * kept:.0f} %",
    )


def rates(replications: Sequence[Replication]) -> tuple[float, float, int]:
    """Coverage; the share of clear gains that are shown; the number of clear gains. Of the logs with a printed gain."""
    printed = [r for r in replications if r.chosen != LOGGING_NAME]
    clear = [r for r in printed if r.truth > CLEAR * r.stderr]
    power = float(np.mean([r.low > 0 for r in clear])) if clear else 1.0
    return float(np.mean([r.covers for r in printed])), power, len(clear)


def write_part(page: Path, start: str, text: str) -> None:
    """Replace the text between the page's marks."""
    before, mark, rest = page.read_text().partition(start)
    if not mark:
        sys.exit(f"{page} has no {start}")
    page.write_text(f"{before}{start}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=100, help="per world")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table to this page")
    options = parser.parse_args()
    tasks = [(world, seed) for seed in range(options.replications) for world in QUICK]
    with ProcessPoolExecutor(options.jobs) as pool:
        replications = []
        for replication in pool.map(replicate, *zip(*tasks, strict=True)):
            replications.append(replication)
            print(*replication, file=sys.stderr, flush=True)
    text = table(replications)
    print(text)
    if options.write:
        write_part(options.write, START, text)
    covers, power, _ = rates(replications)
    if covers < LEAST_COVERAGE or power < LEAST_POWER:
        sys.exit(f"broken promise: covers {covers:.3f}, shows {power:.3f} of the clear gains")


if __name__ == "__main__":
    main()
