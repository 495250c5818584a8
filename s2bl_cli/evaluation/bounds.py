"""The paper's bounds, as figures: of the true risk, and of the error of its divergence estimators. δ is 1 − level."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.evaluation.divergences import TINY
from s2bl_cli.evaluation.estimators.estimator import Floats


def risk_bound(truncated_risk: float, divergence: float, n: int, nu: float, delta: float) -> float:
    """R ≤ R̂_ν + 2L/(3νn) + √((√(2M)/ν + 2)·L/n), L = ln(1/δ), with probability 1 − δ.

    M = min(KL(π‖π₀), KL(π₀‖π)). Domain: costs in [−1, 0], ν in (0, 1]. Source: the paper, theorem *main result*.
    """
    log = math.log(1 / delta)
    spread = (math.sqrt(2 * max(0.0, divergence)) / nu + 2) * log / n
    return truncated_risk + 2 * log / (3 * nu * n) + math.sqrt(spread)


def estimator_error_bound(terms: Floats, action: npt.NDArray[Any], actions: int, delta: float) -> float:
    """B √(2 ln(k/δ)) Σ_a 1/√m_a: how far the paper's divergence estimator is off, with probability 1 − δ.

    B is the largest |term| seen. Actions never logged are left out. Source: the paper, proposition *error
    analysis*, which takes the contexts of each action for contexts at large.
    """
    count = np.bincount(action, minlength=actions)
    sizes = float((1 / np.sqrt(count[count > 0])).sum())
    return float(np.abs(terms).max()) * math.sqrt(2 * math.log(actions / delta)) * sizes


def kl_terms(pi: Floats, p: Floats) -> tuple[Floats, Floats]:
    """π ln(π/p) and p ln(p/π) of each row."""
    log_ratio = np.log(np.maximum(pi, TINY)) - np.log(np.maximum(p, TINY))
    return pi * log_ratio, -p * log_ratio
