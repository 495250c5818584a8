"""Sampled accuracy: mean over rows of π(y|x), the expected share of right actions when they are drawn.

Of a log itself only the draws are known: the share of rows whose action is the label, an unbiased estimate.
That is what the paper's tables call "logging policy".
"""

import numpy as np

from s2bl_cli.evaluation.metrics.metric import Floats, Ints, Metric


def _of_policy(pi: Floats, label: Ints) -> Floats:
    right: Floats = pi[np.arange(len(label)), label].astype(np.float64)
    return right


def _of_draws(action: Ints, label: Ints) -> Floats:
    right: Floats = (action == label).astype(np.float64)
    return right


METRIC = Metric("sampled-accuracy", _of_policy, _of_draws)
