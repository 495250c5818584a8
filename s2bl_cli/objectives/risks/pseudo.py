"""Pseudo-feedback ("Q-learning" in the paper): a cost model fills in the missing costs."""

from s2bl_cli.objectives.hyperparameters import NU
from s2bl_cli.objectives.risks.tips import tips
from s2bl_cli.objectives.terms import FILLED_COSTS, LOG_PI, KnownBatch, Numbers, Risk, Term


def pseudo(batch: KnownBatch, h: Numbers) -> Term:
    """`tips` on all rows, with missing costs filled in by a model fitted on S.

    The costs are filled in once, before the first step (`training/`). The batch here is drawn from all rows, and its
    costs are cᵢ where known and ĉ(xᵢ, aᵢ) where missing.
    Limits: `tips` if all feedback is known.
    Source: the paper, appendix "Direct approach: Q-learning approach".
    """
    return tips(batch, h)


RISK = Risk("mean(ĉ·π/max(ν,p)), ĉ filled in", pseudo, (NU,), (LOG_PI, FILLED_COSTS), cost_model="logistic")
