"""True risk: mean over rows of Σ_a π(a|x) c(a, x), the expected cost of the policy's draws.

Where a cost depends on being right only, labels tell the costs of all actions: c_right for the label, c_wrong
for the others. The two are read off the known rows. Costs that depend on more have no true risk that labels
could tell.
"""

from s2bl_cli.evaluation.metrics.metric import Metric
from s2bl_cli.evaluation.metrics.sampled_accuracy import METRIC as SAMPLED

METRIC = Metric("true-risk", SAMPLED.of_policy, SAMPLED.of_draws, as_cost=True)
