"""Calibrated cross-entropy: imitate the logged actions that are estimated to be better than usual."""

from s2bl_cli.objectives.terms import LOG_PI, REWARD_WEIGHT, AnyBatch, Numbers, Regulariser, Term


def cce(batch: AnyBatch, h: Numbers) -> Term:
    """Σᵢ mᵢ (−log π_θ(aᵢ|xᵢ)) / Σᵢ mᵢ over all rows, mᵢ = (uᵢ + vᵢ)·min(1/(k·pᵢ), 20), k the number of actions.

    u = (r̂ − b)₊ where feedback is missing and (r̂ − b)₊·r/r̂ where it is known; v = (1 − t)(1 − b)·r/ρ where it is
    known, else 0. r is the known reward, r̂ the reward predicted by a calibration, and b the reward predicted by a
    model of the context, both from other known rows. t is the trust in the calibration, and ρ the share of known rows.
    m divided by its mean is the batch's `reward_weight`, computed once before the first step
    (`training/expected_rewards.py`).
    Domain: costs on any bounded scale: r is the negated cost, scaled to [0, 1].
    Limits: if the calibration finds nothing, t = 0, r̂ is the mean reward and only known rows have weights; with a
    uniform logging policy, all feedback known and 0/1 rewards that do not depend on the context, cross-entropy on the
    rows that were right.
    Source: this project (docs/mathematics.md).
    """
    slope = -batch.reward_weight
    return batch.term(batch.log_pi * slope, slope=slope)


REGULARISER = Regulariser(
    "mean(m·(−log π)), m the reward weight",
    cce,
    default_lam=1.0,
    needs=(LOG_PI, REWARD_WEIGHT),
    cost_model="propensity",
)
