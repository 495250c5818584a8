"""A torchvision network without its last layer. The digest of its weights is checked before they are loaded.

torchvision is imported only when a backbone is loaded.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from s2bl_cli.contract.lineage import Source
from s2bl_cli.datasets.torchvision_parts import torchvision_part
from s2bl_cli.errors import InputFileError, RunError, SettingError, one_line

_CLASSES = 1000  # of ImageNet; a linear layer with this many outputs is the last one
_DIGEST_IN_NAME = re.compile(r"-([0-9a-f]{8,64})\.pth$")


def _torchvision_models() -> Any:
    return torchvision_part("models", "--features")


def load_backbone(name: str, weights: str | None, *, download: bool) -> tuple[nn.Module, Source]:
    """Return the network in evaluation mode without its last layer, and its weights as an input of the lineage."""
    models = _torchvision_models()
    known = models.list_models(module=models)
    if name not in known:
        similar = [n for n in known if name[:4] in n][:8] or ["mobilenet_v2", "resnet50"]
        raise SettingError(
            f"--features must be a torchvision network such as {', '.join(similar)}, found {one_line(name, 40)!r}"
        )
    path = Path(weights) if weights is not None else _cached_weights(models, name, download=download)
    digest = _checked_digest(path)
    network: nn.Module = models.get_model(name, weights=None)
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises almost any exception on files that are not weights
        raise InputFileError(
            f"{one_line(path)} does not contain weights of {name} ({one_line(error, 160)}): "
            f"check --weights and --features"
        ) from error
    _drop_last_layer(network, name)
    return network.eval(), Source("weights", digest, one_line(path.name, 255))


def _cached_weights(models: Any, name: str, *, download: bool) -> Path:
    """Return the official default weights in torch's cache, downloaded if requested."""
    url: str = models.get_model_weights(name).DEFAULT.url
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[1]
    if not path.is_file() and download:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(path))
        except Exception as error:  # URL, HTTP, socket and system errors
            raise RunError(
                f"the weights of {name} could not be downloaded ({one_line(error, 120)}): give them with --weights FILE"
            ) from error
    if not path.is_file():
        raise InputFileError(
            f"the weights of {name} are not in torch's cache ({one_line(path)}): download them with --download, "
            f"or give them with --weights FILE"
        )
    return path


def _checked_digest(path: Path) -> str:
    """Return the sha256 of the file, which must start with the digest in its name, if the name has one."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputFileError(
            f"{one_line(path)} cannot be read ({one_line(error.strerror or error)}): check --weights"
        ) from error
    named = _DIGEST_IN_NAME.search(path.name)
    if named is not None and not digest.startswith(named[1]):
        raise InputFileError(
            f"{one_line(path)} is damaged or misnamed: its sha256 must start with {named[1]}, as in its name, "
            f"found {digest[:8]}: download it again"
        )
    return digest


def _drop_last_layer(network: nn.Module, name: str) -> None:
    last = [
        key
        for key, module in network.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == _CLASSES
    ]
    if not last:
        raise SettingError(
            f"--features {name}: the network must have a last layer of {_CLASSES} classes, found none: "
            f"choose a classification network"
        )
    network.set_submodule(last[-1], nn.Identity())
