"""Features of a pre-trained network, with a tiny network instead of torchvision's."""

import hashlib
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import platformdirs
import pytest
import torch
from learning_fixtures import CPU, say_nothing
from torch import nn

from s2bl_cli.contract.lineage import Source, command_lines
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.datasets import sample
from s2bl_cli.datasets.labelled import LabelledData, LabelledPart
from s2bl_cli.errors import InputFileError, RunError, SettingError
from s2bl_cli.features import backbone
from s2bl_cli.features.backbone import load_backbone
from s2bl_cli.features.extraction import prepared, with_features
from s2bl_cli.features.settings import FeatureSettings

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


class TinyNet(nn.Module):
    """The mean of each channel, five features of it, and a layer of 1,000 classes that is to be dropped."""

    images_seen = 0

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 5)
        self.dropout = nn.Dropout(0.5)  # does nothing once the network is in eval mode
        self.classifier = nn.Sequential(nn.ReLU(), nn.Linear(5, 1000))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        TinyNet.images_seen += len(images)
        features: torch.Tensor = self.classifier(self.dropout(self.inner(images.mean(dim=(2, 3)))))
        return features


class Segmenter(nn.Module):
    """Has no layer of 1,000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(3, 21)


class FakeModels:
    """The parts of `torchvision.models` that are used."""

    networks: ClassVar = {"tinynet": TinyNet, "tinyseg": Segmenter}
    url = "https://example.org/models/tinynet.pth"

    def list_models(self, module: Any) -> list[str]:
        assert module is self
        return list(self.networks)

    def get_model(self, name: str, weights: None) -> nn.Module:
        return self.networks[name]()

    def get_model_weights(self, name: str) -> Any:
        return SimpleNamespace(DEFAULT=SimpleNamespace(url=self.url))


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeModels:
    models = FakeModels()
    monkeypatch.setattr(backbone, "_torchvision_models", lambda: models)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    TinyNet.images_seen = 0
    return models


def write_weights(path: Path, seed: int = 0) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    weights = TinyNet().state_dict()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(weights, path)
    return weights


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    write_weights(tmp_path / "w.pth")
    return tmp_path / "w.pth"


def images(channels: int = 1, train: int = 70, test: int = 5, seed: int = 0) -> LabelledData:
    rng = np.random.default_rng(seed)
    train_part, test_part = (
        LabelledPart(
            rng.integers(0, 256, (rows, channels, 8, 8), dtype=np.uint8), rng.integers(0, 10, rows, dtype=np.int32)
        )
        for rows in (train, test)
    )
    return LabelledData("tiny", 10, train_part, test_part, ("a note",))


def extract(data: LabelledData, cache: Path, weights: Path, **settings: Any) -> LabelledData:
    chosen = FeatureSettings(**{"features": "tinynet", "weights": str(weights), "image_size": 8, **settings})
    featured, source = with_features(data, chosen, cache, CPU, download=False, advance=say_nothing)
    assert source.sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()
    return featured


# --- input and output of the network ---


def test_prepared_by_hand() -> None:
    """Already of the right size: (x/255 − mean)/std of each channel."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
    expected = (pixels / 255 - MEAN[:, None, None]) / STD[:, None, None]
    assert np.allclose(prepared(torch.tensor(pixels), 8).numpy(), expected, atol=1e-5)


def test_prepared_resizes() -> None:
    """Bilinear with antialiasing: halving a constant image changes nothing; a 2×2 image to 4×4 by hand, with the
    weights 3/4 and 1/4 between pixel centres."""
    constant = torch.full((1, 3, 16, 16), 51, dtype=torch.uint8)
    assert np.allclose(prepared(constant, 8)[0, :, 0, 0], (0.2 - MEAN) / STD, atol=1e-5)
    assert prepared(constant, 8).shape == (1, 3, 8, 8)
    left_dark = torch.tensor([[0, 255], [0, 255]], dtype=torch.uint8).expand(1, 3, 2, 2)
    row = prepared(left_dark, 4)[0, :, 1].numpy() * STD[:, None] + MEAN[:, None]
    assert np.allclose(row, [[0, 0.25, 0.75, 1]] * 3, atol=1e-5)
    # Without antialiasing, stripes of one pixel would alias to all dark or all light.
    stripes = torch.tensor([0, 0, 0, 255] * 4, dtype=torch.uint8).expand(1, 3, 16, 16)
    middle = prepared(stripes, 4)[0, 0, 0, 1:3].numpy() * STD[0] + MEAN[0]
    assert np.allclose(middle, 0.25, atol=0.05)


def test_one_channel_is_three_times_the_same() -> None:
    grey = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    assert torch.equal(prepared(grey, 12), prepared(grey.repeat(1, 3, 1, 1), 12))


