"""Class accuracy: of the rows of one class y, the share whose likeliest action is y. One score a class."""

from s2bl_cli.evaluation.metrics.argmax_accuracy import METRIC as ARGMAX
from s2bl_cli.evaluation.metrics.metric import Metric

METRIC = Metric("class-accuracy", ARGMAX.of_policy, by_class=True)
