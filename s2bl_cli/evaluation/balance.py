"""Whether a model of missingness fits: weighted by it, the known rows must look like all rows."""

import math

import numpy as np
import numpy.typing as npt

from s2bl_cli.evaluation.estimators.estimator import Floats

_SURPRISE = 3.5  # standard errors: by chance in 1 of 1,000 logs, for two figures


def misfit(known: npt.NDArray[np.bool_], probability: Floats, figures: Floats) -> str | None:
    """`figures` (figures, rows) are known of all rows, such as weights. None where all are balanced.

    mean((o/ō − 1) g), o = known/P(known | x, a), is 0 in expectation for every g of context and action. Where P
    is fitted, it varies less than its standard error says, so this rarely speaks without a cause.
    """
    o = known / probability
    gaps = (o / o.mean() - 1) * (figures - figures.mean(axis=1, keepdims=True))  # the mean changes the error alone
    errors = gaps.std(axis=1, ddof=1) / math.sqrt(len(o))
    z = np.divide(np.abs(gaps.mean(axis=1)), errors, out=np.zeros(len(figures)), where=errors > 0)
    if z.max() <= _SURPRISE:
        return None
    return f"the model of missingness does not fit: weighted by it, known rows are {z.max():.0f} standard errors off"
