"""How each metric is shown: title, unit and which way is better, as its descriptor says. A stranger's metric is a plain
number."""

from collections.abc import Mapping
from dataclasses import dataclass

from s2bl_cli.metrics.health import VERDICTS as VERDICTS
from s2bl_cli.metrics.metric import COUNT as COUNT
from s2bl_cli.metrics.metric import PERCENT as PERCENT
from s2bl_cli.metrics.metric import PLAIN as PLAIN
from s2bl_cli.metrics.metric import WEIGHT as WEIGHT
from s2bl_cli.metrics.metric import Better as Better
from s2bl_cli.metrics.metric import Metric
from s2bl_cli.metrics.metric import Unit as Unit
from s2bl_cli.registry import ESTIMATORS as _ESTIMATORS
from s2bl_cli.registry import METRICS, Entry

ESTIMATORS: Mapping[str, Entry] = _ESTIMATORS.entries  # in the order of a table's rows
ACCURACIES = ("argmax-accuracy", "sampled-accuracy")
TRUE_RISK = "true-risk"
WEIGHT_SHARE = "weight-share"  # a bin's: no number of a policy, so not among the health's rows
HEALTH = "health"  # 2 trust, 1 caution, 0 do not trust; the words are in the score's note
WEIGHTS = ("mean-weight", "weight-p50", "weight-p99", "weight-max")
HEALTH_ROWS = ("ess", "ess-share", *WEIGHTS, "truncated-share", "unsupported-share", HEALTH)


@dataclass(frozen=True)
class Quantity:
    title: str
    unit: Unit = PLAIN
    better: Better = None
    by: str = "class"  # what the label of a score is
    short: str | None = None  # title of a row or an axis tick


def quantity(metric: str) -> Quantity:
    if metric in METRICS.names:
        known: Metric = METRICS.load(metric)
        return Quantity(known.title, known.unit, known.better, known.by, known.short_title)
    title = metric.replace("-", " ").capitalize()
    return Quantity(title, PERCENT, "high") if metric.endswith("-accuracy") else Quantity(title)


def short_title(metric: str) -> str:
    """A row's or an axis tick's name of a metric."""
    shown = quantity(metric)
    return shown.short or " ".join(filter(None, (shown.title, shown.unit.words)))
