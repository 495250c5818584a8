"""`s2bl sweep`: a grid of experiments."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from s2bl_cli.commands.evaluate import evaluate
from s2bl_cli.commands.make_logs import make_logs
from s2bl_cli.commands.mask import mask
from s2bl_cli.commands.options import RUN_PANEL, Json, Quiet, check_words, counted, settings_as_flags
from s2bl_cli.commands.train import train
from s2bl_cli.console import Console
from s2bl_cli.errors import SettingError
from s2bl_cli.sweeping.settings import SweepRunSettings, SweepSettings

if TYPE_CHECKING:
    from s2bl_cli.sweeping.executors import Executor

_STAGES = {"make-logs": make_logs, "mask": mask, "train": train, "evaluate": evaluate}

Output = Annotated[str, typer.Option("-o", "--output", help="Folder to write, which report reads", metavar="FOLDER")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the commands that remain and an estimate of the time, and run nothing"),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Replace results of other settings in the folder", rich_help_panel=RUN_PANEL),
]


@settings_as_flags(settings="Grid", run=RUN_PANEL)
def sweep(
    settings: SweepSettings,
    run: SweepRunSettings,
    output: Output = "runs",
    dry_run: DryRun = False,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a grid of experiments: logs, masks, policies and scores.

    Each log is made once and masked for every ρ. All seeds and hyperparameters of a cell are trained together. One of
    several hyperparameters is selected on known rows, never by labels. The same command continues an interrupted sweep
    and repeats nothing that is finished.

    Examples:
    s2bl sweep --tau 1,10 --rho 0.02,0.2 --methods wce-s2bl,tips -o runs
    s2bl sweep --preset table-linear-fmnist --data-dir data --dry-run
    s2bl report runs --against paper
    """
    from s2bl_cli.sweeping.estimates import seconds_of
    from s2bl_cli.sweeping.plan import make_plan
    from s2bl_cli.sweeping.run import Progress, check_result, locked, make_folders, run_sweep, stage_times

    console = Console(quiet=quiet, as_json=json)
    if output in ("", "-"):
        raise SettingError(f"-o takes the name of a folder, found {output!r}")
    plan = make_plan(settings, run)
    checked = {job.stage: job for job in plan.jobs if job.stage != "train"}
    methods = {(job.words[2], job.words[4]): job for job in plan.jobs if job.stage == "train"}
    for job in (*checked.values(), *methods.values()):
        check_words(job.stage, _STAGES[job.stage], job.command(output)[1:])
    progress = Progress.read(plan, output)
    remaining = progress.remaining
    cells = sum(task.is_cell for task in plan.tasks)
    left = sum(task.is_cell for task in remaining)
    seeds = len(settings.seed_list)
    if not force:
        progress.check_replaceable()
    seconds = seconds_of(remaining, progress, settings, run.slots)
    console.say(
        f"{counted(cells, 'cell')} of {counted(seeds, 'seed')}, {cells * seeds:,} policies; {cells - left:,} finished, "
        f"{left:,} to run: {counted(sum(len(task.jobs) for task in remaining), 'command')} in about "
        f"{_duration(seconds)} with {counted(run.slots, 'process', 'processes')} of a machine like this"
    )
    if dry_run:
        for task in remaining:
            for job in task.jobs:
                sys.stdout.write(job.text(output) + "\n")
        return
    make_folders(output, plan)
    folder = os.path.abspath(output)
    with locked(folder) as lock:
        progress = Progress.read(plan, folder)  # another sweep may have ended just now
        result = run_sweep(progress, _executor(folder, run, lock), console)
    progress = Progress.read(plan, folder)
    times = stage_times(progress)
    stages = ", ".join(f"{stage} {seconds:,.0f} s" for stage, (_, seconds, _) in times.items())
    peak = max((peak for _, _, peak in times.values()), default=0.0)
    finished = sum(task.is_cell and progress.is_finished(task) for task in plan.tasks)
    console.say(
        f"{output}: {finished:,} of {counted(cells, 'cell')} finished; all commands took {stages or '0 s'}; "
        f"at most {peak:,.0f} MB of memory each"
    )
    console.summary(
        {
            "output": output,
            "cells": cells,
            "finished": finished,
            "ran": result.finished,
            "failed": result.failed,
            "not_run": [task.name for task in result.not_run],
            "seconds": {stage: seconds for stage, (_, seconds, _) in times.items()},
            "peak_mb": peak,
        }
    )
    check_result(result, plan)


def _executor(folder: str, run: SweepRunSettings, lock: tuple[int, ...]) -> "Executor":
    if run.executor == "ray":
        from s2bl_cli.sweeping.executors.ray import RayExecutor

        return RayExecutor(folder, run.address, run.threads, run.workers)
    from s2bl_cli.sweeping.executors.local import LocalExecutor

    return LocalExecutor(folder, run.slots, lock)


def _duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
