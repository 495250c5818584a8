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
from s2bl_cli.contract.atomic import STANDARD_STREAM
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.errors import SettingError
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
    s2bl mask --rho 0.2 --seeds 0,1,2 logs.parquet -o masked.parquet
    """
    from s2bl_cli.contract.atomic import LOG_FORMATS, check_output
    from s2bl_cli.contract.logs.reading import open_logs
    from s2bl_cli.masking.rewrite import mask_log

    console = console_of(quiet=quiet, as_json=json, output=output)
    with open_logs(logs, columns, verify=True) as log:
        masks = {_target(output, log.stem, settings, mask.seed): mask for mask in settings.by_seed}
        for target in masks:
            check_output(target, force=force, formats=LOG_FORMATS)
        counts = {target: mask_log(log, mask, target, force=force) for target, mask in masks.items()}
        ignored, warnings = log.ignored_columns, log.warnings
    for warning in warnings:
        console.warn(warning)
    for name, _ in ignored:
        console.warn(
            f"column {name!r} is dropped, because its name is reserved for the log's {name}: rename it to keep it"
        )
    first = next(iter(counts.values()))
    if first.known < first.requested:
        console.warn(
            f"only {first.known_before:,} train rows had feedback, fewer than the {first.requested:,} requested: "
            f"all of them keep it"
        )
    for target, count in counts.items():
        console.say(
            f"{shown(target)}: {count.known:,} of {count.train:,} train rows keep their feedback "
            f"(ρ = {count.known / max(1, count.train):.4g}), {count.missing:,} are without it; "
            f"{count.dropped:,} dropped; {count.test:,} test rows untouched"
        )
    summaries = [
        {
            "output": target,
            "train": count.train,
            "known": count.known,
            "missing": count.missing,
            "dropped": count.dropped,
            "test": count.test,
        }
        for target, count in counts.items()
    ]
    console.summary(summaries[0] if settings.seeds is None else {"masks": summaries})


def _target(output: str | None, stem: str, settings: MaskSettings, seed: int) -> str:
    """The file of a mask. With --seeds, its name ends in the seed."""
    target = output or f"{stem}-{_suffix(settings)}.parquet"
    if settings.seeds is None:
        return target
    if target == STANDARD_STREAM:
        raise SettingError("-o - is for one log, but --seeds writes one per seed: give a file")
    return f"{target.removesuffix('.parquet')}-seed{seed}.parquet"


def _suffix(settings: MaskSettings) -> str:
    if settings.known is not None:
        return f"known{settings.known}" + (f"-missing{settings.missing}" if settings.missing is not None else "")
    return f"rho{settings.rho:g}" if settings.rho is not None else f"hide{settings.hide:g}"
