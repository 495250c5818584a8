"""The paper's empirical IPS, the score of its KuaiRec table: plain IPS, without truncation.

    V̂ = mean(w r)

Domain: any finite rewards.
Limits: the same number as `ips`; it is listed separately because the paper's table has it.
Source: the paper, appendix on KuaiRec ("we don't use explicit truncation").
"""

from s2bl_cli.metrics.estimators.estimator import estimator
from s2bl_cli.metrics.estimators.ips import terms

ESTIMATOR = estimator("empirical-ips", "Empirical IPS", terms)
