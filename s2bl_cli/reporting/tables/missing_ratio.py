"""What more rows without feedback bring: rows dataset/τ/known rows/ratio, the numbers of the paper's Figure 3."""

import polars as pl

from s2bl_cli.errors import SettingError
from s2bl_cli.reporting.grid import TableRequest, grid
from s2bl_cli.reporting.selection import is_reference
from s2bl_cli.reporting.table import Table


def with_ratio(frame: pl.DataFrame) -> pl.DataFrame:
    """The scores of policies that learned from some known rows, and the references."""
    rated = frame.with_columns(ratio=pl.when(pl.col("known") > 0).then(pl.col("missing") / pl.col("known")))
    return rated.filter(pl.col("ratio").is_not_null() | is_reference())


def build(frame: pl.DataFrame, request: TableRequest) -> Table:
    rated = with_ratio(frame)
    if rated.filter(~is_reference()).is_empty():
        raise SettingError(
            "--table missing-ratio needs the numbers of known and missing rows, which these scores do not say: "
            "score policies that s2bl train made"
        )
    return grid(rated, request, ("dataset", "tau", "known", "ratio"))
