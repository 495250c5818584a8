"""`s2bl train`: learn policies from a log."""

import os
from typing import Annotated

from s2bl_cli.commands.options import (
    LOG_PANEL,
    TEST_PANEL,
    Force,
    Json,
    LogsArgument,
    Quiet,
    console_of,
    output_option,
    settings_as_flags,
    shown,
)
from s2bl_cli.console import FEW_STEPS, few_steps
from s2bl_cli.contract.logs.columns import LogColumns, SplitSettings
from s2bl_cli.objectives.methods import GRADIENT_LEARNER
from s2bl_cli.policies.run_settings import RunSettings
from s2bl_cli.training.settings import RunOptions, TrainSettings

RESOURCES_PANEL = "Checkpoints and resources"

Output = Annotated[
    str | None, output_option("LOGS-METHOD-seed0.safetensors", "File to write, a folder/ for several policies")
]


@settings_as_flags(
    settings="Objective and model",
    columns=LOG_PANEL,
    test_rows=TEST_PANEL,
    options=RESOURCES_PANEL,
    run=RESOURCES_PANEL,
)
def train(
    logs: LogsArgument,
    settings: TrainSettings,
    test_rows: SplitSettings,
    options: RunOptions,
    run: RunSettings,
    columns: LogColumns,
    output: Output = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Learn policies from logs whose feedback is partly missing.

    By default (--method auto), several methods are compared on rows that they have not learned from, and the best one
    is trained on all rows. The last line says how much better than the logging policy it is estimated to be. Only rows
    of the train split are used, and labels are never read. With another method, several values of a hyperparameter
    train one policy each; --select keeps the best.

    Examples:
    s2bl train logs.parquet
    s2bl train --reg wce --lam 0.1,1,10 --select snips --folds 5 logs.parquet
    s2bl train --method tips --model mlp --seeds 0,1,2 logs.parquet -o out/
    """
    from s2bl_cli.contract.atomic import POLICY_FORMATS, TABLE_FORMATS, check_output
    from s2bl_cli.contract.logs.reading import open_logs
    from s2bl_cli.contract.logs.splitting import split_log
    from s2bl_cli.contract.policies import read_policy, write_policy
    from s2bl_cli.training.candidates import targets_of

    console = console_of(quiet=quiet, as_json=json, output=output)
    prior = None if settings.prior is None else read_policy(settings.prior)
    with open_logs(logs, columns) as opened:
        log = split_log(opened, test_rows)
        targets = targets_of(settings, output, log.stem)
        options.check_tables(targets, compares=settings.chooses_method)
        if output is not None and output.endswith("/"):
            os.makedirs(output, exist_ok=True)
        for target in targets:
            check_output(target, force=force, formats=POLICY_FORMATS)
        for table in options.tables.values():
            check_output(table, force=force, formats=TABLE_FORMATS)
        device = run.start(settings.step_work(log.spec.context.features, log.spec.actions))
        # Imports torch: after the quick checks.
        from s2bl_cli.training.auto_run import AutoRun
        from s2bl_cli.training.learner import Checkpoint
        from s2bl_cli.training.run import TrainingRun, train_with_checkpoint, write_comparison, write_curves

        checkpoint = Checkpoint(
            None if targets[0] == "-" else f"{targets[0].removesuffix('.safetensors')}.checkpoint",
            every_epochs=options.checkpoint_every,
            every_minutes=options.checkpoint_minutes,
        )
        training = (
            AutoRun(log, settings, options.stream, seconds=options.time)
            if settings.chooses_method
            else TrainingRun(log, settings, options.stream, prior)
        )
        trained = train_with_checkpoint(training, options, checkpoint, device, console)
        warnings = log.warnings
        left_out = 0 if log.split is None else int(log.test_rows.sum())
    for policy, target in zip(trained, targets, strict=True):
        write_policy(policy.policy, target, force=force)
    if options.history is not None:
        write_curves(trained, targets, settings, options.history, force=force)
    if options.comparison is not None:
        write_comparison(trained, options.comparison, force=force)
    checkpoint.remove()
    first = trained[0].policy
    for policy, target in zip(trained, targets, strict=True):
        is_described = len(trained) > 1 or policy.estimate is not None or settings.act is not None
        numbers = f" ({policy.described(settings)})" if is_described else ""
        model, actions = policy.policy.network.model, policy.policy.network.actions
        if policy.choice is not None:
            console.table(policy.choice.table)
        console.say(
            f"{shown(target)}: {settings.name}{numbers}, {model} policy over {actions} actions, learned from "
            f"{first.training_rows:,} rows, {first.training_known:,} of them with feedback"
        )
        if policy.choice is not None:
            console.say(f"{shown(target)}: {policy.choice.conclusion}")
    if test_rows.test_share is not None:
        console.say(f"{left_out:,} rows are left out for testing ({test_rows.text}); evaluate scores on them")
    for warning in warnings:
        console.warn(warning)
    if settings.learner == GRADIENT_LEARNER:
        steps = settings.epochs * max(1, first.training_rows // settings.batch_size)
        if steps < FEW_STEPS:
            console.say(few_steps(steps))
    console.summary(
        {
            "outputs": targets,
            "method": settings.name,
            "model": first.network.model,
            "actions": first.network.actions,
            "rows": first.training_rows,
            "known": first.training_known,
            "device": str(device),
            "policies": [
                {
                    "output": target,
                    "seed": policy.seed,
                    **policy.hyperparameters,
                    "estimate": policy.estimate,
                    "act": policy.policy.acts.text,
                    **({} if policy.choice is None else policy.choice.facts),
                }
                for policy, target in zip(trained, targets, strict=True)
            ],
        }
    )
