"""`s2bl mask`: hide feedback."""

from typing import Annotated

from s2bl_cli.commands.options import (
    LOG_PANEL,
    Force,
    Json,
    LogsArgument,
    Quiet,
    console_of,
    output_option,
    settings_as_flags,
    shown,
)
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.masking.settings import MaskSettings

Output = Annotated[str | None, output_option("LOGS-rho0.2.parquet")]


@settings_as_flags(columns=LOG_PANEL)
def mask(
    logs: LogsArgument,
    settings: MaskSettings,
    columns: LogColumns,
    output: Output = None,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Hide the feedback of some rows.

    Their costs become null. Only train rows are masked, and counts are exact. Missing feedback stays missing.

    Examples:
    s2bl mask --rho 0.2 logs.parquet -o masked.parquet
    s2bl mask --known 1000 --missing 4000 logs.parquet -o small.parquet
    """
    from s2bl_cli.contract.atomic import LOG_FORMATS, check_output
    from s2bl_cli.contract.logs.reading import open_logs
    from s2bl_cli.masking.rewrite import mask_log

    console = console_of(quiet=quiet, as_json=json, output=output)
    with open_logs(logs, columns, verify=True) as log:
        target = output or f"{log.stem}-{_suffix(settings)}.parquet"
        check_output(target, force=force, formats=LOG_FORMATS)
        counts = mask_log(log, settings, target, force=force)
        ignored, warnings = log.ignored_columns, log.warnings
    for warning in warnings:
        console.warn(warning)
    for name, _ in ignored:
        console.warn(
            f"column {name!r} is dropped, because its name is reserved for the log's {name}: rename it to keep it"
        )
    if counts.known < counts.requested:
        console.warn(
            f"only {counts.known_before:,} train rows had feedback, fewer than the {counts.requested:,} requested: "
            f"all of them keep it"
        )
    console.say(
        f"{shown(target)}: {counts.known:,} of {counts.train:,} train rows keep their feedback "
        f"(ρ = {counts.known / max(1, counts.train):.4g}), {counts.missing:,} are without it; "
        f"{counts.dropped:,} dropped; {counts.test:,} test rows untouched"
    )
    console.summary(
        {
            "output": target,
            "train": counts.train,
            "known": counts.known,
            "missing": counts.missing,
            "dropped": counts.dropped,
            "test": counts.test,
        }
    )


def _suffix(settings: MaskSettings) -> str:
    if settings.known is not None:
        return f"known{settings.known}" + (f"-missing{settings.missing}" if settings.missing is not None else "")
    return f"rho{settings.rho:g}" if settings.rho is not None else f"hide{settings.hide:g}"
