"""The declaration of a metric: `evaluate` computes it, and `report` and the docs read its titles and unit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from s2bl_cli.metrics.estimate import Estimate, mean_estimate
from s2bl_cli.metrics.sample import Column, ScoredPolicy

LABELS, VALUE, GAIN, DIVERGENCE, BOUND, HEALTH = "labels", "value", "gain", "divergence", "bound", "health"  # groups

Better = Literal["high", "low"] | None
Compute = Callable[[ScoredPolicy], Iterable[Estimate]]


@dataclass(frozen=True)
class Unit:
    """How a number is printed: times `factor`, with this number of digits."""

    factor: float
    digits: int
    words: str = ""  # its description in captions

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
class Metric:
    """`compute` returns no estimate if the metric is not defined on the rows, and several if there is one per class or
    bin."""

    name: str
    title: str
    unit: Unit
    better: Better
    group: str
    compute: Compute
    needs: tuple[Column, ...] = ()
    needs_feedback: bool = False  # requires at least one row with a known reward
    uses: tuple[Column, ...] = ()  # columns that it reads if the log has them
    short_title: str | None = None  # for a table row or an axis tick; None: the title with the unit
    by: str = "class"  # what the label of a score means

    def is_measurable(self, policy: ScoredPolicy) -> bool:
        has_feedback = not self.needs_feedback or bool(policy.sample.known.any())
        return has_feedback and all(map(policy.has, self.needs))


def by_name(*metrics: Metric) -> dict[str, Metric]:
    """The metrics of a file by name."""
    return {metric.name: metric for metric in metrics}


def mean_of(column: Column) -> Compute:
    """The mean of a column over the rows."""
    return lambda policy: [mean_estimate(policy.values(column))]
