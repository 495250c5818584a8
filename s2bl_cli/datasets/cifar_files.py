"""CIFAR's two official layouts: binary records (`-batches-bin`, `-binary`) and pickles (`-batches-py`, `-python`).

Unpickling can run arbitrary code, and these files come from untrusted sources. The unpickler in this module accepts
only what the official files contain (dicts, lists, text, bytes, numbers and numpy arrays of bytes).
"""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.datasets.dataset_files import download, missing_dataset
from s2bl_cli.datasets.labelled import LabelledData, LabelledPart
from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.errors import InputFileError, one_line

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarLayout:
    """Folder and file names of one official layout."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]

    def is_in(self, root: Path) -> bool:
        return all((root / self.folder / name).is_file() for name in self.train + self.test)

    def __str__(self) -> str:
        return f"{self.folder}/ with {', '.join(self.train + self.test)}"


@dataclass(frozen=True)
class CifarSet:
    """The differences between CIFAR-10 and CIFAR-100."""

    title: str
    classes: int
    torchvision_class: str
    binary: CifarLayout
    label_bytes: int  # before the pixels of each record; the last byte is the label
    pickled: CifarLayout
    label_key: str


def load_cifar(settings: DatasetSettings, cifar: CifarSet) -> LabelledData:
    """Read the train and test split. The binary layout is preferred, because it needs no unpickling."""
    root = settings.folder()
    if not (cifar.binary.is_in(root) or cifar.pickled.is_in(root)) and settings.download:
        download(settings, cifar.torchvision_class, root)
    if cifar.binary.is_in(root):
        folder = root / cifar.binary.folder
        parts = [
            read_binary([folder / name for name in names], cifar.label_bytes, cifar.classes)
            for names in (cifar.binary.train, cifar.binary.test)
        ]
    elif cifar.pickled.is_in(root):
        folder = root / cifar.pickled.folder
        parts = [
            read_pickled([folder / name for name in names], cifar.label_key, cifar.classes)
            for names in (cifar.pickled.train, cifar.pickled.test)
        ]
    else:
        raise missing_dataset(cifar.title, root, f"{cifar.binary}; or {cifar.pickled}")
    return LabelledData(settings.short_name, cifar.classes, parts[0], parts[1])


def read_binary(paths: list[Path], label_bytes: int, classes: int) -> LabelledPart:
    """Read records of `label_bytes` label bytes, of which the last is used, and 3,072 pixels."""
    record = label_bytes + PIXELS
    parts = []
    for path in paths:
        raw = np.fromfile(path, np.uint8)
        if len(raw) == 0 or len(raw) % record:
            raise InputFileError(
                f"{one_line(path)} is not a CIFAR binary file: its size must be a multiple of {record} bytes, "
                f"found {len(raw)}: download it again"
            )
        records = raw.reshape(-1, record)
        parts.append(_part(records[:, label_bytes:], records[:, label_bytes - 1], classes, path))
    return _concatenate(parts)


def read_pickled(paths: list[Path], label_key: str, classes: int) -> LabelledPart:
    """Read pickled dicts with `data` (rows × 3,072 bytes) and a list of labels."""
    parts = []
    for path in paths:
        content = _unpickle(path)
        pixels, labels = content.get("data"), content.get(label_key)
        if not (
            isinstance(pixels, np.ndarray)
            and pixels.dtype == np.uint8
            and pixels.ndim == 2
            and pixels.shape[1] == PIXELS
        ):
            raise InputFileError(
                f"{one_line(path)}: 'data' must be an array of rows × {PIXELS} bytes: download the official file"
            )
        if not (isinstance(labels, list) and len(labels) == len(pixels) and all(isinstance(n, int) for n in labels)):
            raise InputFileError(
                f"{one_line(path)}: {label_key!r} must be a list of {len(pixels)} integers: download the official file"
            )
        parts.append(_part(pixels, np.clip(labels, -1, classes), classes, path))
    return _concatenate(parts)


def _part(pixels: npt.NDArray[np.uint8], labels: npt.NDArray[Any], classes: int, path: Path) -> LabelledPart:
    label = labels.astype(np.int32)
    if len(label) == 0 or label.min() < 0 or label.max() >= classes:
        raise InputFileError(
            f"{one_line(path)}: labels must be 0 to {classes - 1}, found other values: download the official file"
        )
    return LabelledPart(pixels.reshape(-1, 3, 32, 32), label)


def _concatenate(parts: list[LabelledPart]) -> LabelledPart:
    return LabelledPart(
        np.concatenate([part.context for part in parts]), np.concatenate([part.label for part in parts])
    )


def _unpickle(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = _CifarUnpickler(file, encoding="bytes").load()
    except _ForeignNameError as error:
        raise InputFileError(
            f"{one_line(path)}: a CIFAR pickle must contain only arrays, found {error}: do not trust this file"
        ) from error
    except Exception as error:  # a damaged pickle can raise almost any exception
        raise InputFileError(
            f"{one_line(path)} is a damaged CIFAR pickle ({one_line(error, 80)}): download it again"
        ) from error
    if not isinstance(content, dict):
        raise InputFileError(
            f"{one_line(path)} is not a CIFAR file: it must contain a dict, found {type(content).__name__}: "
            f"download the official file"
        )
    return {
        key.decode(errors="replace") if isinstance(key, bytes) else str(key): value for key, value in content.items()
    }


class _ForeignNameError(Exception):
    """The pickle refers to a name that no official file uses."""


class _CifarUnpickler(pickle.Unpickler):
    """Accept only the names that numpy arrays of bytes need."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return np.empty(0).__reduce__()[0]
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) == ("_codecs", "encode"):  # Python 3 writes bytes this way in protocols 0 to 2
            return _latin1_bytes
        raise _ForeignNameError(f"{one_line(module, 40)}.{one_line(name, 40)}")


def _latin1_bytes(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", b"latin1"):
        raise ValueError(f"bytes must be encoded as latin1, found {encoding!r}")
    return text.encode("latin1")
