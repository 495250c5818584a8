"""Policies × logs → scores and their lineage."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from s2bl_cli.contract.lineage import Step, step_of
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.policies import LoadedPolicy
from s2bl_cli.contract.scores import Score
from s2bl_cli.evaluation.scoring import Advance, candidates_on, score_on_log
from s2bl_cli.evaluation.settings import EvaluateSettings
from s2bl_cli.settings import recorded, recorded_changes

Progress = Callable[[str, int, str], AbstractContextManager[Advance]]


def evaluate_policies(
    policies: Sequence[LoadedPolicy],
    logs: Sequence[str],
    columns: LogColumns,
    settings: EvaluateSettings,
    device: torch.device,
    progress: Progress,
) -> tuple[list[Score], Step]:
    """Every policy on every log; each log is read once."""
    candidates = candidates_on(policies, device)
    scores: list[Score] = []
    sources = [loaded.source for loaded in policies]
    for name in logs:
        with open_logs([name], columns) as log:
            with progress(f"scoring on {log.name}", log.rows, "rows") as advance:
                scores += score_on_log(candidates, log, settings.split, device, advance)
            sources += log.sources
    return scores, step_of("evaluate", {**recorded(settings), **recorded_changes(columns)}, tuple(sources))
