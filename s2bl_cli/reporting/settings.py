"""What `report` can be asked to do."""

from dataclasses import dataclass

from s2bl_cli.registry import METRICS, TABLES
from s2bl_cli.settings import check_settings, setting


@dataclass(frozen=True)
class ReportSettings:
    """Which table of which numbers."""

    table: str = setting("main", "the shape of the table", choices=lambda: TABLES.names)
    metric: str = setting("argmax-accuracy", "the number in the cells", choices=lambda: METRICS.names)

    def __post_init__(self) -> None:
        check_settings(self)
