"""Train rows on the device: the whole log, or a part of a streamed one. Batches are index selections."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.expected_rewards import ExpectedRewards
from s2bl_cli.training.statistics import Statistics, TrainRows


class Rows(NamedTuple):
    """Rows as tensors, and what policies of each fold may do with them. G is the number of folds; what is the same for
    all of them is stored once and seen G times. Labels are not among it."""

    context: Tensor  # (rows, *shape), the file's dtype
    action: Tensor  # (rows,) int64
    p: Tensor  # (rows,)
    true_cost: Tensor  # (rows,), 0 where missing
    c: Tensor  # (G, rows) the costs that the risk sees: the true ones, or filled in by a cost model
    known: tuple[Tensor, ...]  # per fold: indices of the rows whose cost the risk sees
    regularised: tuple[Tensor, ...]  # per fold: indices of the rows that the regulariser sees
    held: tuple[Tensor, ...]  # per fold: indices of the known rows that are held out
    feedback_weight: Tensor  # (G, rows) N/n where the risk sees the row's cost, else 0
    action_weight: Tensor  # (G, rows) N/m_a of the row's action
    reward_weight: Tensor | None  # (G, rows) of the calibrated cross-entropy
    pi0: Tensor | None  # (rows, actions)

    @property
    def total(self) -> int:
        return len(self.action)


def rows_on_device(
    train_rows: TrainRows,
    folds: Sequence[Fold],
    statistics: Statistics,
    *,
    reg_on_known: bool,
    device: torch.device,
    filling: Sequence[ExpectedRewards] = (),
    weighting: Sequence[ExpectedRewards] = (),
) -> Rows:
    """`filling`, `weighting`: one per fold, where the objective needs filled-in costs or reward weights."""
    part = train_rows.rows
    learns = np.stack([train_rows.learned(fold) for fold in folds])  # (G, rows)

    def tensor(array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    def indices(masks: Iterable[npt.NDArray[np.bool_]]) -> tuple[Tensor, ...]:
        return tuple(tensor(np.flatnonzero(mask)) for mask in masks)

    def per_fold(rows: npt.ArrayLike) -> Tensor:
        """(G, rows); what is alike for all folds is stored once."""
        array = np.asarray(rows, np.float32)
        is_shared = not (array[1:] != array[0]).any()
        return tensor(array[:1] if is_shared else array).expand(len(folds), part.rows)

    everywhere = np.ones((len(folds), part.rows), bool)
    share = np.array([[statistics.learned_count(fold) / statistics.rows] for fold in folds])  # (G, 1)
    feedback_weight = np.divide(learns, share, out=np.zeros(learns.shape), where=share > 0)
    # On all rows the weights are the same for every fold.
    weighed = folds if reg_on_known else folds[:1]
    action_weight = np.stack([statistics.action_weight(fold, on_known=reg_on_known) for fold in weighed])
    return Rows(
        context=tensor(part.context),
        action=torch.from_numpy(part.action).to(device, torch.int64),
        p=tensor(part.propensity),
        true_cost=tensor(part.cost),
        c=per_fold([of_fold.costs(train_rows) for of_fold in filling] or [part.cost]),
        known=indices(everywhere if filling else learns),
        regularised=indices(learns if reg_on_known else everywhere),
        held=indices(part.known & ~learns),
        feedback_weight=per_fold(everywhere[:1] if filling else feedback_weight),
        action_weight=per_fold(action_weight[:, part.action]),
        reward_weight=per_fold([of_fold.weights(train_rows) for of_fold in weighting]) if weighting else None,
        pi0=None if part.pi0 is None else tensor(part.pi0),
    )
