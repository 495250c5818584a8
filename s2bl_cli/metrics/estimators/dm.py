"""Direct method.

    V̂ = mean(f)

Domain: needs a reward model (cross-fitted: no row is predicted by a model that was fitted on it).
Limits: no variance from weights; as biased as the model. Its standard error is that of the mean of f, and an interval
would ignore the bias, so there is none.
Source: Dudík et al. 2011.
"""

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    return Terms([rows.f], biased=True, note="as biased as the reward model: no interval")


ESTIMATOR = estimator("dm", "DM", terms, needs_model=True)
