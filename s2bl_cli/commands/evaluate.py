"""`s2bl evaluate`: score policies on logs."""

from typing import Annotated

import typer

from s2bl_cli.commands.options import (
    LOG_PANEL,
    RUN_PANEL,
    TEST_PANEL,
    Force,
    Json,
    Quiet,
    console_of,
    counted,
    output_option,
    settings_as_flags,
    shown,
)
from s2bl_cli.contract.logs.columns import LogColumns, SplitSettings
from s2bl_cli.evaluation.settings import EvaluateSettings
from s2bl_cli.policies.run_settings import RunSettings

Policies = Annotated[
    list[str],
    typer.Argument(
        help="Policies from s2bl train (files, globs or folders), Parquet files of action probabilities, uniform, or "
        "logging",
        metavar="POLICY",
        show_default=False,
    ),
]
LogsOption = Annotated[
    list[str],
    typer.Option("--logs", help="Log to score on: a file, glob or folder", metavar="LOGS", show_default=False),
]
As = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Method, seed and further settings of a file of action probabilities in the tables of report, such as "
        "method=mine,rho=0.02,seed=0",
        metavar="NAME=VALUE[,...]",
    ),
]
Output = Annotated[str | None, output_option("scores.parquet", "File to write (.parquet or .csv)")]


@settings_as_flags(columns=LOG_PANEL, test_rows=TEST_PANEL, run=RUN_PANEL)
def evaluate(
    policies: Policies,
    logs: LogsOption,
    settings: EvaluateSettings,
    columns: LogColumns,
    test_rows: SplitSettings,
    run: RunSettings,
    placed_as: As = None,
    output: Output = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Score policies on logs.

    The expected reward of each policy is estimated from the logged feedback, by 14 estimators with intervals. Health
    figures and a verdict show whether these estimates are reliable; they do not show whether the policy is good. The
    logging policy is always scored too, for comparison. If the log has labels, accuracies and the true risk are also
    computed.

    Examples:
    s2bl evaluate policy.safetensors --logs logs.parquet -o scores.parquet
    s2bl evaluate a.safetensors b.safetensors --logs test/ --interval bootstrap
    """
    from s2bl_cli.contract.atomic import TABLE_FORMATS, check_output
    from s2bl_cli.contract.scores import write_scores

    console = console_of(quiet=quiet, as_json=json, output=output)
    target = output or "scores.parquet"
    check_output(target, force=force, formats=TABLE_FORMATS)
    from s2bl_cli.evaluation.candidates import open_candidates, parse_place

    place = None if placed_as is None else parse_place(placed_as)
    with open_candidates(policies, settings.given_act, settings.compare_to, place) as (candidates, baseline):
        device = run.start()
        from s2bl_cli.evaluation.evaluate import evaluate_policies  # imports torch: after the quick checks

        evaluation, lineage = evaluate_policies(
            candidates, baseline, logs, columns, test_rows, settings, device, console.progress, placed_as
        )
    write_scores(evaluation.scores, lineage, target, force=force)
    from s2bl_cli.evaluation.summary import summary_lines

    for warning in evaluation.warnings:
        console.warn(warning)
    given = len(candidates) - 1  # the logging policy is always the last
    scored = f"{counted(given, 'policy', 'policies')} and of the logging policy" if given else "the logging policy"
    console.say(
        f"{shown(target)}: {counted(len(evaluation.scores), 'score')} of {scored} on {counted(len(logs), 'log')}"
    )
    for line in (*evaluation.scored_rows, *summary_lines(evaluation.scores)):
        console.say(line)
    fields = ("policy", "log", "metric", "label", "value", "stderr", "low", "high", "level", "interval", "rows", "note")
    console.summary(
        {
            "output": target,
            "warnings": evaluation.warnings,
            "scores": [{name: getattr(score, name) for name in fields} for score in evaluation.scores],
        }
    )
