"""An estimator is a metric whose file defines the terms to average over the known rows and a function of the averages.
Influence values, standard errors, intervals, the bootstrap and the model of missingness are derived from these."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from s2bl_cli.metrics.estimate import Estimate, Terms, Values
from s2bl_cli.metrics.metric import PLAIN, VALUE, Metric
from s2bl_cli.metrics.missing_feedback import completed
from s2bl_cli.metrics.sample import PI, VALUE_HAT, Floats, KnownRows, ScoredPolicy

__all__ = ["Floats", "KnownRows", "Terms", "Values", "estimator"]  # re-exported for the files of the estimators


def estimator(
    name: str,
    short_title: str,
    terms_of: Callable[[KnownRows], Terms],
    *,
    needs_model: bool = False,
    least_reward: float = -math.inf,
) -> Metric:
    """There is no estimate if a reward is below `least_reward`, the domain in the docstring."""

    def compute(policy: ScoredPolicy) -> Iterable[Estimate]:
        rows, everything, observed = policy.known_rows, policy.predicted_rows, policy.sample.observed
        if rows.r.min() < least_reward:
            return
        terms = terms_of(rows)
        if everything is not None and observed is not None:
            predicted = terms_of(replace(everything, tuned_on=rows))
            terms = completed(terms, predicted.values, policy.sample.known, observed.astype(np.float64))
        yield terms.estimate

    return Metric(
        name,
        f"Expected reward by {short_title}",
        PLAIN,
        "high",
        VALUE,
        compute,
        needs=(PI, VALUE_HAT) if needs_model else (PI,),
        needs_feedback=True,
        short_title=short_title,
    )
