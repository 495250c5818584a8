"""The fully connected policy: hidden layers of the given widths with ReLU, then a linear layer."""

from torch import nn

from s2bl_cli.contract.policies import NetworkSpec


def build(spec: NetworkSpec) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    width = spec.context.features
    for hidden in spec.hidden:
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, spec.actions))
