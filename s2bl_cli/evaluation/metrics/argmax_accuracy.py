"""Argmax accuracy: mean over rows of 1[argmax_a π(a|x) = y].

The paper's "accuracy": the policy is made deterministic. Ties go to the smallest action.
"""

import numpy as np

from s2bl_cli.evaluation.metrics.metric import Floats, Ints, Metric


def _of_policy(pi: Floats, label: Ints) -> Floats:
    right: Floats = (pi.argmax(axis=1) == label).astype(np.float64)
    return right


METRIC = Metric("argmax-accuracy", _of_policy)
