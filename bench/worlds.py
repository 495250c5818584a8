"""A battery of worlds: logs of many kinds with a known truth, and how much of the possible gain each learner gets.

    python bench/worlds.py                       # lists the worlds

The worlds are declared in synthetic_worlds.py and real_worlds.py.
"""

from pathlib import Path

import numpy as np
import real_worlds
import synthetic_worlds
from synthetic_worlds import Draw

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.contract.logs.schema import LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer

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


def main() -> None:
    for half, names in HALVES.items():
        for name in names:
            world = WORLDS[name]
            size = f"{world.rows:,} × {world.features}, {world.actions:,} actions, {100 * world.known:g} % known"
            print(f"{half:8}{name:18}{size:45}{world.text}")


if __name__ == "__main__":
    main()
