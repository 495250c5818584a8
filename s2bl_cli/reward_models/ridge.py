"""A reward model by ridge regression."""

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.reward_models.linear_model import LinearModel, Link, cross_fit_linear
from s2bl_cli.reward_models.reward_model import CPU, Floats, Ints
from s2bl_cli.reward_models.settings import RewardModelSettings

SPREADS = (1.0, 3.0, 0.3, 0.1, 0.03)  # the first one if there is nothing to choose on


def cross_fit(
    context: npt.NDArray[np.generic],
    action: Ints,
    reward: Floats,
    fold: Ints,
    actions: int,
    settings: RewardModelSettings | None = None,
    device: torch.device = CPU,
    weight: Floats | None = None,
    score: Floats | None = None,
) -> LinearModel:
    """E[r | x, a] = η(x, a), η linear (`linear_model.py`).

    Fitted by squared loss. The prior's standard deviation is relative to that of the rewards around η.
    Domain: any finite rewards. Predictions may lie outside of their range.
    Strength: the spread is chosen by cross-validation, for each fold on the other folds.
    Limits: spread → 0 is the mean reward plus what the scores explain; spread → ∞ is least squares per action.
    Source: Hoerl & Kennard 1970.
    """
    low, high = float(np.min(reward)), float(np.max(reward))
    link = Link(logistic=False, low=low, scale=high - low)
    return cross_fit_linear(
        context, action, reward, fold, actions, link, settings or RewardModelSettings(), SPREADS, device, weight, score
    )
