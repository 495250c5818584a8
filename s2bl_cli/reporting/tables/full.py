"""The full table: as the main one, with a row for every model too: the shape of the paper's appendix, linear and deep
policies in one."""

import polars as pl

from s2bl_cli.reporting.grid import TableRequest, grid
from s2bl_cli.reporting.table import Table


def build(frame: pl.DataFrame, request: TableRequest) -> Table:
    return grid(frame, request, ("dataset", "model", "tau", "rho"))
