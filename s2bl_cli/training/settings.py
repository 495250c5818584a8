"""What `train` can be asked to do. Importing this module does not import torch."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from s2bl_cli.errors import SettingError
from s2bl_cli.models.settings import parse_hidden
from s2bl_cli.objectives.methods import DEFAULT_LAM, DEFAULT_METHOD, METHODS, method_name
from s2bl_cli.registry import MODELS, REGULARISERS, RISKS
from s2bl_cli.settings import Between, check_settings, setting

_PARTS = ("risk", "reg", "reg_rows")


class Combination(NamedTuple):
    """Which risk, which regulariser, on which rows, and its weight."""

    risk: str
    reg: str
    reg_rows: str
    lam: float


def _default_lam_words() -> str:
    return ", ".join(f"{lam:g} for {reg}" for reg, lam in DEFAULT_LAM.items() if reg != "none")


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
    lam: float | None = setting(
        None, f"weight λ of the regulariser (default: {_default_lam_words()})", rule=Between(0, 1e9)
    )
    nu: float = setting(0.001, "truncation ν: propensities below it count as ν", rule=Between(0, 1))
    model: str = setting("linear", "the policy's model", choices=lambda: MODELS.names)
    hidden: str = setting("100", "hidden layer widths of an mlp, comma-separated", metavar="WIDTHS")
    width: int = setting(64, "channels of a resnet's first block", rule=Between(1, 4096))
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
        risk, reg, _, lam = self.combination
        if risk == "none" and (reg == "none" or lam == 0):
            rest = "--reg none" if reg == "none" else f"--lam {lam:g}"
            raise SettingError(f"--risk none and {rest} leave nothing to learn from: choose a risk or a regulariser")

    @property
    def combination(self) -> Combination:
        """The parts of the objective, with every default filled in."""
        preset = METHODS[self.method or DEFAULT_METHOD]
        reg = self.reg or preset.reg
        lam = DEFAULT_LAM.get(reg, 1.0) if self.lam is None or reg == "none" else self.lam
        reg_rows = "all" if reg == "none" else self.reg_rows or preset.reg_rows  # no regulariser sees no rows
        return Combination(self.risk or preset.risk, reg, reg_rows, lam)

    @property
    def name(self) -> str:
        """What to call the combination in file names and tables."""
        return method_name(self.combination.risk, self.combination.reg, self.combination.reg_rows)

    def step_work(self, features: int, actions: int) -> float:
        """Multiplications of a step's forward pass, for choosing threads."""
        sizes = (features, *parse_hidden(self.model, self.hidden), actions)
        if self.model.startswith("resnet"):
            return math.inf
        return self.batch_size * sum(a * b for a, b in pairwise(sizes))

    def resolved(self) -> "TrainSettings":
        """The same with the defaults spelled out, as a lineage keeps it."""
        return replace(self, **self.combination._asdict(), method=self.name if self.name in METHODS else None)
