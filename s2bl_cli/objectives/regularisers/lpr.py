"""Logging policy regularisation."""

from s2bl_cli.objectives.terms import PRIOR, AnyBatch, Numbers, Regulariser, Term


def lpr(batch: AnyBatch, h: Numbers) -> Term:
    """‖θ − θ₀‖², θ₀ the parameters of a policy fitted to the logged actions of the known rows, or of a given one.

    Limits: θ₀ = 0 is the L2 regularisation.
    Source: London & Sandler 2019 (Bayesian CRM, the posterior's variance fixed).
    """
    return Term(
        batch.distance.unsqueeze(-1), {("distance", batch.first): batch.distance.new_ones(batch.distance.shape)}
    )


REGULARISER = Regulariser("‖θ−θ₀‖²", lpr, default_lam=0.001, needs=(PRIOR,), default_rows="known")
