"""What `evaluate` can be asked to do."""

from dataclasses import dataclass

from s2bl_cli.settings import check_settings, setting


@dataclass(frozen=True)
class EvaluateSettings:
    """On which rows."""

    split: str = setting("test", "rows to score on", choices=lambda: ("test", "train", "all"))

    def __post_init__(self) -> None:
        check_settings(self)
