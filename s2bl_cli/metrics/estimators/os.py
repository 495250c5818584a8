"""Optimistic shrinkage of the weights.

    V̂ = mean(ŵ r),  ŵ = λ w/(w² + λ)

λ is chosen from a grid to minimise var/n + (mean((w − ŵ) r))², the variance plus an estimate of the squared bias.

Domain: any finite rewards, scaled to r in [0, 1] by their range; the estimate is mapped back to their unit.
Limits: λ → ∞ is `ips` of the scaled rewards, λ → 0 is the smallest reward. ŵ is at most √λ/2.
The interval ignores the bias that λ accepts, so it covers less often with a few large weights (docs/coverage.md).
Source: Su et al. 2020 (there for DR).
"""

import numpy as np

from s2bl_cli.metrics.estimators.estimator import Floats, KnownRows, Terms, estimator

_GRID = 10.0 ** np.arange(6, -3, -1)  # times the square of the largest weight


def shrunk(w: Floats, lam: float) -> Floats:
    return lam * w / (w**2 + lam)


def terms(rows: KnownRows) -> Terms:
    lam = _chosen(rows.tuning)
    return Terms([shrunk(rows.w, lam) * rows.r], note=f"λ = {lam:.4g}")


def _chosen(rows: KnownRows) -> float:
    def error(lam: float) -> float:
        values = shrunk(rows.w, lam) * rows.r
        return float(values.var()) / rows.n + float((rows.w * rows.r - values).mean()) ** 2

    largest = max(1.0, float(rows.w.max()) ** 2)
    return float(min(largest * _GRID, key=error))


ESTIMATOR = estimator("os", "OS", terms, scaled=True)
