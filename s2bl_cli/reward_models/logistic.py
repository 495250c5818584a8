"""A logistic reward model."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.reward_models.linear_model import LinearModel, Link, cross_fit_linear
from s2bl_cli.reward_models.reward_model import CPU, NO_FOLD, Floats, Ints
from s2bl_cli.reward_models.settings import RewardModelSettings


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
    """E[r | x, a] = low + (high − low)/(1 + exp(−η(x, a))), η linear (`linear_model.py`), [low, high] the range of the
    rewards.

    Fitted by cross-entropy. Values between 0 and 1 vary less than draws of 0 or 1 with the same mean would, by a factor
    φ; the prior is weakened by the same factor (quasi-likelihood).
    Domain: any finite rewards. Predictions lie within the range of the known ones.
    Strength: fixed (`spread`). A prior chosen by held-out loss is often stronger. It makes `dr` narrower for policies
    close to the logging policy, and wider for the others.
    Limits: spread → 0 is the mean reward plus what the scores explain.
    Source: McCullagh & Nelder 1989.
    """
    settings = settings or RewardModelSettings()
    low, high = float(np.min(reward)), float(np.max(reward))
    link = Link(logistic=True, low=low, scale=high - low)
    return cross_fit_linear(
        context, action, reward, fold, actions, link, settings, (settings.spread,), device, weight, score
    )


def fit_reward_model(
    context: npt.NDArray[np.generic],
    action: Ints,
    reward: Floats,
    actions: int,
    settings: RewardModelSettings | None = None,
    device: torch.device = CPU,
    weight: Floats | None = None,
) -> LinearModel:
    """One model, fitted on all of the rows (whose rewards are known)."""
    alone = replace(settings or RewardModelSettings(), folds=1)
    return cross_fit(context, action, reward, np.full(len(action), NO_FOLD), actions, alone, device, weight)
