"""Learning curves of a run as rows of a history file."""

from collections.abc import Sequence

from s2bl_cli.contract.history import HistoryRow, write_history
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.train import Trained


def write_curves(
    trained: Sequence[Trained], names: Sequence[str], settings: TrainSettings, target: str, *, force: bool
) -> None:
    rows = [
        HistoryRow(
            policy=name,
            method=settings.name,
            lam=one.combination.lam if settings.reg_name != "none" else None,
            sharpen=one.combination.sharpen,
            nu=one.combination.nu,
            translation=one.combination.translation,
            seed=one.seed,
            epoch=epoch,
            quantity=quantity,
            value=value,
        )
        for one, name in zip(trained, names, strict=True)
        for epoch, quantity, value in one.curves
    ]
    write_history(rows, trained[0].policy.lineage, target, force=force)
