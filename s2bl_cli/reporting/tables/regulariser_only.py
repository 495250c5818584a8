"""The regularisers alone beside the whole objectives: the shape of the paper's table of methods without a risk.

As there, a ρ that is the same everywhere stands in the caption, and there is no column of the logging policy.
"""

from dataclasses import replace

import polars as pl

from s2bl_cli.errors import SettingError
from s2bl_cli.reporting.grid import TableRequest, grid
from s2bl_cli.reporting.keys import key_text
from s2bl_cli.reporting.runs import ordered
from s2bl_cli.reporting.selection import of_metrics
from s2bl_cli.reporting.table import Table

ALONE = "-only"
WHOLE = "-s2bl"


def pairs(methods: list[str]) -> list[str]:
    """Each regulariser's whole objective and the regulariser alone, side by side, as far as they are there."""
    stems = [name.removesuffix(ALONE) for name in ordered(methods) if name.endswith(ALONE)]
    return [name for stem in stems for name in (stem + WHOLE, stem + ALONE) if name in methods]


def build(frame: pl.DataFrame, request: TableRequest) -> Table:
    methods = pairs(frame["method"].unique().to_list())
    if not methods:
        raise SettingError(
            "--table regulariser-only needs a method without a risk, such as wce-only, and there is none; "
            "try --table main"
        )
    chosen = frame.filter(pl.col("method").is_in(methods))
    shares = of_metrics(chosen, [request.metric])["rho"].unique().to_list()
    is_shared = len(shares) == 1 and not request.group_by
    keys = ("dataset", "tau") if is_shared else ("dataset", "tau", "rho")
    table = grid(chosen, request, keys, methods)
    return replace(table, caption=f"{table.caption}, ρ = {key_text(shares[0])}") if is_shared else table
