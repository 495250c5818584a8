"""KL divergence from the logging policy."""

from s2bl_cli.objectives.hyperparameters import NU
from s2bl_cli.objectives.terms import LOG_POLICY, PI0, AnyBatch, Numbers, Regulariser, Term


def kl(batch: AnyBatch, h: Numbers) -> Term:
    """L̂_KL^ν(π_θ) = Σ_a (1/m_a) Σ_{i: aᵢ=a} π_θ(aᵢ|xᵢ) log(π_θ(aᵢ|xᵢ) / max(ν, pᵢ)).

    Estimated on a batch as the mean of (N/m_a)·(the term), which is unbiased because m_a is counted over the
    whole log.
    Limits: 0 if π_θ equals max(ν, p) on every logged row.
    Source: the paper, eq. (CRM regularize by KL), truncated as in its KL-S2BL algorithm.
    """
    pi = batch.log_pi.exp() * batch.action_weight
    terms = pi * (batch.log_pi - batch.p.clamp(min=h.nu).log())
    return batch.term(terms, slope=terms + pi)


def kl_exact(batch: AnyBatch, h: Numbers) -> Term:
    """mean over rows of Σ_a π_θ(a|xᵢ) log(π_θ(a|xᵢ) / max(ν, π₀(a|xᵢ))), if the log stores π₀.

    Limits: 0 if π_θ = π₀ ≥ ν. With the risk, its optimum over all policies is π ∝ π₀·exp(−c/λ).
    """
    nu = h.nu if isinstance(h.nu, float | int) else h.nu.unsqueeze(-1)  # (…, 1, 1)
    pi = batch.log_policy.exp()
    terms = pi * (batch.log_policy - batch.pi0.clamp(min=nu).log())
    return batch.policy_term(terms.sum(-1), slope=terms + pi)


# λ is small because the per-action estimate has its minimum at π = p/e: a large λ pushes the probabilities of the
# logged actions down instead of towards the logging policy.
REGULARISER = Regulariser(
    "Σ_a mean_a(π·log(π/max(ν,p)))",
    kl,
    default_lam=0.001,
    hyperparameters=(NU,),
    exact=Regulariser("mean(KL(π‖π₀))", kl_exact, 0.001, (NU,), needs=(LOG_POLICY, PI0)),
)
