"""Networks: the standardisation of contexts, and the way to a policy file and back."""

import resource
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from learning_fixtures import CPU, MADE

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.policies import NetworkSpec, Policy, read_policy, write_policy
from s2bl_cli.errors import ContractError, RunError, SettingError
from s2bl_cli.policies.contexts import ContextMoments, standardisation
from s2bl_cli.policies.network import build_network, network_from, network_tensors
from s2bl_cli.policies.run_settings import RunSettings
from s2bl_cli.policies.settings import parse_hidden

IMAGES = ContextSpec("uint8", (1, 2, 3))
FEATURES = ContextSpec("float32", (6,))
SPECS = [
    NetworkSpec("linear", IMAGES, 4),
    NetworkSpec("linear", FEATURES, 4),
    NetworkSpec("mlp", IMAGES, 4, (5, 3)),
    NetworkSpec("mlp", FEATURES, 4, (5, 3)),
]


def _contexts(spec: ContextSpec, rows: int = 50, seed: int = 0) -> npt.NDArray[Any]:
    values = np.random.default_rng(seed).integers(0, 256, (rows, *spec.shape))
    return values.astype(spec.dtype)


@pytest.mark.parametrize("spec", [IMAGES, FEATURES], ids=str)
def test_standardisation_of_parts_is_that_of_the_whole(spec: ContextSpec) -> None:
    """A streamed log and one in memory make the same policy."""
    context = _contexts(spec)
    parts = [context[:7], context[7:7], context[7:]]
    moments = ContextMoments()
    for part in parts:
        moments.add(part)
    for one, other in zip(standardisation(context), moments.standardisation, strict=True):
        assert (one.shape, one.dtype) == ((6,), np.float32)
        assert one == pytest.approx(other, rel=1e-6)


def test_tiny_contexts_have_a_finite_scale() -> None:
    """1/1e-40 is beyond float32."""
    _, scale = standardisation(np.array([[0], [1e-40]], np.float32))
    assert np.isfinite(scale).all()


def test_unit_of_a_feature_does_not_matter() -> None:
    """Areas beside shares: the share is divided by its own deviation, however much larger that of the area is."""
    rng = np.random.default_rng(0)
    context = rng.standard_normal((500, 2)).astype(np.float32)
    shift, scale = standardisation(context)
    other_shift, other_scale = standardisation(context * np.float32([1e-3, 1e4]))
    assert (context - shift) * scale == pytest.approx(
        (context * np.float32([1e-3, 1e4]) - other_shift) * other_scale, abs=1e-5
    )


@pytest.mark.parametrize("spec", [IMAGES, FEATURES], ids=str)
def test_network_sees_standardised_contexts(spec: ContextSpec) -> None:
    """A constant feature becomes 0. A rare pixel is divided by a tenth of the common deviation, not by its own."""
    context = _contexts(spec)
    flat = context.reshape(len(context), -1)
    flat[:, 2] = 9
    flat[:, 4] = 3
    flat[0, 4] = 4
    network = build_network(NetworkSpec("linear", spec, 4))
    network.standardise_by(context)
    seen: list[torch.Tensor] = []
    network.body.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    network(torch.from_numpy(context))
    std = flat.std(axis=0, dtype=np.float64)
    divisor = np.maximum(std, 0.1 * np.sqrt((std**2).mean())) if len(spec.shape) > 1 else np.where(std > 0, std, 1)
    expected = (flat - flat.mean(axis=0, dtype=np.float64)) / divisor
    assert seen[0].shape == context.shape
    assert seen[0].flatten(1).numpy() == pytest.approx(expected, abs=1e-4)
    assert (seen[0].flatten(1)[:, 2] == 0).all()


def test_feature_that_is_almost_always_0_does_not_dominate() -> None:
    """One row in 10,000 has it: it is at 30 there, not at 100."""
    context = np.zeros((10_000, 1), np.float32)
    context[0] = 5
    shift, scale = standardisation(context)
    assert (5 - shift) * scale == pytest.approx([30], rel=1e-3)


