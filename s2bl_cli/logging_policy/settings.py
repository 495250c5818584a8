"""Settings of the logging policy. Importing this module does not import torch."""

from dataclasses import dataclass, replace

from s2bl_cli.contract.lineage import Step
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.logging_policy.cost_names import MATCH
from s2bl_cli.policies.settings import parse_hidden
from s2bl_cli.registry import MODELS
from s2bl_cli.settings import COMMON, Between, check_settings, setting

UNFITTED = ("uniform", "random")  # logging models that need no fitting

# The model for each dataset, as in the paper's tables; linear for all others.
DEFAULT_MODEL = {
    "fmnist": "resnet-v1",
    "mnist": "resnet-v1",
    "emnist": "resnet-v1",
    "cifar10": "resnet-v1",
    "cifar100": "resnet-v2",
}

# 64 is the paper's width; 16 takes a fifth of the time on a CPU.
WIDTH = {"cpu": 16, "gpu": 64}
EPOCHS = {"cpu": 2, "gpu": 10}
FLAT_EPOCHS = 5  # linear and mlp, which are fast on any device


@dataclass(frozen=True)
class LoggingSettings:
    """Which policy logs, and the cost of its decisions."""

    tau: float = setting(
        None,
        "Temperature τ of the logging policy (called inverse temperature in the paper); larger is more uniform "
        "(default: 1; with --logging-policy: the τ that it was saved with)",
        rule=Between(0, 1e6, low_open=True),
        panel=COMMON,
    )
    tau_mode: str = setting(
        "train",
        "Where τ is applied; train: fit softmax(τ·h) and draw from softmax(h), as in the paper; "
        "sample: fit softmax(h) and draw from softmax(h/τ)",
        choices=lambda: ("train", "sample"),
    )
    logging_model: str | None = setting(
        None,
        "Model of the logging policy (default: as in the paper for images, else linear)",
        choices=lambda: (*MODELS.names, *UNFITTED),
        panel=COMMON,
    )
    logging_policy: str | None = setting(
        None,
        "Logging policy saved by --save-policy, instead of fitting one; it logs at any --tau",
        recorded=False,
        metavar="FILE",
    )
    hidden: str = setting("100", "Hidden layer widths of an mlp, comma-separated", metavar="WIDTHS")
    width: int | None = setting(
        None,
        f"Channels of a resnet's first block (default: {WIDTH['gpu']}; on a CPU: {WIDTH['cpu']})",
        rule=Between(1, 4096),
    )
    epochs: int | None = setting(
        None,
        f"Passes over the train rows (default: {FLAT_EPOCHS}; resnets: {EPOCHS['gpu']}, on a CPU {EPOCHS['cpu']})",
        rule=Between(0, 100_000),
    )
    batch_size: int = setting(128, "Batch size", rule=Between(1, 1 << 20))
    lr: float = setting(0.001, "Learning rate of Adam", rule=Between(0, 1e3, low_open=True))
    adverse: bool = setting(False, "Negate the logits, so that the logging policy prefers wrong actions")
    uniform: float = setting(0.0, "Share ε of uniform exploration in the logging policy", rule=Between(0, 1))
    cost: str = setting(
        MATCH,
        "Cost of a decision: match (−1 if the action is the label, else 0), or a SQL expression over action, label and "
        "the columns of a table",
        metavar="SQL",
    )
    cost_noise: float = setting(0.0, "Probability of flipping a cost of --cost match", rule=Between(0, 1))
    store_distribution: bool = setting(False, "Store the whole logging distribution of each row as column pi0")
    seed: int = setting(0, "Seed for fitting, drawing and noise", rule=Between(0, 2**32 - 1), panel=COMMON)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.tau is None and self.logging_policy is None:
            object.__setattr__(self, "tau", 1.0)  # the instance is frozen once it is made
        parse_hidden(self.logging_model or "linear", self.hidden)
        if self.cost_noise and self.cost != MATCH:
            raise SettingError(
                f"--cost-noise needs --cost match, found --cost {one_line(self.cost, 60)!r}: remove --cost-noise"
            )
        if self.logging_policy is not None and self.logging_model is not None:
            raise SettingError("--logging-policy and --logging-model exclude each other: remove one of them")
        if self.adverse and self.logging_model in UNFITTED:
            raise SettingError(
                f"--adverse needs a fitted logging policy, found --logging-model {self.logging_model}: "
                f"remove --adverse or choose another model"
            )

    def with_tau_of(self, saved: Step) -> "LoggingSettings":
        """With the τ of a saved policy's log, if none is given."""
        return self if self.tau is not None else replace(self, tau=_tau_of(saved))

    def resolved(self, dataset: str, *, images: bool, device: str) -> "LoggingSettings":
        """The settings with all defaults of this dataset and device filled in."""
        hardware = "cpu" if device == "cpu" else "gpu"
        model = self.logging_model
        if model is None and self.logging_policy is None:
            model = DEFAULT_MODEL.get(dataset, "linear") if images else "linear"
        is_deep = model is not None and model.startswith("resnet")
        epochs = EPOCHS[hardware] if is_deep else FLAT_EPOCHS
        return replace(
            self,
            logging_model=model,
            width=self.width if self.width is not None else WIDTH[hardware],
            epochs=self.epochs if self.epochs is not None else epochs,
        )


def _tau_of(saved: Step) -> float:
    return float(saved.settings.get("tau") or 1.0) if saved.command == "make-logs" else 1.0


def tau_of_logits(saved: Step) -> float:
    """The τ by which the logits of a saved policy are divided already: it was fitted as softmax(τ·h)."""
    return _tau_of(saved) if saved.settings.get("tau-mode") == "train" else 1.0
