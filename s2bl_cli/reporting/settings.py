"""The settings of `report`."""

from dataclasses import dataclass

from s2bl_cli.errors import SettingError
from s2bl_cli.registry import FIGURES, FORMATS, TABLES
from s2bl_cli.settings import COMMON, Between, check_settings, setting

AUTO = "auto"
CLAIM_PANEL = "Claims (exit code 1 if one fails)"


@dataclass(frozen=True)
class ReportSettings:
    """The table, its metric and format, the figure, and what the scores are compared with."""

    table: str = setting(
        AUTO, "Layout of the table; auto: the one that fits the scores", choices=lambda: (AUTO, *TABLES.names)
    )
    metric: str | None = setting(
        None,
        "Metric in the cells (default: argmax-accuracy if the files have it)",
        metavar="NAME",
    )
    group_by: str | None = setting(None, "Columns to group the rows by, such as dataset,tau,lam", metavar="COLUMNS")
    format: str | None = setting(
        None, "Format of the report (default: by the suffix of -o, else md)", choices=lambda: FORMATS.names
    )
    against: str | None = setting(
        None, "Published numbers to show beside ours, with the difference", choices=lambda: ("paper",), metavar="SOURCE"
    )
    significance: bool = setting(False, "Mark the cells that differ significantly from the best in their row")
    plot: str | None = setting(None, "Draw a figure to a .svg, .png or .pdf file", metavar="FILE", panel=COMMON)
    figure: str = setting(
        AUTO,
        "Figure that --plot draws; auto: the one that fits the files",
        choices=lambda: (AUTO, *FIGURES.names),
        panel="Figures",
    )
    confident: bool = setting(
        False,
        "Let a --check hold only if the 95 % interval of the difference does",
        panel=CLAIM_PANEL,
    )
    baseline: str | None = setting(
        None, "Fail if any score is worse than in this file", metavar="SCORES", panel=CLAIM_PANEL
    )
    tolerance: float = setting(
        0.0,
        "How much worse than --baseline a score may be, in the unit of the table: percentage points for accuracies",
        rule=Between(0),
        panel=CLAIM_PANEL,
    )

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns to group the rows by; empty for those of the table."""
        return () if self.group_by is None else tuple(part.strip() for part in self.group_by.split(","))

    def __post_init__(self) -> None:
        check_settings(self)
        if self.against is not None and self.table != AUTO:
            raise SettingError(f"--against {self.against} has a fixed table: remove --table {self.table}")
        if self.tolerance and self.baseline is None:
            raise SettingError("--tolerance needs --baseline: --baseline old.parquet --tolerance 0.5")
