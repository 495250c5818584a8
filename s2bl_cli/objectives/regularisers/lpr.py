"""Logging policy regularisation."""

from torch import Tensor

from s2bl_cli.objectives.batches import AnyBatch, Knobs


def lpr(batch: AnyBatch, knobs: Knobs) -> Tensor:
    """‖θ − θ₀‖², θ₀ the parameters of a policy fitted to the logged actions of the known rows, or of a given one.

    Limits: θ₀ = 0 is the L2 regularisation.
    Source: London & Sandler 2019 (Bayesian CRM, the posterior's variance fixed).
    """
    assert batch.distance is not None
    return batch.distance
