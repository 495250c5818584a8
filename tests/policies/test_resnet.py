"""The paper's two ResNets: their sizes, their round trip through a file, and a run through the commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning_fixtures import MADE, arrays_of, write_arrays
from torch import nn

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.policies import NetworkSpec, Policy, read_policy, write_policy
from s2bl_cli.contract.scores import read_scores
from s2bl_cli.errors import SettingError
from s2bl_cli.policies.network import build_network, network_from, network_tensors
from s2bl_cli.policies.resnet import ResidualLayer

torch.set_num_threads(1)

LAYERS = {"resnet-v1": 1, "resnet-v2": 2}
SHAPES = [(1, 28, 28), (3, 32, 32)]


def spec_of(model: str, shape: tuple[int, ...], width: int = 4, actions: int = 7) -> NetworkSpec:
    return NetworkSpec(model, ContextSpec("uint8", shape), actions, (), width)


def parameters_by_hand(layers: int, channels: int, width: int, actions: int) -> int:
    """A convolution of 3×3 has 9·in·out weights and no bias, its batch norm 2·out; where the shape changes (the
    first layer of blocks 2 to 4), a convolution of 1×1 and its norm carry x. A linear layer ends it."""
    total = 9 * channels * width + 2 * width
    before = width
    for block in range(4):
        now = width * 2**block
        for _ in range(layers):
            total += 9 * before * now + 2 * now + 9 * now * now + 2 * now
            if before != now:
                total += before * now + 2 * now
            before = now
    return total + before * actions + actions


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", LAYERS)
def test_parameters_and_layers(model: str, shape: tuple[int, ...]) -> None:
    network = build_network(spec_of(model, shape))
    assert sum(p.numel() for p in network.parameters()) == parameters_by_hand(LAYERS[model], shape[0], 4, 7)
    layers = [module for module in network.modules() if isinstance(module, ResidualLayer)]
    assert [layer.second.out_channels for layer in layers] == [
        4 * 2**block for block in range(4) for _ in range(LAYERS[model])
    ]
    assert [layer.first.stride[0] for layer in layers if layer.first.stride[0] != 1] == [2, 2, 2]


def test_width_64_is_the_papers_size() -> None:
    """About 4.9 and 11.2 million parameters; the latter is a ResNet-18's without its ImageNet stem."""
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in build_network(spec_of(m, (3, 32, 32), 64, 10)).parameters()) for m in LAYERS]
    assert sizes == [parameters_by_hand(layers, 3, 64, 10) for layers in (1, 2)]
    assert sizes[1] == 11_173_962  # as published for CIFAR's ResNet-18


@pytest.mark.parametrize("shape", [*SHAPES, (1, 1, 1)])
@pytest.mark.parametrize("model", LAYERS)
def test_logits_are_rows_by_actions(model: str, shape: tuple[int, ...]) -> None:
    network = build_network(spec_of(model, shape)).eval()
    logits = network(torch.randint(0, 256, (5, *shape), dtype=torch.uint8))
    assert logits.shape == (5, 7)
    assert torch.isfinite(logits).all()


def test_residual_layer_with_zero_convolutions_is_relu() -> None:
    """relu(x + f(x)) with f = 0, where the shape stays."""
    layer = ResidualLayer(4, 4, 1).eval()
    nn.init.zeros_(layer.second.weight)
    x = torch.randn(2, 4, 5, 5)
    assert torch.equal(layer(x), x.relu())


@pytest.mark.parametrize("side", [1, 6, 7])
def test_carried_part_is_a_strided_convolution(side: int) -> None:
    """Slicing before a 1×1 convolution is what its stride means (its gradient is safe only so)."""
    layer = ResidualLayer(3, 6, 2).eval()
    nn.init.zeros_(layer.second.weight)
    x = torch.randn(2, 3, side, side)
    assert isinstance(layer.carried, nn.Sequential)
    strided = nn.functional.conv2d(x, layer.carried[0].weight, stride=2)
    assert torch.allclose(layer(x), layer.carried[1](strided).relu(), atol=1e-6)


@pytest.mark.parametrize("model", LAYERS)
def test_flat_contexts_are_refused(model: str) -> None:
    with pytest.raises(SettingError) as caught:
        build_network(NetworkSpec(model, ContextSpec("float32", (12,)), 3, (), 4))
    assert str(caught.value) == (
        f"{model} needs images as contexts (channels × height × width), found {ContextSpec('float32', (12,))}: "
        "use --model mlp"
    )


@pytest.mark.parametrize("model", LAYERS)
def test_round_trip_keeps_the_batch_norms_statistics(model: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    spec = spec_of(model, (3, 32, 32))
    images = np.random.default_rng(0).integers(0, 256, (16, 3, 32, 32), dtype=np.uint8)
    network = build_network(spec)
    network.standardise_by(images)
    context = torch.tensor(images)
    for _ in range(3):
        network(context)  # in train mode: moves the running statistics
    network.eval()
    tensors = network_tensors(network)
    assert {name.rpartition(".")[2] for name in tensors} >= {"running_mean", "running_var", "num_batches_tracked"}
    write_policy(Policy(spec, 16, 16, MADE, tensors), str(tmp_path / "p.safetensors"), force=False)
    loaded = read_policy(str(tmp_path / "p.safetensors")).policy
    assert loaded.network == spec
    again = network_from(loaded.network, loaded.tensors, "p").eval()
    with torch.no_grad():
        assert torch.equal(network(context), again(context))
        fresh = build_network(spec).eval()
        assert not torch.equal(network(context), fresh(context))


@pytest.mark.parametrize("model", LAYERS)
def test_commands(run: Callable[..., Any], tmp_path: Path, model: str) -> None:
    """Bright or dark images: one epoch's policy is a valid one and is scored; the same bytes again."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 60)
    pixels = (rng.integers(0, 100, (60, 1, 12, 12)) + 150 * label[:, None, None, None]).astype(np.uint8)
    action = rng.integers(0, 2, 60)
    log = arrays_of(pixels, action, [0.5] * 60, -1.0 * (action == label), label=label, is_test=np.arange(60) >= 40)
    write_arrays(tmp_path / "l.parquet", log, 2)
    train = (
        "train",
        "l.parquet",
        "--reg",
        "wce",
        "--model",
        model,
        "--width",
        2,
        "--epochs",
        1,
        "--batch-size",
        10,
        "--threads",
        1,
    )
    for name in ("p", "q"):
        ran = run(*train, "-o", f"{name}.safetensors")
        assert ran.code == 0, ran.stderr
    assert (tmp_path / "p.safetensors").read_bytes() == (tmp_path / "q.safetensors").read_bytes()
    metrics = ("--metrics", "argmax-accuracy,sampled-accuracy")
    ran = run("evaluate", "p.safetensors", "--logs", "l.parquet", *metrics, "-o", "s.parquet")
    assert ran.code == 0, ran.stderr
    scores, _ = read_scores([str(tmp_path / "s.parquet")])
    assert set(scores["metric"].to_pylist()) == {"argmax-accuracy", "sampled-accuracy"}
    assert all(0 <= value <= 1 for value in scores["value"].to_pylist())


def test_train_refuses_a_flat_log(run: Callable[..., Any], tmp_path: Path, write_log: Callable[..., Any]) -> None:
    write_log(tmp_path / "l.parquet")
    ran = run("train", "l.parquet", "--model", "resnet-v1", "--quiet", "-o", "p.safetensors")
    assert ran.code == 2
    assert ran.stderr.startswith("s2bl: resnet-v1 needs images as contexts (channels × height × width), found ")
    assert not (tmp_path / "p.safetensors").exists()