@pytest.mark.parametrize("channels", [1, 3])
def test_features_by_hand(tmp_path: Path, weights: Path, channels: int) -> None:
    """ReLU(W·x̄ + b) of the standardised channel means: no last layer, no dropout."""
    data, state = images(channels), torch.load(weights, weights_only=True)
    made = extract(data, tmp_path / "c", weights)
    for part, given in ((made.train, data.train), (made.test, data.test)):
        means = np.broadcast_to(given.context, (len(given.label), 3, 8, 8)).mean(axis=(2, 3)) / 255
        inner = (means - MEAN) / STD @ state["inner.weight"].numpy().T + state["inner.bias"].numpy()
        assert np.allclose(part.context, np.maximum(inner, 0), atol=1e-4)
        assert part.context.dtype == np.float32
        assert np.array_equal(part.label, given.label)
    assert made.context.shape == (5,)
    assert made.notes == ("a note", "images replaced by 5 features of tinynet at 8×8 pixels")


def test_needs_images(tmp_path: Path, weights: Path) -> None:
    for shape in ((12,), (2, 8, 8)):
        part = LabelledPart(np.zeros((4, *shape), np.float32), np.zeros(4, np.int32))
        with pytest.raises(SettingError, match=r"^--features needs images with 1 or 3 channels, but the contexts of x"):
            extract(LabelledData("x", 2, part, part), tmp_path, weights)


# --- the cache ---


def test_cache_hit_does_not_recompute(tmp_path: Path, weights: Path) -> None:
    first = extract(images(), tmp_path / "c", weights)
    assert TinyNet.images_seen == 75
    again = extract(images(), tmp_path / "c", weights)
    assert TinyNet.images_seen == 75
    assert np.array_equal(first.train.context, again.train.context)
    assert np.array_equal(first.test.context, again.test.context)
    assert len(list((tmp_path / "c/features").iterdir())) == 2


def test_cache_misses(tmp_path: Path, weights: Path) -> None:
    """Other weights, another size, other content: of one part only, or of both."""
    extract(images(), tmp_path / "c", weights)
    write_weights(tmp_path / "other.pth", seed=1)
    for seen, made in (
        (75, lambda: extract(images(), tmp_path / "c", tmp_path / "other.pth")),
        (75, lambda: extract(images(), tmp_path / "c", weights, image_size=9)),
        (75, lambda: extract(images(seed=1), tmp_path / "c", weights)),
    ):
        TinyNet.images_seen = 0
        made()
        assert TinyNet.images_seen == seen
    TinyNet.images_seen = 0
    changed = images()
    changed.test.context[0, 0, 0, 0] ^= 1
    extract(changed, tmp_path / "c", weights)
    assert TinyNet.images_seen == 5


def test_damaged_cache_is_reported(tmp_path: Path, weights: Path) -> None:
    extract(images(), tmp_path / "c", weights)
    for file in (tmp_path / "c/features").iterdir():
        file.write_bytes(b"cut off")
    with pytest.raises(
        InputFileError, match=r"\.safetensors, a cache of features, is damaged \(.*\): delete it and run again$"
    ):
        extract(images(), tmp_path / "c", weights)


# --- the weights ---


def test_digest_and_eval_mode(weights: Path) -> None:
    network, source = load_backbone("tinynet", str(weights), download=False)
    assert source == Source("weights", hashlib.sha256(weights.read_bytes()).hexdigest(), "w.pth")
    assert not network.training


def test_digest_in_the_name_of_the_weights_is_checked(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.pth")
    digest = hashlib.sha256((tmp_path / "w.pth").read_bytes()).hexdigest()
    right = (tmp_path / "w.pth").rename(tmp_path / f"tinynet-{digest[:8]}.pth")
    assert load_backbone("tinynet", str(right), download=False)[1].sha256 == digest
    wrong = right.rename(tmp_path / "tinynet-01234567.pth")
    with pytest.raises(InputFileError) as caught:
        load_backbone("tinynet", str(wrong), download=False)
    assert str(caught.value) == (
        f"{wrong} is damaged or misnamed: its sha256 must start with 01234567, as in its name, "
        f"found {digest[:8]}: download it again"
    )


class Attack:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (open, (str(self.marker), "w"))


@pytest.mark.parametrize("how", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content, 2))])
def test_weights_that_are_code_are_rejected_and_do_not_run(tmp_path: Path, how: Callable[..., Any]) -> None:
    how({"inner.weight": Attack(tmp_path / "marker")}, tmp_path / "evil.pth")
    with pytest.raises(InputFileError, match=r"evil\.pth does not contain weights of tinynet \(") as caught:
        load_backbone("tinynet", str(tmp_path / "evil.pth"), download=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "marker").exists()


