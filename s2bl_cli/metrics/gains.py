"""Gains: how much the value of a policy exceeds that of a baseline on the same rows, for every estimator.

    snips-gain                  V̂(π) − V̂(baseline), with an interval for this policy alone
    snips-gain-simultaneous     the same, with an interval that is corrected for the number of policies compared
    better                      1 if the simultaneous interval is above 0, −1 if it is below 0, else 0

Noise that both estimates share cancels, because the standard error is that of the differences of their influence values
(`estimate.difference`). Simultaneous intervals have the level 1 − δ/k for k policies (Bonferroni): with probability
1 − δ or more, all k of them contain their true gains.

`evaluate` computes gains; this file declares how they are displayed.
"""

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.metrics.metric import GAIN, PLAIN, Metric
from s2bl_cli.registry import ESTIMATORS

SINGLE, SIMULTANEOUS = "-gain", "-gain-simultaneous"  # suffixes of the estimator's name
BETTER = "better"
HEADLINES = ("ppi-dr", "dr", "snips", "ips")  # the first available one represents the value
VERDICTS = {1: "better", 0: "not shown to be better", -1: "worse"}
_BASELINES = {LOGGING_POLICY: "the logging policy", "uniform": "the uniform policy"}

NAMES = (*(name + suffix for name in ESTIMATORS.names for suffix in (SINGLE, SIMULTANEOUS)), BETTER)


def baseline_words(name: str) -> str:
    """A baseline as used in a sentence; for a policy file, its name."""
    return _BASELINES.get(name, name)


def gain_metric(name: str) -> Metric:
    """How a gain is displayed, by its name."""
    if name == BETTER:
        return Metric(BETTER, "Better than the baseline", PLAIN, None, GAIN, lambda policy: ())
    words = ", simultaneous" if name.endswith(SIMULTANEOUS) else ""
    short = ESTIMATORS.load(name.removesuffix(SIMULTANEOUS).removesuffix(SINGLE)).short_title
    title = f"Gain over the baseline by {short}{words}"
    return Metric(name, title, PLAIN, "high", GAIN, lambda policy: (), short_title=f"{short} gain{words}")
