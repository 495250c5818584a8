"""Divergences between a policy and the logging policy, three ways; the name of a metric says which.

    exact    from the whole distributions of each row, where the log stores them (`pi0`)
    sampled  from the logged actions: KL(π‖π₀) = mean(w ln w), KL(π₀‖π) = mean(ln p − ln π); unbiased
    paper    the paper's per-action estimator: Σ_a (1/m_a) Σ_{aᵢ = a} of π ln(π/p), or of p ln(p/π)

The last takes the contexts in which an action was logged for contexts at large. They are not, so it estimates
something else (docs/mathematics.md); it is here because the paper's regularisers and error bound are about it.

No feedback enters: all rows are used. Probabilities of 0 count as the smallest positive float32, so that a divergence
that is infinite comes out large.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.evaluation.estimators.estimator import Floats, Terms

TINY = float(np.finfo(np.float32).tiny)


def log_of(probabilities: npt.NDArray[Any]) -> npt.NDArray[Any]:
    logarithms: npt.NDArray[Any] = np.log(np.maximum(probabilities, TINY))
    return logarithms


def exact_kl(
    pi: npt.NDArray[Any], pi0: npt.NDArray[Any], log_pi0: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """KL(π(·|x)‖π₀(·|x)) and KL(π₀(·|x)‖π(·|x)) of each row, from (rows, actions)."""
    log_ratio = log_of(pi) - log_pi0
    return np.einsum("ij,ij->i", pi, log_ratio), -np.einsum("ij,ij->i", pi0, log_ratio)


def sampled_kl(pi: Floats, p: Floats) -> Terms:
    """KL(π‖π₀) from the logged actions' probabilities."""
    return Terms((pi / p * _log_ratio(pi, p))[None])


def sampled_reverse_kl(pi: Floats, p: Floats) -> Terms:
    return Terms(-_log_ratio(pi, p)[None])


def paper_kl(pi: Floats, p: Floats, action: npt.NDArray[Any], actions: int) -> Terms:
    return _by_action(pi * _log_ratio(pi, p), action, actions)


def paper_reverse_kl(pi: Floats, p: Floats, action: npt.NDArray[Any], actions: int) -> Terms:
    return _by_action(-p * _log_ratio(pi, p), action, actions)


def _log_ratio(pi: Floats, p: Floats) -> Floats:
    ratio: Floats = log_of(pi) - log_of(p)
    return ratio


def _by_action(values: Floats, action: npt.NDArray[Any], actions: int) -> Terms:
    """Σ_a mean_a as a mean of influence values, so that its standard error counts the m_a as given."""
    count = np.bincount(action, minlength=actions)
    total = np.bincount(action, values, minlength=actions)
    mean = np.divide(total, count, out=np.zeros(actions), where=count > 0)
    influence = len(values) / count[action] * (values - mean[action])
    return Terms((mean.sum() + influence)[None])
