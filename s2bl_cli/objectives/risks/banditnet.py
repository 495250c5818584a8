"""BanditNet: the self-normalised estimator made trainable by stochastic gradients."""

import numpy as np

from s2bl_cli.objectives.hyperparameters import NU, Costs, Hyperparameter
from s2bl_cli.objectives.terms import KnownBatch, Numbers, Risk, Term
from s2bl_cli.settings import Between

# The values that `--translation auto` tries, as fractions of the range of the known costs, from the lowest.
AUTO_TRANSLATIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)


def banditnet(batch: KnownBatch, h: Numbers) -> Term:
    """mean over S of (cᵢ − t) π_θ(aᵢ|xᵢ)/max(ν, pᵢ), t the translation.

    The best t is found by trying several: a policy that is optimal for some t is optimal for SNIPS = Σ cᵢwᵢ/Σ wᵢ under
    a constraint on the mean weight (Lagrange).
    Domain: any finite costs and t.
    Limits: t = 0 is `tips`.
    Source: Joachims, Swaminathan & de Rijke 2018; SNIPS after Swaminathan & Joachims 2015.
    """
    terms = batch.log_pi.exp() * ((batch.c - h.translation) / batch.p.clamp(min=h.nu))
    return batch.term(terms, slope=terms)


def _mean(costs: Costs, weights: Costs) -> tuple[float, ...]:
    return (float(np.average(costs.astype(np.float64), weights=weights)) if len(costs) else 0.0,)


def _over_the_range(costs: Costs, weights: Costs) -> tuple[float, ...]:
    low, high = (float(costs.min()), float(costs.max())) if len(costs) else (0.0, 0.0)
    return tuple(low + part * (high - low) for part in AUTO_TRANSLATIONS)


TRANSLATION = Hyperparameter(
    "translation",
    "t",
    "BanditNet cost baseline: numbers, mean (of the known costs) or auto (a grid over their range; needs --select)",
    Between(-1e30, 1e30),
    "mean",
    {"mean": _mean, "auto": _over_the_range},
    searched=("auto",),
    is_cost=True,
)

RISK = Risk("mean_S((c−t)·π/max(ν,p))", banditnet, (NU, TRANSLATION))
