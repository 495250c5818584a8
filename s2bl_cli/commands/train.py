"""`s2bl train`: learn policies from a log."""

import os
from contextlib import ExitStack
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
from s2bl_cli.contract.logs.columns import LogColumns, SplitSettings
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
    train one policy each; --select keeps the best. A log with {seed} in its name is one log per seed.

    Examples:
    s2bl train logs.parquet
    s2bl train --reg wce --lam 0.1,1,10 --select snips --folds 5 logs.parquet
    s2bl train --model mlp --seeds 0,1,2 masked-seed{seed}.parquet -o out/
    """
    from s2bl_cli.contract.atomic import POLICY_FORMATS, TABLE_FORMATS, check_output
    from s2bl_cli.contract.logs.reading import open_logs
    from s2bl_cli.contract.logs.splitting import split_log
    from s2bl_cli.contract.policies import read_policy, write_policy
    from s2bl_cli.training.candidates import runs_of, targets_of

    console = console_of(quiet=quiet, as_json=json, output=output)
    prior = None if settings.prior is None else read_policy(settings.prior)
    with ExitStack() as stack:
        opened = [(own, stack.enter_context(open_logs(names, columns))) for own, names in runs_of(settings, logs)]
        runs = [(own, split_log(log, test_rows)) for own, log in opened]
        targets_by_run = [targets_of(settings, output, log.stem, own) for own, log in runs]
        targets = [target for some in targets_by_run for target in some]
        options.check_tables(targets, compares=settings.chooses_method)
        if output is not None and output.endswith("/"):
            os.makedirs(output, exist_ok=True)
        for target in targets:
            check_output(target, force=force, formats=POLICY_FORMATS)
        for table in options.tables.values():
            check_output(table, force=force, formats=TABLE_FORMATS)
        first_log = runs[0][1]
        device = run.start(settings.step_work(first_log.spec.context.features, first_log.spec.actions))
        # Imports torch: after the quick checks.
        from s2bl_cli.training.auto_run import AutoRun
        from s2bl_cli.training.learner import Checkpoint
        from s2bl_cli.training.run import (
            TrainedPolicy,
            TrainingRun,
            train_with_checkpoint,
            write_comparison,
            write_curves,
        )

        checkpoints = [
            Checkpoint(
                None if first == "-" else f"{first.removesuffix('.safetensors')}.checkpoint",
                every_epochs=options.checkpoint_every,
                every_minutes=options.checkpoint_minutes,
            )
            for first, *_ in targets_by_run
        ]
        trained: list[TrainedPolicy] = []
        for i, (own, log) in enumerate(runs):
            training = (
                AutoRun(log, own, options.stream, seconds=options.time and options.time / len(runs))
                if own.chooses_method
                else TrainingRun(log, own, options.stream, prior)
            )
            trained += train_with_checkpoint(training, options, checkpoints[i], device, console)
            if i < len(runs) - 1:
                checkpoints[i].write()  # for --resume, if a later run is stopped
        warnings = dict.fromkeys(warning for _, log in runs for warning in log.warnings)
        left_out = 0 if first_log.split is None else int(first_log.test_rows.sum())
    for policy, target in zip(trained, targets, strict=True):
        write_policy(policy.policy, target, force=force)
    if options.history is not None:
        write_curves(trained, targets, settings, options.history, force=force)
    if options.comparison is not None:
        write_comparison(trained, options.comparison, force=force)
    for checkpoint in checkpoints:
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
            f"{policy.policy.training_rows:,} rows, {policy.policy.training_known:,} of them with feedback"
        )
        if policy.choice is not None:
            console.say(f"{shown(target)}: {policy.choice.conclusion}")
    if test_rows.test_share is not None:
        console.say(f"{left_out:,} rows are left out for testing ({test_rows.text}); evaluate scores on them")
    for warning in warnings:
        console.warn(warning)
    for finding in dict.fromkeys(finding for policy in trained for finding in policy.findings):
        concerned = [shown(t) for policy, t in zip(trained, targets, strict=True) if finding in policy.findings]
        subject = concerned[0] if len(concerned) == 1 else f"{len(concerned)} policies"
        (console.warn if finding.has_failed else console.say)(f"{subject}: {finding.text}")
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
                    "findings": [finding.text for finding in policy.findings],
                    **({} if policy.choice is None else policy.choice.facts),
                }
                for policy, target in zip(trained, targets, strict=True)
            ],
        }
    )
