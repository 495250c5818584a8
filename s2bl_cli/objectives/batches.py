"""What risks and regularisers see of a batch. The whole vocabulary of the objectives' formulas."""

from typing import NamedTuple

from torch import Tensor


class KnownBatch(NamedTuple):
    """Rows with feedback, drawn uniformly from S."""

    log_pi: Tensor  # (batch,) log π_θ(aᵢ|xᵢ) of the logged action
    p: Tensor  # (batch,) pᵢ, the logged propensity
    c: Tensor  # (batch,) cᵢ, the cost


class AnyBatch(NamedTuple):
    """Rows with or without feedback, drawn uniformly from the rows that the regulariser is on."""

    log_pi: Tensor  # (batch,) log π_θ(aᵢ|xᵢ) of the logged action
    p: Tensor  # (batch,) pᵢ, the logged propensity
    action_weight: Tensor  # (batch,) N/m_a for the row's action a, counted once over the whole log
