"""How a metric is shown: its title, its unit and whether higher is better. An unknown metric is a plain number."""

from s2bl_cli import registry
from s2bl_cli.metrics import gains
from s2bl_cli.metrics.health import VERDICTS
from s2bl_cli.metrics.metric import DIVERGENCE, PERCENT, PLAIN, Metric, Unit

__all__ = [
    "ACCURACIES", "ARGMAX_ACCURACY", "DIVERGENCE", "ESTIMATORS", "GAIN", "HEALTH", "HEALTH_ROWS", "PARTS", "PERCENT",
    "SAMPLED_ACCURACY", "TRUE_RISK", "VERDICTS", "WEIGHT_MAX", "WEIGHT_SHARE", "Metric", "Unit", "quantity",
    "short_title", "words_of",
]  # fmt: skip

ESTIMATORS = registry.ESTIMATORS.entries  # in the order of a table's rows
ARGMAX_ACCURACY, SAMPLED_ACCURACY = "argmax-accuracy", "sampled-accuracy"
ACCURACIES = (ARGMAX_ACCURACY, SAMPLED_ACCURACY)
TRUE_RISK = "true-risk"
WEIGHT_SHARE = "weight-share"  # a bin's: no number of a policy, so not among the health's rows
HEALTH = "health"  # 2 reliable, 1 caution, 0 unreliable; the words are in the score's note
WEIGHT_MAX = "weight-max"
PARTS, GAIN = "-parts", "-gain"  # after a metric's name: the same in parts of the rows, and less that of a baseline
HEALTH_ROWS = tuple(name for name in registry.HEALTH.names if name != WEIGHT_SHARE)


def quantity(metric: str) -> Metric:
    if metric in registry.METRICS.names:
        known: Metric = registry.METRICS.load(metric)
        return known
    if metric in gains.NAMES:
        return gains.gain_metric(metric)
    is_accuracy = metric.endswith("-accuracy")
    return Metric(
        metric,
        metric.replace("-", " ").capitalize(),
        PERCENT if is_accuracy else PLAIN,
        "high" if is_accuracy else None,
        group="",
        compute=lambda policy: (),
    )


def words_of(shown: Metric) -> str:
    """The title with its unit."""
    return " ".join(filter(None, (shown.title, shown.unit.words)))


def short_title(metric: str) -> str:
    """A row's or an axis tick's name of a metric."""
    shown = quantity(metric)
    return shown.short_title or words_of(shown)
