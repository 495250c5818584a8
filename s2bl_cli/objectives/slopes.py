"""The derivative of a risk or a regulariser in what it sees of the policy: log π, π(·|x), or the distance from θ₀."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, Knobs, KnownBatch
from s2bl_cli.objectives.dual_numbers import Dual, NotRowByRowError, RowMean

Batch = KnownBatch | AnyBatch

_SEEN = ("log_pi", "log_policy", "distance")  # what of a batch depends on the policy


class Slopes(NamedTuple):
    """A term on a batch, and what it depends on. What it does not look at is None."""

    terms: Tensor  # (…, batch) whose means are its values; or (…, 1) the values
    log_pi: Tensor | None = None  # (…, batch) of factor · value
    log_policy: Tensor | None = None  # (…, batch, actions)
    distance: Tensor | None = None  # (…)


class Sloped:
    """A risk or a regulariser, times 1 or λ: by dual numbers where it is a mean over rows, else by autograd."""

    def __init__(self, term: Callable[[Any, Knobs], Tensor], knobs: Knobs, factor: float | Tensor = 1.0) -> None:
        self._term, self._knobs, self._factor = term, knobs, factor
        self._row_factor = factor.unsqueeze(-1) if isinstance(factor, Tensor) else factor
        self.by_rows = True  # until it is seen not to be

    def __call__(self, batch: Batch) -> Slopes:
        if self.by_rows:
            try:
                return self._row_slopes(batch)
            except (NotRowByRowError, TypeError):  # whatever else is wrong, autograd meets as well
                self.by_rows = False
        return self._autograd_slopes(batch)

    def _row_slopes(self, batch: Batch) -> Slopes:
        log_pi: Any = batch[0]
        mean: Any = self._term(type(batch)(cast(Any, Dual(log_pi)), *batch[1:]), self._knobs)
        if not isinstance(mean, RowMean):
            raise NotRowByRowError("mean")
        value, slope = mean.terms.value, mean.terms.slope
        if not isinstance(slope, Tensor):
            slope = torch.full_like(log_pi, slope)
        slope = slope * (self._row_factor / log_pi.shape[-1])
        # The slope of a multiple of log π is the same for all policies, and seen by each.
        return Slopes(value, slope if slope.shape == log_pi.shape else slope.expand_as(log_pi))

    @torch.enable_grad()
    def _autograd_slopes(self, batch: Batch) -> Slopes:
        seen = {name: getattr(batch, name, None) for name in _SEEN}
        leaves = {name: value.detach().requires_grad_() for name, value in seen.items() if value is not None}
        value = self._term(batch._replace(**leaves), self._knobs)
        factor = torch.as_tensor(self._factor, dtype=value.dtype, device=value.device).expand_as(value)
        slopes = torch.autograd.grad(value, list(leaves.values()), factor, allow_unused=True)
        return Slopes(value.detach().unsqueeze(-1), **dict(zip(leaves, slopes, strict=True)))
