"""Compute the features of all images in batches, and cache them under the digest of everything they depend on."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from torch import Tensor, nn

from s2bl_cli.contract.atomic import atomic_output
from s2bl_cli.contract.lineage import Source
from s2bl_cli.datasets.labelled import LabelledData, LabelledPart
from s2bl_cli.errors import InputFileError, SettingError, one_line
from s2bl_cli.features.backbone import load_backbone
from s2bl_cli.features.settings import FeatureSettings

_MEAN = (0.485, 0.456, 0.406)  # of ImageNet, on which all torchvision classifiers are trained
_STD = (0.229, 0.224, 0.225)
_BATCH_SIZE = 64

Floats = npt.NDArray[np.float32]
Advance = Callable[[int, str], None]


def with_features(
    data: LabelledData,
    settings: FeatureSettings,
    cache: Path,
    device: torch.device,
    *,
    download: bool,
    advance: Advance,
) -> tuple[LabelledData, Source]:
    """Return the dataset with features as contexts, and the weights that they were computed with."""
    settings = settings.resolved(device.type)
    if settings.features is None or settings.image_size is None:
        raise SettingError("features need a network: name one, such as --features mobilenet_v2")
    if len(data.context.shape) != 3 or data.context.shape[0] not in (1, 3):
        raise SettingError(
            f"--features needs images with 1 or 3 channels, but the contexts of {data.name} are {data.context}"
        )
    network, weights = load_backbone(settings.features, settings.weights, download=download)
    network.to(device)
    size = settings.image_size
    features, done = [], 0
    for part in (data.train, data.test):
        key = _key(part.context, settings.features, weights.sha256, size)
        path = cache / "features" / f"{key}.safetensors"
        if path.is_file():
            features.append(_read_cache(path))
        else:
            features.append(_compute(network, part.context, size, device, partial(_advance_from, advance, done)))
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_output(str(path), force=True) as file:
                file.write(save({"features": features[-1]}))
        done += len(part.label)
        advance(done, "")
    featured = replace(
        data,
        train=LabelledPart(features[0], data.train.label),
        test=LabelledPart(features[1], data.test.label),
        notes=(
            *data.notes,
            f"images replaced by {features[0].shape[1]:,} features of {settings.features} at {size}×{size} pixels",
        ),
    )
    return featured, weights


def _read_cache(path: Path) -> Floats:
    try:
        features: Floats = load_file(path)["features"]
    except (SafetensorError, OSError, KeyError) as error:
        raise InputFileError(
            f"{one_line(path)}, a cache of features, is damaged ({one_line(error, 80)}): delete it and run again"
        ) from error
    return features


def _advance_from(advance: Advance, before: int, done: int) -> None:
    advance(before + done, "")


@torch.no_grad()
def _compute(
    network: nn.Module, images: npt.NDArray[np.generic], size: int, device: torch.device, advance: Callable[[int], None]
) -> Floats:
    parts = []
    for start in range(0, len(images), _BATCH_SIZE):
        batch = torch.tensor(images[start : start + _BATCH_SIZE], device=device)
        parts.append(network(prepared(batch, size)).flatten(1).float().cpu().numpy())
        advance(start + len(batch))
    return np.concatenate(parts)


def prepared(images: Tensor, size: int) -> Tensor:
    """Resize and normalise bytes (rows, 1 or 3, height, width) as in the training of the network."""
    pixels = images.float() / 255
    pixels = pixels.expand(-1, 3, -1, -1)
    pixels = nn.functional.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
    mean, std = (pixels.new_tensor(values).view(1, 3, 1, 1) for values in (_MEAN, _STD))
    return (pixels - mean) / std


def _key(images: npt.NDArray[np.generic], network: str, weights_digest: str, size: int) -> str:
    """Digest of everything that the features depend on."""
    digest = hashlib.sha256(f"1 {network} {weights_digest} {size} {images.shape} {images.dtype}".encode())
    digest.update(np.ascontiguousarray(images).data)
    return digest.hexdigest()
