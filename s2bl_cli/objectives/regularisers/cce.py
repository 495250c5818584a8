"""Calibrated cross-entropy: imitate the logged actions that are held to be better than usual."""

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, Knobs


def cce(batch: AnyBatch, knobs: Knobs) -> Tensor:
    """mean over all rows of (rᵢ − r̄)₊/r̄ · (−log π_θ(aᵢ|xᵢ)).

    r is the reward: its known value where there is feedback, and elsewhere what a calibration fitted on the known
    rows expects; r̄ is the mean known reward. (rᵢ − r̄)₊/r̄ is the batch's `merit`, worked out once before the
    first step (`training/`).
    Domain: costs of any bounded scale: r is the cost turned round and scaled to [0, 1].
    Limits: where the calibration finds nothing (a flat one), missing rows have no weight; with all feedback
    known and 0/1 rewards, (1/r̄ − 1)·cross-entropy on the rows that were right.
    Source: this project (docs/mathematics.md).
    """
    assert batch.merit is not None
    return (batch.merit * -batch.log_pi).mean(-1)
