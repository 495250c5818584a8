"""Metrics with labels y, the true class of each row.

    argmax-accuracy     mean 1[argmax_a π(a|x) = y]: the paper's "accuracy", of the deterministic policy
    sampled-accuracy    mean π(y|x) of the softmax at temperature 1: the expected share of drawn actions that are right
    accuracy            mean π(y|x) of the policy as it acts
    true-risk           mean Σ_a π(a|x) c(a, x) of the policy as it acts: its expected cost
    class-accuracy      argmax accuracy in the rows of one class

For the logging policy, only its draws are known. The share of logged actions that equal the label is an unbiased
estimate of its sampled accuracy. The paper's tables call it "logging policy".
"""

from collections.abc import Iterable

import numpy as np

from s2bl_cli.metrics.estimate import Estimate, mean_estimate
from s2bl_cli.metrics.metric import LABELS, PERCENT, PLAIN, Metric, by_name, mean_of
from s2bl_cli.metrics.sample import ACTED, CORRECT, SAMPLED, LoggedSample, ScoredPolicy, numbered


def label_rewards(sample: LoggedSample) -> tuple[float, float] | None:
    """The rewards of right and wrong actions, if in the known rows the reward depends only on whether the action is
    right.

    If all rewards are 1 or 0, a right action has reward 1 and a wrong one 0, even if feedback is noisy. None if labels
    do not determine rewards.
    """
    reward = sample.r[sample.known]
    right = (sample.action == sample.label)[sample.known]
    if np.isin(reward, (0.0, 1.0)).all():
        return 1.0, 0.0
    if right.any() and (~right).any() and np.ptp(reward[right]) == 0 and np.ptp(reward[~right]) == 0:
        return float(reward[right][0]), float(reward[~right][0])
    return None


def _true_risk(policy: ScoredPolicy) -> Iterable[Estimate]:
    rewards = label_rewards(policy.sample)
    if rewards is None:
        return
    right, wrong = (
        0.0 - reward for reward in rewards
    )  # back to costs; 0 − x avoids −0.0, which would be printed with a sign
    note = f"cost {right:g} for the label, {wrong:g} for other actions"
    yield mean_estimate(wrong + (right - wrong) * policy.values(ACTED), note=note)


def _class_accuracy(policy: ScoredPolicy) -> Iterable[Estimate]:
    correct, cluster = policy.values(CORRECT), policy.sample.cluster
    return [
        mean_estimate(correct[rows], label, cluster=None if cluster is None else numbered(cluster[rows]))
        for label, rows in policy.sample.rows_by_class.items()
    ]


METRICS = by_name(
    Metric("argmax-accuracy", "Argmax accuracy", PERCENT, "high", LABELS, mean_of(CORRECT), needs=(CORRECT,)),
    Metric("sampled-accuracy", "Sampled accuracy", PERCENT, "high", LABELS, mean_of(SAMPLED), needs=(SAMPLED,)),
    Metric("accuracy", "Accuracy", PERCENT, "high", LABELS, mean_of(ACTED), needs=(ACTED,)),
    Metric("true-risk", "True risk", PLAIN, "low", LABELS, _true_risk, needs=(ACTED,), needs_feedback=True),
    Metric("class-accuracy", "Accuracy by class", PERCENT, "high", LABELS, _class_accuracy, needs=(CORRECT,)),
)
