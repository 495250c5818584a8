"""Direct method.

    V̂ = mean(f)

Domain: needs a reward model (cross-fitted: no row is predicted by a model that was fitted on it).
Limits: no variance from weights; as biased as the model. Its interval is for the mean of f, not for the value.
Source: Dudík et al. 2011.
"""

from s2bl_cli.metrics.estimators.estimator import KnownRows, Terms, estimator


def terms(rows: KnownRows) -> Terms:
    return Terms([rows.f], width=rows.reward_span, note="the interval leaves out the model's bias")


ESTIMATOR = estimator("dm", "DM", terms, needs_model=True)
