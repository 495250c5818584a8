"""No risk: the policy is trained by the regulariser alone, without feedback ("w/o SNIPS" in the paper)."""

from s2bl_cli.objectives.terms import NOTHING, Risk

RISK = Risk("", lambda batch, h: NOTHING, needs=())
