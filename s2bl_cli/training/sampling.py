"""Which rows each step sees: a function of the seed, the epoch and the part of the log, and of nothing else.

Paired: a step has a batch of known rows for the risk and a batch of rows for the regulariser; where they are the same
rows, one batch serves both. Mixed: one batch of rows for both, in which the rows with feedback are weighted up; at
ρ = 0.02, 128 rows hold two or three of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from s2bl_cli.training.rows import Rows

KNOWN, REGULARISED = 0, 1  # an order of rows for each term: a policy sees the same known rows with any regulariser


class Order(NamedTuple):
    """Where a step's rows come from, besides the rows themselves."""

    seeds: Sequence[int]  # one per fold
    epoch: int
    part: int

    def of(self, fold: int, term: int, rows: int) -> Tensor:
        """A shuffle of so many rows. On the CPU, so that it is the same on every device."""
        key = np.random.SeedSequence((self.seeds[fold], self.epoch, self.part, term)).generate_state(1)[0]
        return torch.randperm(rows, generator=torch.Generator().manual_seed(int(key)), device="cpu")


class Sample(NamedTuple):
    """The rows of all steps of a part. The first `known` of a step are the risk's, those from `regularised` on the
    regulariser's; where both are the same rows, all of them are both."""

    rows: Tensor  # (steps, G, rows) indices
    known: int
    regularised: int
    weighted: bool = False  # rows without feedback are among the risk's


def sample(
    rows: Rows,
    steps: int,
    batch_size: int,
    order: Order,
    *,
    mixed: bool,
    reg_on_known: bool,
    has_risk: bool,
    has_regulariser: bool,
) -> Sample:
    """Draw the batches of a part."""
    if mixed and (has_risk or has_regulariser):
        # Both terms on the known rows: batches of them. Else batches of all rows.
        on_known = has_regulariser and reg_on_known
        source = rows.regularised if on_known else (torch.arange(rows.total, device=rows.p.device),) * len(rows.held)
        index = _batches(source, steps, batch_size, order, KNOWN, rows.p.device)
        return Sample(
            index, index.shape[-1] if has_risk else 0, 0 if has_regulariser else index.shape[-1], not on_known
        )
    known = _batches(rows.known if has_risk else (), steps, batch_size, order, KNOWN, rows.p.device)
    # The known rows are among the regularised ones or the other way round, so as many are the same.
    if has_risk and has_regulariser and list(map(len, rows.known)) == list(map(len, rows.regularised)):
        return Sample(known, known.shape[-1], 0)
    on_rows = rows.regularised if has_regulariser else ()
    regularised = _batches(on_rows, steps, batch_size, order, REGULARISED, rows.p.device)
    if known.shape[-1] and regularised.shape[-1]:
        return Sample(torch.cat([known, regularised], dim=-1), known.shape[-1], known.shape[-1])
    return Sample(known if known.shape[-1] else regularised, known.shape[-1], known.shape[-1])


def _batches(
    rows: Sequence[Tensor], steps: int, batch_size: int, order: Order, term: int, device: torch.device
) -> Tensor:
    """(steps, G, rows), as many rows as the smallest fold allows; none where a fold has none."""
    size = min((batch_size, *map(len, rows))) if rows else 0
    if size == 0:
        return torch.empty(steps, max(len(rows), 1), 0, dtype=torch.int64, device=device)
    shuffled = [indices[order.of(g, term, len(indices)).to(indices.device)] for g, indices in enumerate(rows)]
    return torch.stack([in_turn(indices, steps, size) for indices in shuffled], dim=1)


def in_turn(order: Tensor, steps: int, size: int) -> Tensor:
    """Shuffled rows for so many steps: (steps, size). Each row comes once before any comes again, and once in a batch.

    One shuffle, gone round and round: with a fresh shuffle each time round, the batch across the seam could have a row
    twice.
    """
    positions = torch.arange(steps * size, device=order.device) % len(order)
    return order[positions].view(steps, size)
