"""What a metric with labels is: a name and a value for every row; the score is their mean."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Metric:
    """`of_policy(pi, label)` for a policy's probabilities (rows, actions). `of_draws(action, label)` for a
    policy of which only the drawn actions are known, as a log knows its own; None where draws cannot tell."""

    name: str
    of_policy: Callable[[Floats, Ints], Floats]
    of_draws: Callable[[Ints, Ints], Floats] | None = None
    by_class: bool = False  # one score a class, instead of one over all rows
    as_cost: bool = False  # the value is a probability of being right, to be turned into an expected cost
