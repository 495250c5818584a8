"""The settings of `evaluate`. Importing this module does not import torch."""

from dataclasses import dataclass
from difflib import get_close_matches

from s2bl_cli.contract.acts import CHOICES, Act, parse_act
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.registry import METRIC_GROUPS, METRICS, REWARD_MODELS
from s2bl_cli.settings import Between, check_settings, low_and_high, setting

AUTO = "auto"
LOGGING = "logging"  # the logging policy's name on the command line
ALL = "all"
MODEL_PANEL = "Estimation"
DEFAULT_REWARD_MODEL = "logistic"
STORED = "stored"


@dataclass(frozen=True)
class EvaluateSettings:
    """The rows, metrics and intervals."""

    split: str = setting(
        AUTO,
        "Rows to score on; auto: the test split if there is one, else all",
        choices=lambda: (AUTO, "test", "train", "all"),
    )
    metrics: str = setting(
        ALL,
        f"Comma-separated metrics or groups of metrics ({', '.join(METRIC_GROUPS)}); all: whatever the log allows",
        metavar="METRICS",
    )
    interval: str = setting(
        "normal", "Kind of confidence interval", choices=lambda: ("normal", "bernstein", "bootstrap")
    )
    level: float = setting(0.95, "Confidence level", rule=Between(0.5, 0.99999))
    nu: float = setting(
        0.001,
        "Truncation: propensities below ν count as ν in tips and the bound",
        rule=Between(0, 1),
        panel=MODEL_PANEL,
    )
    reward_range: str | None = setting(
        None,
        "Smallest and largest possible reward; bounds and Bernstein intervals need it",
        metavar="LOW,HIGH",
        panel=MODEL_PANEL,
    )
    act: str | None = setting(
        None,
        f"How policies act: {CHOICES} (default: as each policy file says)",
        metavar="ACT",
    )
    compare_to: str = setting(
        LOGGING,
        "Baseline of the gains: logging, uniform, a policy file, or none",
        metavar="POLICY",
        recorded=False,
    )  # recorded by evaluate_policies, because a lineage has no file names
    missing_model: bool = setting(False, "Correct for feedback that is missing depending on context and action")
    reward_model: str = setting(
        DEFAULT_REWARD_MODEL,
        "Reward model of dm, dr, sndr, switch-dr and ppi-dr; auto: the one with the smallest squared error on rows of "
        "other folds",
        choices=lambda: (*REWARD_MODELS.names, AUTO),
        panel=MODEL_PANEL,
    )
    logging_feature: str = setting(
        "none",
        "Log-probabilities of the logging policy as a feature of the reward model; stored: if the log has them; auto: "
        "those, or else those of a copy of the logging policy",
        choices=lambda: ("none", STORED, AUTO),
        panel=MODEL_PANEL,
    )
    model_folds: int = setting(
        5,
        "Number of folds for cross-fitting the reward and missingness models",
        rule=Between(2, 100),
        panel=MODEL_PANEL,
    )
    bootstrap_samples: int = setting(
        1000, "Number of bootstrap samples", rule=Between(50, 1_000_000), panel=MODEL_PANEL
    )
    seed: int = setting(0, "Seed for folds, models and bootstrap", rule=Between(0, 2**32 - 1), panel=MODEL_PANEL)

    def __post_init__(self) -> None:
        check_settings(self)
        _ = self.chosen, self.given_act
        declared = self.declared_range
        asked = [f"--interval {self.interval}"] if self.interval == "bernstein" else []
        asked += [f"--metrics {word}" for word in self._words if word == "theorem1-bound"]
        if asked and declared is None:
            raise SettingError(
                f"{asked[0]} needs --reward-range, because it holds only for rewards in a range that is known "
                f"beforehand; add, for example, --reward-range 0,1"
            )

    @property
    def declared_range(self) -> tuple[float, float] | None:
        return None if self.reward_range is None else low_and_high("reward_range", self.reward_range)

    @property
    def given_act(self) -> Act | None:
        return None if self.act is None else parse_act(self.act)

    @property
    def _words(self) -> list[str]:
        return [word.strip() for word in self.metrics.split(",")]

    @property
    def chosen(self) -> tuple[str, ...]:
        """The metrics, in the registry's order."""
        named = {ALL: METRICS.names} | {group: table.names for group, table in METRIC_GROUPS.items()}
        named |= {name: (name,) for name in METRICS.names if name not in named}  # as a group, health takes precedence
        for word in self._words:
            if word not in named:
                near = get_close_matches(word, named, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise SettingError(f"--metrics must be of {', '.join(named)}, found {one_line(word, 40)!r}{hint}")
        chosen = {name for word in self._words for name in named[word]}
        return tuple(name for name in METRICS.names if name in chosen)
