"""An estimator is a metric whose file defines the terms to average over the known rows and a function of the averages.
Influence values, standard errors, intervals, the bootstrap and the model of missingness are derived from these."""

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
    scaled: bool = False,
) -> Metric:
    """With `scaled`, the terms are computed from rewards scaled to [0, 1] by their range. The estimate, its standard
    error and its bound are then mapped back, so the result is the same for every unit of the rewards."""

    def compute(policy: ScoredPolicy) -> Iterable[Estimate]:
        rows, everything, observed = policy.known_rows, policy.predicted_rows, policy.sample.observed
        low, span = rows.reward_range[0], rows.reward_span
        known = rows.scaled(low, span) if scaled else rows
        terms = terms_of(known)
        if everything is not None and observed is not None:
            everything = everything.scaled(low, span) if scaled else everything
            predicted = terms_of(replace(everything, tuned_on=known))
            terms = completed(terms, predicted.values, policy.sample.known, observed.astype(np.float64))
        yield _with_range_note(_mapped_back(terms, low, span) if scaled else terms, rows).estimate

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


def _mapped_back(terms: Terms, low: float, span: float) -> Terms:
    """Terms of rewards in [0, 1] as terms of rewards in [low, low + span]."""
    bound = terms.lower_bound
    return replace(
        terms,
        of_means=lambda *means: low + span * terms.of_means(*means),
        lower_bound=None if bound is None else lambda delta: low + span * bound(delta),
    )


def _with_range_note(terms: Terms, rows: KnownRows) -> Terms:
    """A bound is a guarantee only if the range of the rewards was known before seeing the rows, so there is none
    without a declared range."""
    if terms.width is None and terms.lower_bound is None:
        return terms
    if rows.declared_range is not None:
        low, high = rows.declared_range
        return replace(terms, note=_joined(terms.note, f"rewards in [{low:g}, {high:g}], as declared"))
    missing = None if terms.lower_bound is None else "no lower bound without --reward-range"
    return replace(terms, width=None, lower_bound=None, note=_joined(terms.note, missing))


def _joined(*notes: str | None) -> str | None:
    return "; ".join(filter(None, notes)) or None
