"""Draw one action a row from the logging distribution."""

import numpy as np
import numpy.typing as npt


def draw_actions(pi0: npt.NDArray[np.float32], uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Inverse-CDF sampling from the stored float32 distribution itself, so propensities are exact.

    The action is the first whose cumulated probability exceeds u times the row's sum: one of probability 0
    has no width and cannot be drawn.
    """
    cumulated = np.cumsum(pi0, axis=1, dtype=np.float64)  # (rows, actions)
    level = uniform * cumulated[:, -1]
    action = (cumulated <= level[:, None]).sum(axis=1)
    last_possible = pi0.shape[1] - 1 - np.argmax(pi0[:, ::-1] > 0, axis=1)  # if rounding lifts the level to the sum
    drawn: npt.NDArray[np.int32] = np.minimum(action, last_possible).astype(np.int32)
    return drawn
