"""Draw one action per row from the logging distribution."""

import numpy as np
import numpy.typing as npt


def draw_actions(pi0: npt.NDArray[np.float32], uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Draw by inverting the cumulative distribution. It is the stored float32 one, so propensities are exact.

    The action is the first whose cumulative probability exceeds u times the sum of the row. An action with
    probability 0 is never drawn.
    """
    cumulative = np.cumsum(pi0, axis=1, dtype=np.float64)  # (rows, actions)
    level = uniform * cumulative[:, -1]
    action = (cumulative <= level[:, None]).sum(axis=1)
    last_possible = pi0.shape[1] - 1 - np.argmax(pi0[:, ::-1] > 0, axis=1)  # if rounding raises the level to the sum
    drawn: npt.NDArray[np.int32] = np.minimum(action, last_possible).astype(np.int32)
    return drawn
