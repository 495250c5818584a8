"""The main table, the shape of the paper's Tables 1 and 2.

Rows are by dataset, τ and ρ, with one column per method. The last column is the logging policy: the share of right
draws in the log, as in the paper's tables.
"""

import polars as pl

from s2bl_cli.reporting.grid import TableRequest, grid
from s2bl_cli.reporting.table import Table


def build(frame: pl.DataFrame, request: TableRequest) -> Table:
    return grid(frame, request, ("dataset", "tau", "rho"))
