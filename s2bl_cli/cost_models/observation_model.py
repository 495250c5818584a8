"""A model of the probability that a row's feedback is known, given its context and action.

Fitted as a cost model is, on whether the cost is known instead of on the cost.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.cost_models.cost_model import CPU, CostModel, cross_fit
from s2bl_cli.cost_models.settings import CostModelSettings

LEAST_PROBABILITY = 1e-3  # below, one row would stand for thousands

Ints = npt.NDArray[np.integer[Any]]


def cross_fit_observation(
    context: npt.NDArray[np.generic],
    action: Ints,
    known: npt.NDArray[np.bool_],
    fold: Ints,
    actions: int,
    settings: CostModelSettings | None = None,
    device: torch.device = CPU,
) -> CostModel:
    """Rows with and without feedback in; `logged_probability` of the model is P(known | x, a)."""
    return cross_fit(context, action, known.astype(np.float32), fold, actions, settings, device)


def logged_probability(
    model: CostModel, context: npt.NDArray[np.generic], action: Ints, fold: Ints
) -> npt.NDArray[np.float32]:
    """P(known | x, a) of the logged actions, at least LEAST_PROBABILITY: (rows,)."""
    probabilities = model.predict(context, fold)  # (rows, actions)
    return np.maximum(probabilities[np.arange(len(action)), action], np.float32(LEAST_PROBABILITY))
