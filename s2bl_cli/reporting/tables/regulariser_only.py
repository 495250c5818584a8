"""The regularisers alone beside the whole objectives: the shape of the paper's table of methods without a risk.

As there, a ρ that is the same everywhere stands in the caption, and there is no column of the logging policy.
"""

from dataclasses import replace

import polars as pl

from s2bl_cli.errors import SettingError
from s2bl_cli.reporting.grid import Wanted, grid, ordered
from s2bl_cli.reporting.selection import is_reference, key_text
from s2bl_cli.reporting.table import Table

ALONE = "-only"
WHOLE = "-s2bl"


def pairs(methods: list[str]) -> list[str]:
    """Each regulariser's whole objective and the regulariser alone, side by side, as far as they are there."""
    stems = [name.removesuffix(ALONE) for name in ordered(methods) if name.endswith(ALONE)]
    return [name for stem in stems for name in (stem + WHOLE, stem + ALONE) if name in methods]


def build(frame: pl.DataFrame, wanted: Wanted) -> Table:
    columns = pairs(frame["method"].unique().to_list())
    if not columns:
        raise SettingError(
            "--table regulariser-only needs a method without a risk, such as wce-only, and there is none; "
            "try --table main"
        )
    chosen = frame.filter(pl.col("method").is_in(columns) | is_reference())
    table = grid(chosen, wanted, ("dataset", "tau", "rho"), methods=columns, with_references=False)
    rhos = chosen.filter(~is_reference())["rho"].unique().to_list()
    if len(rhos) > 1 or wanted.group_by:
        return table
    return replace(
        table,
        key_names=table.key_names[:2] + table.key_names[3:],
        rows=tuple((keys[:2] + keys[3:], cells) for keys, cells in table.rows),
        caption=f"{table.caption}, ρ = {key_text(rhos[0])}",
    )
