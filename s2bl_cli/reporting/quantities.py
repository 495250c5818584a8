"""How each metric is shown: title, unit and which way is better, as its descriptor says. A stranger's metric is a plain
number."""

from collections.abc import Mapping
from dataclasses import dataclass

from s2bl_cli import registry
from s2bl_cli.metrics.health import VERDICTS
from s2bl_cli.metrics.metric import PERCENT, PLAIN, Better, Metric, Unit

__all__ = [
    "ACCURACIES", "ESTIMATORS", "HEALTH", "HEALTH_ROWS", "PERCENT", "TRUE_RISK", "VERDICTS", "WEIGHTS", "WEIGHT_SHARE",
    "Better", "Quantity", "Unit", "quantity", "short_title",
]  # fmt: skip

ESTIMATORS: Mapping[str, registry.Entry] = registry.ESTIMATORS.entries  # in the order of a table's rows
ACCURACIES = ("argmax-accuracy", "sampled-accuracy")
TRUE_RISK = "true-risk"
WEIGHT_SHARE = "weight-share"  # a bin's: no number of a policy, so not among the health's rows
HEALTH = "health"  # 2 reliable, 1 caution, 0 unreliable; the words are in the score's note
WEIGHTS = ("mean-weight", "weight-p50", "weight-p99", "weight-max")
HEALTH_ROWS = tuple(name for name in registry.HEALTH.names if name != WEIGHT_SHARE)


@dataclass(frozen=True)
class Quantity:
    title: str
    unit: Unit = PLAIN
    better: Better = None
    by: str = "class"  # what the label of a score is
    short: str | None = None  # title of a row or an axis tick


def quantity(metric: str) -> Quantity:
    if metric in registry.METRICS.names:
        known: Metric = registry.METRICS.load(metric)
        return Quantity(known.title, known.unit, known.better, known.by, known.short_title)
    title = metric.replace("-", " ").capitalize()
    return Quantity(title, PERCENT, "high") if metric.endswith("-accuracy") else Quantity(title)


def short_title(metric: str) -> str:
    """A row's or an axis tick's name of a metric."""
    shown = quantity(metric)
    return shown.short or " ".join(filter(None, (shown.title, shown.unit.words)))
