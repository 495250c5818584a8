"""What `train` can be asked to do. Importing this module does not import torch."""

from dataclasses import dataclass, replace

from s2bl_cli.errors import SettingError
from s2bl_cli.models.settings import parse_hidden
from s2bl_cli.objectives.methods import DEFAULT_METHOD, METHODS, method_name
from s2bl_cli.registry import MODELS, REGULARISERS, RISKS
from s2bl_cli.settings import Between, check_settings, setting

_PARTS = ("risk", "reg", "reg_rows")


@dataclass(frozen=True)
class TrainSettings:
    """Which objective, which model, how long."""

    method: str | None = setting(
        None, "a named combination of --risk, --reg and --reg-rows", choices=lambda: tuple(METHODS)
    )
    risk: str | None = setting(None, "risk on the rows with feedback (default: tips)", choices=lambda: RISKS.names)
    reg: str | None = setting(None, "feedback-free regulariser (default: wce)", choices=lambda: REGULARISERS.names)
    reg_rows: str | None = setting(
        None,
        "rows that the regulariser sees: all, or only those with feedback (default: all)",
        choices=lambda: ("all", "known"),
    )
    lam: float = setting(1.0, "weight λ of the regulariser", rule=Between(0, 1e9))
    nu: float = setting(0.001, "truncation ν: propensities below it count as ν", rule=Between(0, 1))
    model: str = setting("linear", "the policy's model", choices=lambda: MODELS.names)
    hidden: str = setting("100", "hidden layer widths of an mlp, comma-separated", metavar="WIDTHS")
    epochs: int = setting(20, "passes over the train rows", rule=Between(0, 100_000))
    batch_size: int = setting(
        128, "rows to a step, of known rows for the risk and of all rows for the regulariser", rule=Between(1, 1 << 20)
    )
    lr: float = setting(0.001, "learning rate (Adam)", rule=Between(0, 1e3, low_open=True))
    seed: int = setting(0, "seed of the start and of the order of rows", rule=Between(0, 2**32 - 1))

    def __post_init__(self) -> None:
        check_settings(self)
        parse_hidden(self.model, self.hidden)
        if self.method is not None:
            for part in _PARTS:
                given, preset = getattr(self, part), getattr(METHODS[self.method], part)
                if given is not None and given != preset:
                    flag = "--" + part.replace("_", "-")
                    raise SettingError(
                        f"--method {self.method} means {flag} {preset}, but {flag} {given} was given: drop one of them"
                    )
        if self.resolved_part("risk") == "none" and self.resolved_part("reg") == "none":
            raise SettingError("--risk none and --reg none leave nothing to learn from: choose at least one")

    def resolved_part(self, part: str) -> str:
        chosen: str | None = getattr(self, part)
        preset: str = getattr(METHODS[self.method or DEFAULT_METHOD], part)
        return chosen or preset

    def resolved(self) -> "TrainSettings":
        """The same with every part spelled out and the method named after them."""
        risk, reg, reg_rows = (self.resolved_part(part) for part in _PARTS)
        name = method_name(risk, reg, reg_rows)
        return replace(self, risk=risk, reg=reg, reg_rows=reg_rows, method=name if name in METHODS else None)

    @property
    def name(self) -> str:
        """What to call the combination in file names and tables."""
        return method_name(*(self.resolved_part(part) for part in _PARTS))
