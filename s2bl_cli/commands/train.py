"""`s2bl train`: learn a policy from a log."""

from typing import Annotated

from s2bl_cli.commands.options import (
    LOG_PANEL,
    RUN_PANEL,
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
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.models.run_settings import RunSettings
from s2bl_cli.training.settings import TrainSettings

Output = Annotated[str | None, output_option("LOGS-METHOD-seed0.safetensors")]


@settings_as_flags(columns=LOG_PANEL, run=RUN_PANEL)
def train(
    logs: LogsArgument,
    settings: TrainSettings,
    columns: LogColumns,
    run: RunSettings,
    output: Output = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Learn a policy from logs whose feedback is partly missing.

    By default WCE-S2BL: truncated IPS on the rows with feedback, plus λ times the weighted cross-entropy on
    all rows. Only the rows of the train split are learned from, and labels are never read.
    """
    from s2bl_cli.contract.atomic import check_output
    from s2bl_cli.contract.logs.reading import open_logs
    from s2bl_cli.contract.policies import write_policy

    console = console_of(quiet=quiet, as_json=json, output=output)
    with open_logs(logs, columns) as log:
        target = output or f"{log.stem}-{settings.name}-seed{settings.seed}.safetensors"
        check_output(target, force=force)
        device = run.start(settings.step_work(log.spec.context.features, log.spec.actions))
        from s2bl_cli.training.loop import train_policy  # imports torch: after the quick checks

        with console.progress(f"training {settings.name}", settings.epochs, "epochs") as advance:
            policy = train_policy(log, settings, device, advance)
    write_policy(policy, target, force=force)
    console.say(
        f"{shown(target)}: {settings.name}, {policy.network.model} policy over {policy.network.actions} actions, "
        f"learned from {policy.training_rows:,} rows, {policy.training_known:,} of them with feedback"
    )
    steps = settings.epochs * (policy.training_rows // min(settings.batch_size, policy.training_rows))
    if steps < FEW_STEPS:
        console.say(few_steps(steps))
    console.summary(
        {
            "output": target,
            "method": settings.name,
            "model": policy.network.model,
            "actions": policy.network.actions,
            "rows": policy.training_rows,
            "known": policy.training_known,
            "device": str(device),
        }
    )
