"""The linear policy: logits = W x + b, the softmax policy of the paper's linear experiments."""

from torch import nn

from s2bl_cli.contract.policies import NetworkSpec


def build(spec: NetworkSpec) -> nn.Module:
    linear = nn.Linear(spec.context.features, spec.actions)
    # Starting from zero, the first policy is uniform for every seed; there is no symmetry to break.
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(nn.Flatten(), linear)