def test_files_that_are_not_weights(tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("no weights")
    torch.save({"inner.weight": torch.zeros(2)}, tmp_path / "other.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    for name in ("text", "other", "list"):
        with pytest.raises(InputFileError, match=rf"{name}\.pth does not contain weights of tinynet"):
            load_backbone("tinynet", str(tmp_path / f"{name}.pth"), download=False)
    with pytest.raises(InputFileError, match=r"no\.pth cannot be read \(No such file or directory\): check --weights$"):
        load_backbone("tinynet", str(tmp_path / "no.pth"), download=False)


def test_unknown_network_and_one_without_classes(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        load_backbone("tinyent", None, download=False)
    assert str(caught.value) == ("--features must be a torchvision network such as tinynet, tinyseg, found 'tinyent'")
    torch.save(Segmenter().state_dict(), tmp_path / "seg.pth")
    with pytest.raises(SettingError, match=r"^--features tinyseg: the network must have a last layer of 1000 classes"):
        load_backbone("tinyseg", str(tmp_path / "seg.pth"), download=False)


def test_official_weights_come_from_torchs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hub/checkpoints/tinynet.pth"
    with pytest.raises(InputFileError) as caught:
        load_backbone("tinynet", None, download=False)
    assert str(caught.value) == (
        f"the weights of tinynet are not in torch's cache ({path}): download them with --download, or give them with "
        "--weights FILE"
    )

    def offline(url: str, path: str) -> None:
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    with pytest.raises(RunError) as failed:
        load_backbone("tinynet", None, download=True)
    assert str(failed.value) == (
        "the weights of tinynet could not be downloaded (no network): give them with --weights FILE"
    )
    downloaded = []

    def online(url: str, path: str) -> None:
        downloaded.append(url)
        write_weights(Path(path))

    monkeypatch.setattr(torch.hub, "download_url_to_file", online)
    load_backbone("tinynet", None, download=True)
    load_backbone("tinynet", None, download=True)
    load_backbone("tinynet", None, download=False)
    assert downloaded == [FakeModels.url]


# --- through the command line ---


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "load", lambda settings: images(train=90, test=10))


def test_log_of_features(run: Callable[..., Any], tmp_path: Path, weights: Path, small_sample: None) -> None:
    flags = ("--features", "tinynet", "--weights", weights, "--epochs", 1, "--json", "--force", "-o", "x.parquet")
    ran = run("make-logs", *flags)
    assert ran.code == 0, ran.stderr
    assert json.loads(ran.stdout)["train"] == 90
    assert "images replaced by 5 features of tinynet at 96×96 pixels" in ran.stderr
    with open_logs([str(tmp_path / "x.parquet")]) as log:
        assert (log.spec.context.dtype, log.spec.context.shape) == ("float32", (5,))
        (step,) = log.lineages
    assert step is not None
    # The size by default depends on the device: the lineage must tell it.
    assert (step.settings["features"], step.settings["image-size"]) == ("tinynet", 96)
    assert step.settings["logging-model"] == "linear"
    assert "weights" not in step.settings
    # Other weights make other features: the lineage has their digest, and no folder.
    assert step.inputs[:1] == (Source("weights", hashlib.sha256(weights.read_bytes()).hexdigest(), "w.pth"),)
    (line,) = command_lines(step)
    assert line.endswith("--weights w.pth -o out.parquet")
    first = (tmp_path / "x.parquet").read_bytes()
    assert run("make-logs", *flags).code == 0
    assert TinyNet.images_seen == 100  # the second time from the cache
    assert (tmp_path / "x.parquet").read_bytes() == first


def test_size_by_device() -> None:
    assert FeatureSettings(features="resnet50").resolved("cpu").image_size == 96
    assert FeatureSettings(features="resnet50").resolved("cuda").image_size == 224
    assert FeatureSettings(features="resnet50", image_size=64).resolved("cuda").image_size == 64
    assert FeatureSettings().resolved("cpu") == FeatureSettings()


@pytest.mark.parametrize("flags", [("--weights", "w.pth"), ("--image-size", 64)])
def test_flags_that_need_features(run: Callable[..., Any], flags: tuple[object, ...]) -> None:
    ran = run("make-logs", *flags, "-o", "x.parquet")
    assert ran.code == 2
    assert ran.stderr == (
        "s2bl: --weights and --image-size need --features: name the network, such as --features mobilenet_v2\n"
    )


def test_broken_torchvision_affects_no_other_command(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the true import
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sample, "load", lambda settings: images(train=90, test=10))
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    ran = run("make-logs", "--features", "resnet18", "--quiet", "-o", "x.parquet")
    assert ran.code == 2
    assert ran.stderr == (
        "s2bl: --features needs torchvision, which cannot be imported (import of torchvision.models halted; None in "
        "sys.modules): install the build that matches your version of torch\n"
    )
    assert run("make-logs", "--epochs", 1, "-o", "x.parquet").code == 0
    assert run("mask", "x.parquet", "--rho", 0.5, "-o", "m.parquet").code == 0
    assert run("train", "m.parquet", "--method", "wce-s2bl", "--epochs", 1, "-o", "p.safetensors").code == 0
    assert run("evaluate", "p.safetensors", "--logs", "x.parquet", "-o", "s.parquet").code == 0
