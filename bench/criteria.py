"""Which criterion of `train --method auto` chooses best: the regret of several, on the tuning half of the worlds.

    python bench/criteria.py [--worlds clicks bent] [--seeds 2] [--write docs/defaults.md]

`auto` compares its candidates once per log. Every candidate is then also trained on all rows, and its true value is
that on fresh contexts. The regret of a criterion is the true value of the best candidate less that of the chosen one,
as a share of the possible gain, V_best − V_logging. The logging policy itself is among the candidates.

    DR, z      the smallest loss of a reward model among the candidates within z standard errors of the best doubly
               robust value; z = 0 is the value alone
    SNIPS, z   the same with SNIPS values
    loss       the smallest loss alone
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from auto_gain import write_part
from worlds import HALVES, SLOW, WORLDS, write_log

from s2bl_cli.contract.acts import PLAIN
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.policies.acting import action_probabilities
from s2bl_cli.policies.network import network_from
from s2bl_cli.training import auto_run, comparison
from s2bl_cli.training.auto_run import AutoRun, Contender
from s2bl_cli.training.comparison import LOGGING, Comparison
from s2bl_cli.training.learner import Run
from s2bl_cli.training.settings import TrainSettings

CPU = torch.device("cpu")
DR, SNIPS, LOSS = "DR", "SNIPS", "loss"
ANY = 1e9  # standard errors: all candidates are near
CRITERIA = [*((DR, z) for z in (0.0, 1.0, 2.0, 3.0)), *((SNIPS, z) for z in (0.0, 1.0, 2.0)), (LOSS, ANY)]
START = "<!-- measured:criteria -->"

Regrets = dict[tuple[str, float], float]
Compared = dict[str, Any]  # what `auto_run.compare` was given and returned


def regrets(world: str, seed: int) -> Regrets:
    """The regret of every criterion on one log."""
    draw = WORLDS[world].draw(seed)
    compared: Compared = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "log.parquet")
        write_log(draw, file, world, seed)
        with open_logs([str(file)], LogColumns()) as log:
            run, auto = Run(CPU), AutoRun(log, TrainSettings("auto", seed=seed))
            with_capture(auto, run, compared)
            contenders, data = compared["contenders"], compared["data"]
            trained = {}
            for fitted in {id(one.fitted): one.fitted for one in contenders}.values():
                settings = Contender(fitted, PLAIN).settings
                (trained[id(fitted)],) = auto._training(settings).policies_from(data, Run(CPU))
    truth = {LOGGING: draw.logging_value}
    for number, (fitted, act) in enumerate(contenders):
        policy = trained[id(fitted)].policy
        with torch.no_grad():
            logits = network_from(policy.network, policy.tensors, "a candidate")(torch.from_numpy(draw.test_context))
            truth[number] = draw.value(action_probabilities(logits, act).numpy())
    best, possible = max(truth.values()), draw.best_value - draw.logging_value
    of_kind = {DR: compared["comparison"], SNIPS: snips_comparison(compared)}
    return {(kind, z): (best - truth[choice(of_kind.get(kind, of_kind[DR]), z)]) / possible for kind, z in CRITERIA}


def with_capture(auto: AutoRun, run: Run, compared: Compared) -> None:
    """Run `auto`, and keep its comparison."""
    compare = auto_run.compare

    def capturing(contenders: Any, folds: Any, data: Any, device: Any) -> Comparison:
        found = compare(contenders, folds, data, device)
        compared.update(contenders=contenders, folds=folds, data=data, comparison=found)
        return found

    auto_run.compare = capturing
    try:
        auto.policies(run)
    finally:
        auto_run.compare = compare


@torch.no_grad()
def snips_comparison(compared: Mapping[str, Any]) -> Comparison:
    """The same comparison with SNIPS values V: the mean of V + w (r − V)/w̄ is V, with its standard error."""
    contenders, sample, given = compared["contenders"], compared["data"].statistics.sample, compared["comparison"]
    parts = [sample.take(fold.holds_out(sample.number)) for fold in compared["folds"]]
    ones = [replace_cost(part, np.full_like(part.rows.cost, -1)) for part in parts]
    weights = [auto_run._scores(contenders, None, 0.0, k, part, CPU) for k, part in enumerate(ones)]
    candidates = []
    for number, candidate in enumerate(given.candidates):
        w = np.concatenate([of_fold[number] for of_fold in weights])  # expected rewards of 0: a score is w·r, r = 1
        value = float(w @ given.reward / w.sum()) if w.any() else float(given.reward.min())
        scores = value + (w * (given.reward - value) / w.mean() if w.any() else 0.0 * w)
        candidates.append(candidate._replace(scores=scores))
    return replace(given, candidates=candidates)


def replace_cost(rows: Any, cost: npt.NDArray[np.float32]) -> Any:
    return rows._replace(rows=replace(rows.rows, cost=cost))


def choice(compared: Comparison, z: float) -> int:
    """The chosen candidate within z standard errors."""
    near, comparison._NEAR = comparison._NEAR, z
    try:
        return compared.choose()
    finally:
        comparison._NEAR = near


def table(found: Sequence[tuple[str, Regrets]]) -> str:
    """Markdown: the mean and the largest regret per criterion, and the mean per world."""
    worlds = list(dict.fromkeys(world for world, _ in found))
    head = ("criterion", "mean regret", "largest", *worlds)
    rows = [head, ("---", *("---:" for _ in head[1:]))]
    for kind, z in CRITERIA:
        values = [regret[kind, z] for _, regret in found]
        by_world = [np.mean([regret[kind, z] for name, regret in found if name == world]) for world in worlds]
        name = kind if z == ANY else f"{kind}, z = {z:g}" if z else f"{kind} alone"
        rows.append((name, f"{np.mean(values):.3f}", f"{max(values):.3f}", *(f"{mean:.3f}" for mean in by_world)))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    quick = [world for world in HALVES["tuning"] if world not in (*SLOW, "fines")]
    parser.add_argument("--worlds", nargs="+", default=quick, choices=WORLDS, metavar="NAME")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table to this page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for world in options.worlds:
        for seed in range(options.seeds):
            found.append((world, regrets(world, seed)))
            print(world, seed, {f"{kind} {z:g}": round(regret, 3) for (kind, z), regret in found[-1][1].items()},
                  file=sys.stderr, flush=True)  # fmt: skip
    text = table(found)
    print(text)
    if options.write:
        write_part(options.write, START, text)


if __name__ == "__main__":
    main()
