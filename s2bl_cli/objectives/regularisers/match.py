"""Propensity matching: the squared distance between the policy's log-probabilities and the logged ones."""

from collections.abc import Mapping

from s2bl_cli.objectives.hyperparameters import Hyperparameter, Values
from s2bl_cli.objectives.terms import LOG_POLICY, PI0, AnyBatch, MeanOfPropensities, Numbers, Regulariser, Term
from s2bl_cli.settings import Between


def match(batch: AnyBatch, h: Numbers) -> Term:
    """mean over rows of mᵢ (log π_θ(aᵢ|xᵢ) − log pᵢ)², mᵢ = min(pᵢ^−β, 20 u)/u, u the mean of p^−β.

    With β = 0 all rows count equally, so frequent actions are matched best. With β = 1 all actions are matched equally
    well, because each row's weight offsets its rarity.
    Limits: 0 if π_θ equals p on every logged row. Its optimum over all policies is π₀ for any β, and there is no
    sampling noise: `wce` and `kl` see the logged actions as draws, while `match` compares probabilities.
    Source: this project (docs/mathematics.md).
    """
    weight = (batch.p**-h.balance / h.balance_unit).clamp(max=_LARGEST_WEIGHT)
    error = batch.log_pi - batch.p.log()
    clipped = error.clamp(-_LARGEST_ERROR, _LARGEST_ERROR)  # linear beyond this, because a square could overflow
    return batch.term(weight * clipped * (2 * error - clipped), slope=2 * weight * clipped)


def match_exact(batch: AnyBatch, h: Numbers) -> Term:
    """mean over rows of Σ_a π₀(a|xᵢ) m(π₀(a|xᵢ)) (log π_θ(a|xᵢ) − log π₀(a|xᵢ))², m(p) = min(p^−β, 20 u)/u: the
    expectation of `match` over the logged actions, if the log stores π₀.

    Limits: as `match`. Actions that the logging policy never takes have the weight 0.
    """
    balance, unit = (
        value if isinstance(value, float | int) else value.unsqueeze(-1) for value in (h.balance, h.balance_unit)
    )  # (…, 1, 1)
    pi0 = batch.pi0.clamp(min=_TINY)
    weight = batch.pi0 * (pi0**-balance / unit).clamp(max=_LARGEST_WEIGHT)
    error = batch.log_policy - pi0.log()
    clipped = error.clamp(-_LARGEST_ERROR, _LARGEST_ERROR)
    return batch.policy_term((weight * clipped * (2 * error - clipped)).sum(-1), slope=2 * weight * clipped)


_TINY = 1e-30
_LARGEST_ERROR = 50.0
_LARGEST_WEIGHT = 20.0  # per row: otherwise a tiny propensity would dominate the others


def _unit(values: Values, mean: MeanOfPropensities) -> Mapping[str, float]:
    balance = values["balance"] or 0.0
    return {"balance_unit": mean(lambda p: p**-balance) if balance else 1.0}


BALANCE = Hyperparameter("balance", "β", "Weight match rows by propensity^−β", Between(0, 1), 0.5)

REGULARISER = Regulariser(
    "mean(m·(log π−log p)²)",
    match,
    default_lam=0.1,
    hyperparameters=(BALANCE,),
    exact=Regulariser(
        "mean(Σ_a m·π₀·(log π−log π₀)²)", match_exact, 0.1, (BALANCE,), needs=(LOG_POLICY, PI0), derive=_unit
    ),
    derive=_unit,
)
