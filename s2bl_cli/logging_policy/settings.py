"""What `make-logs` can be asked to do."""

from dataclasses import dataclass

from s2bl_cli.models.settings import parse_hidden
from s2bl_cli.registry import DATASETS, MODELS
from s2bl_cli.settings import Between, check_settings, setting


@dataclass(frozen=True)
class MakeLogsSettings:
    """Which data, and which policy logs it."""

    dataset: str = setting("sample", "the labelled data; each class becomes an action", choices=lambda: DATASETS.names)
    tau: float = setting(
        1.0,
        "inverse temperature τ of the logging policy: the larger, the more uniform",
        rule=Between(0, 1e6, low_open=True),
    )
    tau_mode: str = setting(
        "train",
        "train: fit softmax(τ·h), draw from softmax(h), as in the paper; sample: fit at 1, draw from softmax(h/τ)",
        choices=lambda: ("train", "sample"),
    )  # fmt: skip
    logging_model: str = setting("linear", "the logging policy's model", choices=lambda: MODELS.names)
    hidden: str = setting("100", "hidden layer widths of an mlp, comma-separated", metavar="WIDTHS")
    epochs: int = setting(5, "passes over the labelled train rows", rule=Between(0, 100_000))
    batch_size: int = setting(128, "rows to a training step", rule=Between(1, 1 << 20))
    lr: float = setting(0.001, "learning rate (Adam)", rule=Between(0, 1e3, low_open=True))
    store_distribution: bool = setting(False, "also store the whole logging distribution of each row (column pi0)")
    seed: int = setting(0, "seed of the training and of the drawn actions", rule=Between(0, 2**32 - 1))

    def __post_init__(self) -> None:
        check_settings(self)
        parse_hidden(self.logging_model, self.hidden)
