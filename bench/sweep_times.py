"""What a sweep cost: CPU seconds and memory by stage, from the records of its commands.

    python bench/sweep_times.py runs/fmnist-linear

CPU seconds hardly depend on what else the machine does, wall seconds do. Every task of a sweep is a process of its own,
so the peak memory of a command is that of its process up to then. It is flat over time if the commands that finished
first and those that finished last have the same peak.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

STAGES = {"logs": "make-logs", "masked": "mask", "policies": "train", "scores": "evaluate"}
CORES = 2


class Command(NamedTuple):
    stage: str
    method: str  # of train, else empty
    cpu_seconds: float
    peak_mb: float
    finished_at: float


def read_commands(folder: Path) -> list[Command]:
    """The finished commands, in the order in which they finished."""
    commands = []
    for file in folder.glob("*/*.json"):
        record = json.loads(file.read_text())
        if record["state"] == "finished":
            words = record["command"].split()
            method = words[words.index("--method") + 1] if "--method" in words else ""
            commands.append(
                Command(
                    STAGES[file.parent.name], method, record["cpu_seconds"], record["peak_mb"], file.stat().st_mtime
                )
            )
    return sorted(commands, key=lambda one: one.finished_at)


def table(commands: Sequence[Command]) -> str:
    total = sum(one.cpu_seconds for one in commands)
    lines = [
        "| stage | commands | CPU seconds | share | seconds per command | peak MB, first half | peak MB, second half |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for stage in STAGES.values():
        own = [one for one in commands if one.stage == stage]
        if own:
            lines.append(_line(stage, own, total))
        methods = dict.fromkeys(one.method for one in own if one.method)
        lines += [_line(f"– {method}", [one for one in own if one.method == method], total) for method in methods]
    minutes = total / 60
    return (
        "\n".join([*lines, _line("all", commands, total)])
        + f"\n\n{minutes:,.1f} CPU minutes, which is {minutes / CORES:,.1f} minutes on {CORES} cores."
    )


def _line(title: str, commands: Sequence[Command], total: float) -> str:
    seconds = sum(one.cpu_seconds for one in commands)
    half = len(commands) // 2
    peaks = [max((one.peak_mb for one in part), default=None) for part in (commands[:half], commands[half:])]
    cells = (
        title, f"{len(commands):,}", f"{seconds:,.0f}", f"{100 * seconds / total:.0f} %",
        f"{seconds / len(commands):,.1f}", *("–" if peak is None else f"{peak:,.0f}" for peak in peaks),
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description="What a sweep cost, by stage.")
    parser.add_argument("folder", type=Path, help="folder of s2bl sweep")
    print(table(read_commands(parser.parse_args().folder)))


if __name__ == "__main__":
    main()
