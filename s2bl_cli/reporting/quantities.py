"""How each metric is shown: its words, its unit, and which way is better. A stranger's metric is a plain number."""

from dataclasses import dataclass
from typing import Literal

Better = Literal["high", "low"] | None


@dataclass(frozen=True)
class Unit:
    """A number is printed as `factor` times itself, with so many digits."""

    factor: float
    digits: int
    words: str = ""  # what a caption says of it

    def printed(self, value: float) -> str:
        text = f"{self.factor * value:.{self.digits}f}"
        return text if float(text) else text.removeprefix("-")  # a zero has no sign

    def signed(self, value: float) -> str:
        text = self.printed(value)
        return text if text.startswith("-") or not float(text) else f"+{text}"


PERCENT = Unit(100, 2, "in %")
PLAIN = Unit(1, 4)
COUNT = Unit(1, 1)
WEIGHT = Unit(1, 2)


@dataclass(frozen=True)
class Quantity:
    title: str
    unit: Unit = PLAIN
    better: Better = None
    by: str = "class"  # what the label of a score is


# Expected rewards, estimated from the log; in the order of a table's rows.
ESTIMATORS = {
    "ips": "IPS",
    "tips": "Truncated IPS",
    "snips": "SNIPS",
    "ix": "IX",
    "ls": "LS",
    "lse": "LSE",
    "os": "OS",
    "beta-ips": "β-IPS",
    "dm": "DM",
    "dr": "DR",
    "sndr": "SNDR",
    "switch-dr": "Switch-DR",
    "ppi-dr": "PPI-DR",
    "empirical-ips": "Empirical IPS",
}

ACCURACIES = ("argmax-accuracy", "sampled-accuracy")
TRUE_RISK = "true-risk"
WEIGHT_SHARE = "weight-share"  # a bin's: no number of a policy, so not among the health's rows
HEALTH = "health"  # 2 trust, 1 caution, 0 do not trust; the words are in the score's note
VERDICTS = {2: "trust", 1: "caution", 0: "do not trust"}

QUANTITIES: dict[str, Quantity] = {
    "argmax-accuracy": Quantity("Argmax accuracy", PERCENT, "high"),
    "sampled-accuracy": Quantity("Sampled accuracy", PERCENT, "high"),
    "class-accuracy": Quantity("Accuracy by class", PERCENT, "high"),
    TRUE_RISK: Quantity("True risk", PLAIN, "low"),
    **{name: Quantity(f"Expected reward by {title}", PLAIN, "high") for name, title in ESTIMATORS.items()},
    "kl-exact": Quantity("KL(π‖π₀), exact", PLAIN, "low"),
    "kl-sampled": Quantity("KL(π‖π₀), unbiased from the draws", PLAIN, "low"),
    "kl-paper": Quantity("KL(π‖π₀), the paper's estimate", PLAIN, "low"),
    "reverse-kl-exact": Quantity("KL(π₀‖π), exact", PLAIN, "low"),
    "reverse-kl-sampled": Quantity("KL(π₀‖π), unbiased from the draws", PLAIN, "low"),
    "reverse-kl-paper": Quantity("KL(π₀‖π), the paper's estimate", PLAIN, "low"),
    "theorem1-bound": Quantity("Theorem 1's bound of the risk", PLAIN, "low"),
    "estimator-error-bound": Quantity("Bound of the estimator's error", PLAIN, "low"),
    "reverse-estimator-error-bound": Quantity("Bound of the reverse estimator's error", PLAIN, "low"),
    "ess": Quantity("Effective sample size", COUNT),
    "ess-share": Quantity("Effective share of the rows", PERCENT),
    "mean-weight": Quantity("Mean weight", WEIGHT),
    "weight-p50": Quantity("Median weight", WEIGHT),
    "weight-p99": Quantity("99 % of the weights are below", WEIGHT),
    "weight-max": Quantity("Largest weight", WEIGHT),
    WEIGHT_SHARE: Quantity("Share of the known rows by weight", PERCENT, by="bin"),
    "truncated-share": Quantity("Share of rows truncated at ν", PERCENT),
    "unsupported-share": Quantity("Share on actions never logged", PERCENT),
    HEALTH: Quantity("Verdict"),
}
WEIGHTS = ("mean-weight", "weight-p50", "weight-p99", "weight-max")
HEALTH_ROWS = ("ess", "ess-share", *WEIGHTS, "truncated-share", "unsupported-share", HEALTH)


def quantity(metric: str) -> Quantity:
    if metric in QUANTITIES:
        return QUANTITIES[metric]
    title = metric.replace("-", " ").capitalize()
    return Quantity(title, PERCENT, "high") if metric.endswith("-accuracy") else Quantity(title)


def short_title(metric: str) -> str:
    """A row's or an axis tick's name of a metric."""
    shown = quantity(metric)
    return ESTIMATORS.get(metric) or " ".join(filter(None, (shown.title, shown.unit.words)))
