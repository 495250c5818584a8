"""Calibrated cross-entropy: imitate the logged actions that are estimated to be better than usual."""

from s2bl_cli.objectives.terms import LOG_PI, REWARD_WEIGHT, AnyBatch, Numbers, Regulariser, Term


def cce(batch: AnyBatch, h: Numbers) -> Term:
    """Σᵢ mᵢ (−log π_θ(aᵢ|xᵢ)) / Σᵢ mᵢ over all rows, mᵢ = (rᵢ − r̄)₊ · min(1/(k·pᵢ), 20) · sᵢ, k the number of actions.

    r is the reward: its known value where there is feedback, and elsewhere what a calibration fitted on the known
    rows expects; r̄ is the mean known reward. s is how far to go by a row: t where the reward is expected, t the
    trust in the calibration, and (1 − t(1−ρ))/ρ where it is known. m over its mean is the batch's `reward_weight`,
    computed once before the first step (`training/expected_rewards.py`).
    Domain: costs of any bounded scale: r is the cost with its sign changed, scaled to [0, 1].
    Limits: where the calibration finds nothing, t = 0 and missing rows have no weight; with a uniform logging
    policy, all feedback known and 0/1 rewards, cross-entropy on the rows that were right.
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