def test_contexts_that_are_all_alike_pass_with_no_scale() -> None:
    network = build_network(NetworkSpec("linear", FEATURES, 4))
    network.standardise_by(np.full((5, 6), 3.5, np.float32))
    assert network.scale.tolist() == [1] * 6
    assert network.shift.tolist() == [3.5] * 6


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.model}-{spec.context.dtype}")
def test_network_comes_back_from_its_file(spec: NetworkSpec, tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = build_network(spec)
    network.standardise_by(_contexts(spec.context))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)  # a fresh linear one gives 0 for all
    write_policy(Policy(spec, 10, 5, MADE, network_tensors(network)), str(tmp_path / "p.safetensors"), force=False)
    policy = read_policy(str(tmp_path / "p.safetensors")).policy
    again = network_from(policy.network, policy.tensors, "p.safetensors")
    context = torch.from_numpy(_contexts(spec.context, seed=7))
    assert policy.network == spec
    assert torch.equal(again(context), network(context))
    assert not torch.equal(network(context)[0], network(context)[1])
    assert {tensor.device for tensor in again.state_dict().values()} == {CPU}


def test_fresh_linear_policy_is_uniform_and_an_mlp_depends_on_the_seed() -> None:
    context = torch.from_numpy(_contexts(FEATURES))
    assert not build_network(NetworkSpec("linear", FEATURES, 4))(context).any()
    starts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        starts.append(build_network(NetworkSpec("mlp", FEATURES, 4, (5,)))(context))
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


def test_every_wrong_tensor_is_reported_at_once() -> None:
    spec = NetworkSpec("linear", FEATURES, 4)
    tensors = network_tensors(build_network(spec))
    del tensors["shift"]
    tensors["body.1.weight"] = np.zeros((4, 5), np.float32)
    tensors["body.1.bias"] = np.zeros(4, np.float64)
    tensors["extra\n"] = np.zeros(1, np.float32)
    with pytest.raises(ContractError) as raised:
        network_from(spec, tensors, "p.safetensors")
    assert str(raised.value) == (
        "p.safetensors: no tensor shift; a tensor extra too many; "
        "body.1.weight must be float32 of shape (4, 6), found float32 (4, 5); "
        "body.1.bias must be float32 of shape (4,), found float64 (4,); train the policy again"
    )


def test_model_of_a_later_version_is_reported() -> None:
    with pytest.raises(ContractError, match=r"^p: its model is 'transformer', but this s2bl knows linear, mlp"):
        network_from(NetworkSpec("transformer", FEATURES, 4), {}, "p")


def test_network_beyond_all_memory_is_refused() -> None:
    with pytest.raises(RunError) as raised:
        build_network(NetworkSpec("mlp", FEATURES, 4, (65536, 65536)))
    assert str(raised.value) == "a mlp of 4,295,753,732 parameters is more than 2³¹; use a smaller one"


def test_file_is_not_given_the_memory_that_it_claims_to_need() -> None:
    """1.6 GB on the word of a file without tensors."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ContractError, match=r"^p: no tensor shift; .*; train the policy again$"):
        network_from(NetworkSpec("mlp", FEATURES, 4, (20_000, 20_000)), {}, "p")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


@pytest.mark.parametrize(
    ("text", "widths"), [("100", (100,)), ("256,64", (256, 64)), (" 8 , 4 ", (8, 4)), ("65536", (65536,))]
)
def test_hidden_widths_are_read(text: str, widths: tuple[int, ...]) -> None:
    assert parse_hidden("mlp", text) == widths
    assert parse_hidden("linear", text) == ()


@pytest.mark.parametrize("text", ["", "100,", "0", "-3", "1.5", "ten", "65537", "1e3", ",".join(["2"] * 17), "²"])
def test_hidden_text_that_is_no_widths_is_refused(text: str) -> None:
    with pytest.raises(SettingError) as raised:
        parse_hidden("mlp", text)
    assert str(raised.value) == (
        f"--hidden must be 1 to 16 layer widths in [1, 65536], such as 100 or 256,64, found {text!r}"
    )


def test_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RunError, match=r"^--device cuda: this machine has none that torch can use; try --device auto$"):
        RunSettings(device="cuda", threads=1).start()
    assert RunSettings(device="cpu", threads=1).start() == CPU
    assert torch.get_num_threads() == 1
