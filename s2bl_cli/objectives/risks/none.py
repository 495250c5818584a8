"""No risk."""

from torch import Tensor

from s2bl_cli.objectives.batches import Knobs, KnownBatch


def none(batch: KnownBatch, knobs: Knobs) -> Tensor:
    """0: the policy is trained by the regulariser alone, without feedback ("w/o SNIPS" in the paper)."""
    return batch.mean(batch.log_pi * 0)
