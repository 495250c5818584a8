"""Options that do not change the policy: checkpoints, learning curves, streaming. No torch here."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.settings import Between, check_settings, setting


@dataclass(frozen=True)
class RunOptions:
    """What does not change the policy."""

    history: str | None = setting(
        None, "Write the learning curves to this file (.parquet or .csv)", metavar="FILE", recorded=False
    )
    checkpoint_every: int | None = setting(
        None, "Number of epochs between checkpoints", rule=Between(1, 100_000), recorded=False
    )
    checkpoint_minutes: float = setting(
        10.0, "Minutes between checkpoints", rule=Between(0, 1e6, low_open=True), recorded=False
    )
    resume: bool = setting(False, "Resume from the checkpoint of the same command, if there is one", recorded=False)
    stream: str = setting(
        "auto",
        "Stream the log from disk every epoch; auto: if it needs more than half of free memory",
        choices=lambda: ("auto", "on", "off"),
        recorded=False,
    )
    compile: bool = setting(False, "Compile the network with torch.compile (mlp and resnets)", recorded=False)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.history == "-":
            raise SettingError("--history takes the name of a file, found '-'")

    def check_history(self, targets: Sequence[str]) -> None:
        if self.history is not None and os.path.abspath(self.history) in map(os.path.abspath, targets):
            raise SettingError(f"--history {one_line(self.history, 99)} is also the policy's file: give another name")
