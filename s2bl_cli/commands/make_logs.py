"""`s2bl make-logs`: turn labelled data into logged decisions."""

from typing import Annotated

import typer

from s2bl_cli.commands.options import RUN_PANEL, Force, Json, Quiet, console_of, output_option, settings_as_flags, shown
from s2bl_cli.console import FEW_STEPS, few_steps
from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.features.settings import FeatureSettings
from s2bl_cli.logging_policy.settings import LoggingSettings
from s2bl_cli.policies.run_settings import RunSettings

POLICY_PANEL = "Logging policy"

SavePolicy = Annotated[
    str | None,
    typer.Option(
        "--save-policy",
        help="Save the fitted logging policy to this file, for --logging-policy",
        metavar="FILE",
        rich_help_panel=POLICY_PANEL,
    ),
]
Output = Annotated[str | None, output_option("DATASET-tau10.parquet")]


@settings_as_flags(data="Data", features="Pre-trained features", settings=POLICY_PANEL, run=RUN_PANEL)
def make_logs(
    data: DatasetSettings,
    features: FeatureSettings,
    settings: LoggingSettings,
    run: RunSettings,
    save_policy: SavePolicy = None,
    output: Output = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Turn labelled data into logged decisions.

    A logging policy is fitted to the labels and draws one action per row. The cost of a row is −1 if the action equals
    the label, else 0.

    Examples:
    s2bl make-logs --tau 10 -o logs.parquet
    s2bl make-logs --dataset cifar10 --tau 10 --data-dir data --download
    s2bl make-logs --dataset my.csv --label-column species
    """
    console = console_of(quiet=quiet, as_json=json, output=output)
    if settings.logging_policy is not None:
        from s2bl_cli.contract.policies import read_policy

        settings = settings.with_tau_of(read_policy(settings.logging_policy).policy.lineage)
    target = output or f"{data.short_name}-tau{settings.tau:g}.parquet"
    device = run.start()
    from s2bl_cli.logging_policy.conversion import Targets, convert  # imports torch: after the options are checked

    written = convert(data, features, settings, device, Targets(target, save_policy, force), console)
    facts = written.summary()
    for warning in written.warnings():
        console.warn(warning)
    quantiles = ", ".join(f"{value:.3g}" for value in facts["propensity_quantiles"].values())
    accuracy = ""
    if facts["sampled_accuracy"] is not None:
        sampled, argmax = 100 * facts["sampled_accuracy"], 100 * facts["argmax_accuracy"]
        accuracy = (
            f"logging-policy accuracy: {sampled:.1f} % sampled, {argmax:.1f} % argmax ({facts['scored_split']} rows); "
        )
    console.say(
        f"{shown(target)}: {facts['train']:,} train and {facts['test']:,} test rows, {facts['actions']:,} actions; "
        f"{accuracy}propensity 1 %, 50 %, 99 %: {quantiles}; mean(1/p) = {facts['mean_inverse_propensity']:.4g}"
    )
    if written.fitting_steps is not None and written.fitting_steps < FEW_STEPS:
        console.say(few_steps(written.fitting_steps))
    console.summary({"output": target, "limit": data.limit, **facts})
