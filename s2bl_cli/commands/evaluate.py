"""`s2bl evaluate`: how good policies are."""

from typing import Annotated

import typer

from s2bl_cli.commands.options import (
    LOG_PANEL,
    RUN_PANEL,
    Force,
    Json,
    Quiet,
    console_of,
    counted,
    output_option,
    settings_as_flags,
    shown,
)
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.evaluation.settings import EvaluateSettings
from s2bl_cli.models.run_settings import RunSettings

Policies = Annotated[
    list[str], typer.Argument(help="policy files that s2bl train made", metavar="POLICY", show_default=False)
]
LogsOption = Annotated[
    list[str],
    typer.Option("--logs", help="a log to score on; may be given several times", metavar="LOGS", show_default=False),
]
Output = Annotated[str | None, output_option("scores.parquet")]


@settings_as_flags(columns=LOG_PANEL, run=RUN_PANEL)
def evaluate(
    policies: Policies,
    logs: LogsOption,
    settings: EvaluateSettings,
    columns: LogColumns,
    run: RunSettings,
    output: Output = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Score policies on logs.

    With labels: the accuracy of the likeliest action and of drawn actions, with standard errors, for each
    policy and for the logging policy itself. Each log is read once, however many policies there are.
    """
    from s2bl_cli.contract.atomic import check_output
    from s2bl_cli.contract.policies import read_policy
    from s2bl_cli.contract.scores import write_scores

    console = console_of(quiet=quiet, as_json=json, output=output)
    target = output or "scores.parquet"
    check_output(target, force=force)
    loaded = [read_policy(name) for name in policies]
    device = run.start()
    from s2bl_cli.evaluation.evaluate import evaluate_policies  # imports torch: after the quick checks

    scores, lineage = evaluate_policies(loaded, logs, columns, settings, device, console.progress)
    write_scores(scores, lineage, target, force=force)
    console.say(
        f"{shown(target)}: {counted(len(scores), 'score')} of {counted(len(loaded), 'policy', 'policies')} and of the "
        f"logging policy on {counted(len(logs), 'log')}"
    )
    for score in scores:
        error = "" if score.stderr is None else f" ± {score.stderr:.4f}"
        console.say(f"{score.policy} on {score.log}: {score.metric} {score.value:.4f}{error} ({score.rows:,} rows)")
    console.summary(
        {
            "output": target,
            "scores": [
                {
                    "policy": s.policy,
                    "log": s.log,
                    "metric": s.metric,
                    "value": s.value,
                    "stderr": s.stderr,
                    "rows": s.rows,
                }
                for s in scores
            ],
        }
    )
