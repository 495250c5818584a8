"""The paper's two simple ResNets: four blocks of one (v1) or two (v2) residual layers.

After He et al. 2016, for small images: a 3×3 stem without pooling, blocks of width w, 2w, 4w, 8w with strides
1, 2, 2, 2, batch normalisation, global average pooling, one linear layer. w is --width, 64 in the paper.
"""

from functools import partial

from torch import Tensor, nn

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.errors import SettingError

_STRIDES = (1, 2, 2, 2)


class ResidualLayer(nn.Module):
    """relu(x + f(x)), f two 3×3 convolutions; a 1×1 convolution maps x if the shape changes."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.stride = stride
        self.carried: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.carried = nn.Sequential(nn.Conv2d(channels_in, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first_norm(self.first(x)).relu()
        # Sliced here instead of using a strided 1×1 convolution: on a CPU, the backward pass of a strided convolution
        # with few channels in the channels-last layout writes out of bounds (torch 2.15).
        carried = self.carried(x[:, :, :: self.stride, :: self.stride])
        total: Tensor = carried + self.second_norm(self.second(inner))
        return total.relu()


def _resnet(spec: NetworkSpec, *, layers_per_block: int) -> nn.Module:
    if len(spec.context.shape) != 3:
        raise SettingError(
            f"{spec.model} needs images as contexts (channels × height × width), found {spec.context}: use --model mlp"
        )
    width = spec.width
    layers: list[nn.Module] = [
        nn.Conv2d(spec.context.shape[0], width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    channels = width
    for block, stride in enumerate(_STRIDES):
        for layer in range(layers_per_block):
            layers.append(ResidualLayer(channels, width << block, stride if layer == 0 else 1))
            channels = width << block
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, spec.actions))


BUILDERS = {"resnet-v1": partial(_resnet, layers_per_block=1), "resnet-v2": partial(_resnet, layers_per_block=2)}
