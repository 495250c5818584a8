"""The scale of the costs that risks and selectors see: [−1, 0], whatever the unit and offset of the rewards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.settings import number_text
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import Statistics
from s2bl_cli.training.settings import TrainSettings

Floats = npt.NDArray[np.floating[Any]]

_NARROW = 0.01  # of the range
_FEW = 20  # rewards: with fewer, none is called an outlier


@dataclass(frozen=True)
class CostScale:
    """c ↦ (c − high)/(high − low): costs in [low, high] become costs in [−1, 0]. If low = high, all become 0."""

    low: float
    high: float

    def __call__(self, cost: npt.ArrayLike) -> Floats:
        above = np.asarray(cost, np.float64) - self.high
        return above / self.width if self.width > 0 else np.zeros_like(above)

    @property
    def width(self) -> float:
        return self.high - self.low

    def reward(self, scaled: float) -> float:
        """Convert a reward in [0, 1], on the scale of these costs, to the unit of the log."""
        return scaled * self.width - self.high

    @property
    def reward_range(self) -> str:
        """The range as an option value: `0,1`."""
        return f"{number_text(0.0 - self.high)},{number_text(0.0 - self.low)}"


RAW = CostScale(-1.0, 0.0)  # costs as they are


def cost_scale(settings: TrainSettings, statistics: Statistics, fold: Fold) -> CostScale:
    """Scale by the declared range, or by the range of the known costs that policies of the fold learn from."""
    costs = statistics.known.c[statistics.learned(fold)]
    if settings.cost_scale == "none" or (settings.declared_range is None and not len(costs)):
        return RAW
    if settings.declared_range is not None:
        low, high = settings.declared_range
        return CostScale(0.0 - high, 0.0 - low)
    return CostScale(float(costs.min()), float(costs.max()))


def outside(statistics: Statistics, declared: tuple[float, float] | None) -> Floats:
    """Known rewards outside the declared range. Both are compared at the precision of the log's costs."""
    low, high = np.asarray(declared or (-np.inf, np.inf), np.float32)
    rewards = 0.0 - statistics.known.c
    excluded: Floats = rewards[(rewards < low) | (rewards > high)]
    return excluded


def range_warnings(statistics: Statistics, scales: Sequence[CostScale]) -> Iterator[str]:
    """Warnings about known costs whose range is not a good scale. `scales`: one per fold."""
    flat = [scale for scale in scales if scale.width == 0]
    if flat:
        yield (
            f"the known rewards to learn from are all equal ({0.0 - flat[0].high:g}), so the risk has no gradient; add "
            f"rows with other rewards, or declare the range of the rewards with --reward-range"
        )
    rewards = 0.0 - statistics.known.c.astype(np.float64)
    # If most rewards are equal, the others are rare events, not outliers.
    others = np.sort(rewards[rewards != np.median(rewards)]) if len(rewards) else rewards
    tail = max(1, len(others) // 100)
    middle = others[tail:-tail]  # 98 % of them, or all but the two ends
    if len(others) >= _FEW and np.ptp(middle) < _NARROW * np.ptp(others):
        outlier = max(others[0], others[-1], key=lambda end: abs(end - middle[0]))
        yield (
            f"the known reward {outlier:g} is far from the others, most of which are in [{middle[0]:g}, "
            f"{middle[-1]:g}], so that these hardly differ on the scale of the range; clip the rewards, and declare "
            f"their range with --reward-range"
        )
