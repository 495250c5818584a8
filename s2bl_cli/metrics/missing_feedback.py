"""Feedback that is missing by context and action: estimates that use a model of it, and a check of that model."""

from collections.abc import Sequence

import numpy as np

from s2bl_cli.metrics.estimate import Terms, Values, mean_estimate
from s2bl_cli.metrics.sample import Floats, Mask, ScoredPolicy

_SURPRISE = 3.5  # standard errors: exceeded by chance in 1 of 1,000 logs, for two means


def completed(terms: Terms, predicted: Sequence[Floats], known: Mask, probability: Floats) -> Terms:
    """Terms over all rows instead of the known rows k: means of t become mean(t̂) + mean(o (t − t̂))/mean(o), o = k/P(k).

    `predicted` t̂ and `probability` P(k | x, a) have one value per row. The means are unbiased if either t̂ or P(k) is
    right. The bias is a product of the errors of the two models, so the interval can ignore it.
    Source: Robins, Rotnitzky & Zhao 1994.
    """
    o = known / probability
    gaps = [np.zeros(len(known)) for _ in predicted]
    for gap, t, t_hat in zip(gaps, terms.values, predicted, strict=True):
        gap[known] = o[known] * (t - t_hat[known])

    def of_means(*means: Values) -> Values:
        return terms.of_means(*(means[i] + means[len(gaps) + i] / means[-1] for i in range(len(gaps))))

    note = "known rows weighted by the model of missingness"
    return Terms(
        [*predicted, *gaps, o],
        of_means,
        biased=terms.biased,
        note=f"{terms.note}; {note}" if terms.note else note,
    )


def mismatch(policy: ScoredPolicy) -> str | None:
    """A warning if the model of missingness does not fit: weighted by it, the known rows must have the mean weight and
    the mean expected reward of all rows.

    mean((o/ō − 1) g), o = known/P(known | x, a), is 0 in expectation for every g of context and action. If P
    is fitted, it varies less than its standard error suggests, so false warnings are rare.
    """
    rows, observed = policy.predicted_rows, policy.sample.observed
    if rows is None or observed is None:
        return None
    o = policy.sample.known / observed.astype(np.float64)
    # Subtracting the mean of g changes only the standard error.
    gaps = [mean_estimate((o / o.mean() - 1) * (g - g.mean())) for g in (rows.w, rows.w * rows.r)]
    worst = max((abs(gap.value) / gap.stderr for gap in gaps if gap.stderr), default=0.0)
    if worst <= _SURPRISE:
        return None
    return f"the model of missingness does not fit: weighted by it, known rows are {worst:.0f} standard errors off"
