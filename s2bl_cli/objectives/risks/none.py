"""No risk."""

from torch import Tensor

from s2bl_cli.objectives.batches import KnownBatch


def none(batch: KnownBatch, nu: float) -> Tensor:
    """0: the policy is trained by the regulariser alone, without feedback ("w/o SNIPS" in the paper)."""
    return batch.log_pi.new_zeros(())
