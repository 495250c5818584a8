"""Which rows each step sees.

Paired: a step has a batch of known rows for the risk and a batch of all rows for the regulariser. With one
mixed batch, at ρ = 0.02, 128 rows hold two or three with feedback, and the risk's gradient is noise. Every
learner takes the same number of steps an epoch, whatever its objective, so comparisons are fair.
"""

import torch
from torch import Tensor


def epoch_steps(rows: int, batch_size: int) -> int:
    """Steps to an epoch: full batches over all train rows, at least one."""
    return max(1, rows // batch_size)


def shuffled(rows: Tensor, steps: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Rows for so many steps: (steps, batch). Each row comes once before any comes again, and once in a batch.

    One shuffle, gone round and round, made on the device in one go: with a fresh shuffle each time round, the
    batch across the seam could have a row twice. Fewer rows than a batch make the batch smaller.
    """
    size = min(batch_size, len(rows))
    order = rows[torch.randperm(len(rows), generator=generator, device=rows.device)]
    places = torch.arange(steps * size, device=rows.device) % len(rows)
    return order[places].view(steps, size)
