"""Learning curves of a run as rows of a history file."""

from collections.abc import Sequence

from s2bl_cli.contract.history import HistoryRow, write_history
from s2bl_cli.contract.settings_text import encode_settings, train_settings
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.train import Trained


def write_curves(
    trained: Sequence[Trained], names: Sequence[str], settings: TrainSettings, target: str, *, force: bool
) -> None:
    rows = [
        HistoryRow(
            policy=name,
            method=settings.name,
            seed=one.seed,
            settings=recorded,
            epoch=epoch,
            quantity=quantity,
            value=value,
        )
        for one, name in zip(trained, names, strict=True)
        for recorded in [encode_settings(train_settings(one.policy.lineage))]
        for epoch, quantity, value in one.curves
    ]
    write_history(rows, trained[0].policy.lineage, target, force=force)
