"""What a metric is: one descriptor, which `evaluate` computes by, and `report` and the docs read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from s2bl_cli.metrics.estimate import Estimate, mean_estimate
from s2bl_cli.metrics.sample import Column, ScoredPolicy

LABELS, VALUE, DIVERGENCE, BOUND, HEALTH = "labels", "value", "divergence", "bound", "health"  # groups

Better = Literal["high", "low"] | None
Compute = Callable[[ScoredPolicy], Iterable[Estimate]]


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
class Metric:
    """`compute` gives no estimate where the metric is not defined on the rows, and several where it has one per class
    or bin."""

    name: str
    title: str
    unit: Unit
    better: Better
    group: str
    compute: Compute
    needs: tuple[Column, ...] = ()
    needs_feedback: bool = False  # some row whose reward is known
    uses: tuple[Column, ...] = ()  # columns that it reads where they are there
    short_title: str | None = None  # of a table's row or an axis tick; None: the title with the unit
    by: str = "class"  # what the label of a score is

    def is_measurable(self, policy: ScoredPolicy) -> bool:
        has_feedback = not self.needs_feedback or bool(policy.sample.known.any())
        return has_feedback and all(map(policy.has, self.needs))


def by_name(*metrics: Metric) -> dict[str, Metric]:
    """The table of a file of several metrics."""
    return {metric.name: metric for metric in metrics}


def mean_of(column: Column) -> Compute:
    """The mean of a column over the rows."""
    return lambda policy: [mean_estimate(policy.values(column))]
