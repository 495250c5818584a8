"""Train rows on the device: the whole log, or a part of it that is streamed through. Batches are index selections."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2bl_cli.training.groups import Group, TrainRows
from s2bl_cli.training.log_facts import LogFacts


class Rows(NamedTuple):
    """Rows as tensors, and what each group of policies may do with them. G is the number of groups; what is the
    same for all of them is stored once and seen G times. Labels are not among it."""

    context: Tensor  # (rows, *shape), the file's dtype
    action: Tensor  # (rows,) int64
    p: Tensor  # (rows,)
    true_cost: Tensor  # (rows,), 0 where missing
    c: Tensor  # (G, rows) what the risk takes for costs: the true ones, or filled in by a cost model
    known: tuple[Tensor, ...]  # a group: indices of the rows whose feedback its risk sees
    regularised: tuple[Tensor, ...]  # a group: indices of the rows that its regulariser sees
    held: tuple[Tensor, ...]  # a group: indices of the known rows that were held out
    feedback_weight: Tensor  # (G, rows) N/n where the risk sees the row's feedback, else 0
    action_weight: Tensor  # (G, rows) N/m_a of the row's action
    merit: Tensor | None  # (G, rows) of the calibrated cross-entropy
    pi0: Tensor | None  # (rows, actions)

    @property
    def total(self) -> int:
        return len(self.action)

    def of_groups(self, own: slice) -> "Rows":
        """The same rows for some groups alone."""
        return self._replace(
            c=self.c[own],
            known=self.known[own],
            regularised=self.regularised[own],
            held=self.held[own],
            feedback_weight=self.feedback_weight[own],
            action_weight=self.action_weight[own],
            merit=None if self.merit is None else self.merit[own],
        )


@dataclass(frozen=True)
class Filling:
    """What a cost model says of the rows, a group at a time: costs for the risk, merit for the regulariser."""

    cost: npt.NDArray[np.float32] | None  # (G, rows)
    merit: npt.NDArray[np.float32] | None  # (G, rows)


def rows_on_device(
    train_rows: TrainRows,
    groups: Sequence[Group],
    facts: LogFacts,
    filling: Filling,
    *,
    reg_on_known: bool,
    device: torch.device,
) -> Rows:
    part, number = train_rows
    learns = np.stack([group.learns_from(part, number) for group in groups])  # (G, rows)
    held = [np.flatnonzero(part.known & ~row) for row in learns]
    feedback = [np.flatnonzero(row) for row in learns]
    everything = torch.arange(part.rows, device=device)

    def tensor(array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    def for_each_group(array: npt.NDArray[np.float32]) -> Tensor:
        """(G, rows), or one row that all groups share."""
        shared = tensor(array.astype(np.float32, copy=False))
        return shared.expand(len(groups), part.rows)

    one_for_all = not any(len(rows) for rows in held)
    weights = facts.action_weight.astype(np.float32)
    seen_as_one = not reg_on_known or one_for_all
    share = np.asarray(facts.learned_known, np.float64)[:, None] / max(facts.rows, 1)
    feedback_weight = np.divide(learns, share, out=np.zeros(learns.shape), where=share > 0)
    if filling.cost is not None:  # filled in, every row counts for the risk
        feedback_weight = np.ones((1, part.rows))
        feedback = [np.arange(part.rows) for _ in groups]
    elif one_for_all:
        feedback_weight = feedback_weight[:1]
    known = tuple(tensor(rows) for rows in feedback)
    on_known = tuple(tensor(np.flatnonzero(row)) for row in learns)
    return Rows(
        context=tensor(part.context),
        action=torch.from_numpy(part.action).to(device, torch.int64),
        p=tensor(part.propensity),
        true_cost=tensor(part.cost),
        c=for_each_group(part.cost[None] if filling.cost is None else filling.cost),
        known=known,
        regularised=on_known if reg_on_known else tuple(everything for _ in groups),
        held=tuple(tensor(rows) for rows in held),
        feedback_weight=for_each_group(feedback_weight),
        action_weight=for_each_group((weights[:1] if seen_as_one else weights)[:, part.action]),
        merit=None if filling.merit is None else for_each_group(filling.merit),
        pi0=None if part.pi0 is None else tensor(part.pi0),
    )
