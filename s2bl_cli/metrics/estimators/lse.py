"""Log-sum-exponential.

    V̂ = ln(mean(exp(λ w r))) / λ,  λ = −n^(−3/4)

Domain: any finite rewards, scaled to r in [0, 1] by their range; the estimate is mapped back to their unit.
Limits: λ → 0 is `ips` of the scaled rewards. The bias is towards the smallest reward and of the order of |λ|; at the
source's λ of order n^(−1/2) it would be as large as the standard error, and a normal interval would not cover. At
n^(−3/4) it vanishes faster than the standard error.
Source: Behnamnia et al. 2025, arXiv 2506.06873.
"""

import numpy as np

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    lam = -(rows.tuning.n**-0.75)

    # With expm1 and log1p, because λ w r is small and 1 + λ w r would lose precision.
    return Terms([np.expm1(lam * rows.w * rows.r)], lambda mean: np.log1p(mean) / lam)


ESTIMATOR = estimator("lse", "LSE", terms, scaled=True)
