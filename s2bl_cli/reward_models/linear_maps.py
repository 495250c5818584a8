"""Linear maps of the context, one per action plus one that all actions share, for several folds at once.

    z_f(x, a) = (W_fa + W_f·)·(x̃, 1),    x̃ the standardised context

Maps are tensors (actions + 1, folds, inputs): the last map is the shared one, the last input the constant 1. A score of
the logged actions may be an input before it, for the shared map alone.
`Rows` computes the values z of all rows and gradients with respect to the maps, as `newton.py` needs them. Only actions
that occur in the rows are included: nothing can be learned about the others.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.policies.contexts import context_tensor, standardisation
from s2bl_cli.reward_models.reward_model import Ints

_BLOCK_ROWS = 256
CHUNK_CELLS = 1 << 20  # 4 MB, so that data multiplied in both directions stays in the cache
_ROWS_AT_ONCE = 8192


class Standardisation:
    """(x − shift)·scale, with moments from the fitted rows."""

    def __init__(self, context: npt.NDArray[np.generic], device: torch.device) -> None:
        moments = standardisation(context)
        self.shift, self.scale = (torch.from_numpy(values).to(device) for values in moments)

    def __call__(self, context: Tensor) -> Tensor:
        return (context.flatten(1).to(torch.float32) - self.shift) * self.scale  # (rows, features)


class Rows:
    """Rows in blocks of one action each, padded with zeros. A block is multiplied only by the maps of its action."""

    def __init__(
        self,
        context: npt.NDArray[np.generic],
        action: Ints,
        device: torch.device,
        score: npt.NDArray[np.float32] | None = None,
    ) -> None:
        self.actions, map_of_row = np.unique(action, return_inverse=True)
        counts = np.bincount(map_of_row)
        size = int(np.clip(len(action) // len(counts), 1, _BLOCK_ROWS))
        blocks = -(-counts // size)  # per action
        by_action = np.argsort(map_of_row, kind="stable")
        number = np.arange(len(action)) - np.repeat(np.cumsum(counts) - counts, counts)  # within the action
        cell = np.empty(len(action), np.int64)
        cell[by_action] = np.repeat((np.cumsum(blocks) - blocks) * size, counts) + number
        self._cell = torch.from_numpy(cell).to(device)
        self._map = torch.from_numpy(np.repeat(np.arange(len(counts)), blocks)).to(device)  # (blocks,)
        self.standardise = Standardisation(context, device)
        self.features = self.standardise.shift.numel()
        self._has_score = score is not None
        x = torch.zeros(len(self._map) * size, self.inputs, device=device)
        for start in range(0, len(action), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            x[self._cell[part], : self.features] = self.standardise(context_tensor(context[part], device))
        if score is not None:
            x[self._cell, self.features] = torch.from_numpy(score).to(device)
        x[self._cell, -1] = 1.0
        self._x = x.view(-1, size, self.inputs)  # (blocks, rows, inputs)
        self._chunk = max(1, CHUNK_CELLS // (max(size, 8) * self.inputs))  # blocks

    @property
    def maps(self) -> int:
        return len(self.actions) + 1

    @property
    def inputs(self) -> int:
        """The features, the score if there is one, and the constant."""
        return self.features + int(self._has_score) + 1

    def spread(self, values: npt.NDArray[np.float32]) -> Tensor:
        """One value per row and fold, (rows, folds), arranged in blocks: (blocks, folds, rows)."""
        size, folds = self._x.shape[1], values.shape[1]
        cells = self._x.new_zeros(len(self._map) * size, folds)
        cells[self._cell] = torch.from_numpy(values).to(cells.device)
        return cells.view(-1, size, folds).transpose(1, 2).contiguous()

    def gathered(self, values: Tensor) -> Tensor:
        """The reverse: (blocks, folds, rows) → (rows, folds)."""
        return values.transpose(1, 2).reshape(-1, values.shape[1])[self._cell]

    def totals(self, values: Tensor) -> Tensor:
        """Sums of (blocks, folds, rows) per map: (maps, folds)."""
        totals = values.new_zeros(self.maps, values.shape[1]).index_add_(0, self._map, values.sum(2))
        totals[-1] = totals.sum(0)
        return totals

    def predict(self, parameters: Tensor) -> Tensor:
        """z of the maps: (blocks, folds, rows)."""
        z = parameters.new_empty(len(self._map), parameters.shape[1], self._x.shape[1])
        for start in range(0, len(self._map), self._chunk):
            part = slice(start, start + self._chunk)
            z[part] = torch.bmm(parameters[self._map[part]] + parameters[-1], self._x[part].transpose(1, 2))
        return z

    def transposed(self, errors: Tensor) -> Tensor:
        """The gradient of Σ errors·z with respect to the maps, errors (blocks, folds, rows)."""
        gradient = errors.new_zeros(self.maps, errors.shape[1], self.inputs)
        for start in range(0, len(self._map), self._chunk):
            part = slice(start, start + self._chunk)
            gradient.index_add_(0, self._map[part], torch.bmm(errors[part], self._x[part]))
        return self._with_shared(gradient)

    def diagonal(self, curvature: Tensor) -> Tensor:
        """The curvature of each map: features have a variance of about 1."""
        return self.totals(curvature).unsqueeze(2)

    def curved(self, parameters: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
        """z of the maps, and the gradient of Σ curvature·z²/2 with respect to them, in one pass over the rows."""
        z, gradient = torch.empty_like(curvature), torch.zeros_like(parameters)
        for start in range(0, len(self._map), self._chunk):
            part = slice(start, start + self._chunk)
            x, of_block = self._x[part], self._map[part]
            z[part] = torch.bmm(parameters[of_block] + parameters[-1], x.transpose(1, 2))
            gradient.index_add_(0, of_block, torch.bmm(z[part] * curvature[part], x))
        return z, self._with_shared(gradient)

    def _with_shared(self, gradient: Tensor) -> Tensor:
        """The shared map sees all rows. Only that map has a slope of the score."""
        gradient[-1] = gradient.sum(0)
        if self._has_score:
            gradient[:-1, :, self.features] = 0
        return gradient
