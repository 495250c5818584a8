"""`s2bl make-logs`: labelled data becomes logged decisions."""

from typing import Annotated

from s2bl_cli.commands.options import RUN_PANEL, Force, Json, Quiet, console_of, output_option, settings_as_flags, shown
from s2bl_cli.logging_policy.settings import MakeLogsSettings
from s2bl_cli.models.run_settings import RunSettings

Output = Annotated[str | None, output_option("DATASET-tau10.parquet")]


@settings_as_flags(run=RUN_PANEL)
def make_logs(
    settings: MakeLogsSettings,
    run: RunSettings,
    output: Output = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Turn labelled data into logged decisions.

    A logging policy is fitted to the labels and draws one action for each row; the row's cost is −1 where
    the action is the label and 0 elsewhere.
    """
    from s2bl_cli.contract.atomic import check_output
    from s2bl_cli.registry import DATASETS

    console = console_of(quiet=quiet, as_json=json, output=output)
    target = output or f"{settings.dataset}-tau{settings.tau:g}.parquet"
    check_output(target, force=force)
    data = DATASETS.load(settings.dataset)()
    device = run.start()
    from s2bl_cli.logging_policy.make_logs import make_logs as make  # imports torch: after the quick checks

    with console.progress("fitting the logging policy", settings.epochs, "epochs") as advance:
        facts = make(data, settings, target, force=force, device=device, advance=advance)
    low, middle, high = facts.propensity_quantiles
    console.say(
        f"{shown(target)}: {facts.train:,} train and {facts.test:,} test rows, {facts.actions} actions; "
        f"the logging policy draws right in {facts.right_draws:.1%} of the test rows (its likeliest action in "
        f"{facts.argmax_accuracy:.1%}); propensity 1 %, 50 %, 99 %: {low:.3g}, {middle:.3g}, {high:.3g}; "
        f"mean(1/p) = {facts.mean_inverse_propensity:.4g}"
    )
    console.summary(
        {
            "output": target,
            "train": facts.train,
            "test": facts.test,
            "actions": facts.actions,
            "argmax_accuracy": facts.argmax_accuracy,
            "right_draws": facts.right_draws,
            "propensity_quantiles": {"0.01": low, "0.5": middle, "0.99": high},
            "mean_inverse_propensity": facts.mean_inverse_propensity,
        }
    )
