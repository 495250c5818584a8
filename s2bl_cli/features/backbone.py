"""A torchvision network without its last layer, with weights that were checked before they are used.

torchvision is imported when a backbone is asked for, not before.
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

_CLASSES = 1000  # of ImageNet: how the last layer is recognised
_DIGEST_IN_NAME = re.compile(r"-([0-9a-f]{8,64})\.pth$")


def _torchvision_models() -> Any:
    return torchvision_part("models", "--features")


def load_backbone(name: str, weights: str | None, *, download: bool) -> tuple[nn.Module, Source]:
    """The network, ready to give features, and its weights as an input in a lineage: digest and base name."""
    models = _torchvision_models()
    known = models.list_models(module=models)
    if name not in known:
        close = [n for n in known if name[:4] in n][:8] or ["mobilenet_v2", "resnet50"]
        raise SettingError(
            f"--features {one_line(name, 40)!r} is no torchvision network; some that are: {', '.join(close)}"
        )
    path = Path(weights) if weights is not None else _cached_weights(models, name, download=download)
    digest = _checked_digest(path)
    network: nn.Module = models.get_model(name, weights=None)
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises nearly anything on files that are not weights
        raise InputFileError(f"{one_line(path)} does not hold weights of {name} ({one_line(error, 160)})") from error
    _drop_last_layer(network, name)
    return network.eval(), Source("weights", digest, one_line(path.name, 255))


def _cached_weights(models: Any, name: str, *, download: bool) -> Path:
    """The official default weights in torch's own cache, fetched into it on request."""
    url: str = models.get_model_weights(name).DEFAULT.url
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[1]
    if not path.is_file() and download:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(path))
        except Exception as error:  # URL, HTTP, socket and system errors
            raise RunError(
                f"the weights of {name} could not be fetched ({one_line(error, 120)}): give them with --weights FILE"
            ) from error
    if not path.is_file():
        raise InputFileError(
            f"the weights of {name} are not in torch's cache ({one_line(path)}): fetch them with --download, "
            f"or give them with --weights FILE"
        )
    return path


def _checked_digest(path: Path) -> str:
    """The file's sha256, which must begin with what its official name says."""
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
            f"{one_line(path)} is damaged or not what it says: its sha256 begins with {digest[:8]}, "
            f"its name says {named[1]}: get it again"
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
            f"--features {name}: no last layer of {_CLASSES} classes to take off; choose a classification network"
        )
    network.set_submodule(last[-1], nn.Identity())
