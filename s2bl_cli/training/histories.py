"""Learning curves of a run as rows of a history file."""

from collections.abc import Sequence

from s2bl_cli.contract.history import HistoryRow, write_history
from s2bl_cli.contract.settings_text import encode_settings, train_settings
from s2bl_cli.training.run import TrainedPolicy
from s2bl_cli.training.settings import TrainSettings


def write_curves(
    trained: Sequence[TrainedPolicy], names: Sequence[str], settings: TrainSettings, target: str, *, force: bool
) -> None:
    rows = [
        HistoryRow(name, settings.name, policy.seed, recorded, epoch, quantity, value)
        for policy, name in zip(trained, names, strict=True)
        for recorded in [encode_settings(train_settings(policy.policy.lineage))]
        for epoch, quantity, value in policy.curve
    ]
    write_history(rows, trained[0].policy.lineage, target, force=force)
