"""Logging policy regularisation."""

from s2bl_cli.objectives.terms import PRIOR, AnyBatch, Numbers, Regulariser, Term


def lpr(batch: AnyBatch, h: Numbers) -> Term:
    """‖θ − θ₀‖², θ₀ the parameters of a given policy, or of one fitted to the logged actions of the known rows.

    Limits: θ₀ = 0 is L2 regularisation.
    Source: London & Sandler 2019 (Bayesian CRM, the posterior's variance fixed).
    """
    return Term(
        batch.distance.unsqueeze(-1), {("distance", batch.first): batch.distance.new_ones(batch.distance.shape)}
    )


REGULARISER = Regulariser("‖θ−θ₀‖²", lpr, default_lam=0.001, needs=(PRIOR,), default_rows="known")
