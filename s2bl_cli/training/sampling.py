"""Which rows each step sees.

Paired: a step has a batch of known rows for the risk and a batch of rows for the regulariser; where they are the same
rows, one batch serves both. Mixed: one batch of rows for both, in which the rows with feedback are weighted up; at
ρ = 0.02, 128 rows hold two or three of them.
Every learner takes the same number of steps an epoch, whatever its objective, so comparisons are fair.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from s2bl_cli.training.rows import Rows


class Generators(NamedTuple):
    """A group's randomness: one for each term, so that a policy sees the same known rows with any regulariser."""

    known: torch.Generator
    regularised: torch.Generator


def generators_of(seed: int, device: torch.device) -> Generators:
    # torch's generator on a CPU looks at 32 bits of a seed alone: a far one may be the same.
    other = int(np.random.SeedSequence((seed, 1)).generate_state(1)[0])
    return Generators(torch.Generator(device).manual_seed(seed), torch.Generator(device).manual_seed(other))


class Sample(NamedTuple):
    """The rows of an epoch's steps: (steps, groups, batch). What a step has no use for is None."""

    known: Tensor | None  # for the risk
    regularised: Tensor | None  # for the regulariser
    both: Tensor | None  # for both
    weighted: bool = False  # mixed: rows without feedback are among them


def epoch_steps(rows: int, batch_size: int) -> int:
    """Steps to an epoch: full batches over all train rows, at least one."""
    return max(1, rows // batch_size)


def sample(
    rows: Rows,
    steps: int,
    batch_size: int,
    generators: Sequence[Generators],
    *,
    mixed: bool,
    has_risk: bool,
    has_regulariser: bool,
) -> Sample:
    """Draw an epoch's batches, each group with its own generator."""
    of_known = [pair.known for pair in generators]
    of_regularised = [pair.regularised for pair in generators]
    if mixed:
        # Both terms on the known rows: batches of them. Else batches of all rows.
        on_known = has_regulariser and len(rows.regularised[0]) < rows.total
        everything = (torch.arange(rows.total, device=rows.p.device),) * len(generators)
        source = rows.regularised if on_known else everything
        return Sample(None, None, _for_groups(source, steps, batch_size, of_known), weighted=not on_known)
    known = _for_groups(rows.known, steps, batch_size, of_known) if has_risk else None
    # The known rows are among the regularised ones or the other way round, so as many are the same.
    if has_risk and has_regulariser and list(map(len, rows.known)) == list(map(len, rows.regularised)):
        return Sample(None, None, known)
    regularised = _for_groups(rows.regularised, steps, batch_size, of_regularised) if has_regulariser else None
    return Sample(known, regularised, None)


def _for_groups(
    rows: Sequence[Tensor], steps: int, batch_size: int, generators: Sequence[torch.Generator]
) -> Tensor | None:
    """(steps, groups, batch), the batch as large as the smallest group allows; None where a group has no rows."""
    size = min(batch_size, *(len(own) for own in rows))
    if size == 0:
        return None
    return torch.stack(
        [shuffled(own, steps, size, generator) for own, generator in zip(rows, generators, strict=True)], dim=1
    )


def shuffled(rows: Tensor, steps: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Rows for so many steps: (steps, batch). Each row comes once before any comes again, and once in a batch.

    One shuffle, gone round and round, made on the device in one go: with a fresh shuffle each time round, the
    batch across the seam could have a row twice. Fewer rows than a batch make the batch smaller.
    """
    size = min(batch_size, len(rows))
    order = rows[torch.randperm(len(rows), generator=generator, device=rows.device)]
    places = torch.arange(steps * size, device=rows.device) % len(rows)
    return order[places].view(steps, size)
