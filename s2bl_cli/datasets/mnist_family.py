"""The layout that MNIST, FashionMNIST and EMNIST share: four IDX files of 28×28 images and labels."""

from collections.abc import Sequence

import numpy as np

from s2bl_cli.datasets.dataset_files import locate
from s2bl_cli.datasets.idx import read_idx
from s2bl_cli.datasets.labelled import LabelledData, LabelledPart
from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.errors import InputFileError, one_line

_SHAPE = (28, 28)


def load_idx_family(
    settings: DatasetSettings, title: str, folder: str, prefixes: tuple[str, str], classes: int, first_label: int = 0
) -> LabelledData:
    """Read the train and test split from `<prefix>-images-idx3-ubyte` and `<prefix>-labels-idx1-ubyte`."""
    names = [f"{prefix}-{kind}" for prefix in prefixes for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    paths = locate(settings, title, (f"{folder}/raw", "raw", folder, ".", "gzip"), names, folder)
    parts = []
    for images_name, labels_name in zip(names[::2], names[1::2], strict=True):
        images, labels = read_idx(paths[images_name], 3), read_idx(paths[labels_name], 1)
        _check_shapes(images.shape, labels.shape, paths[images_name], paths[labels_name])
        label = labels.astype(np.int32) - first_label
        if label.min() < 0 or label.max() >= classes:
            raise InputFileError(
                f"{one_line(paths[labels_name])}: labels must be {first_label} to {first_label + classes - 1} "
                f"in {title}, found {label.min() + first_label} to {label.max() + first_label}: "
                f"download the official file"
            )
        parts.append(LabelledPart(images[:, None], label))  # (rows, 1, 28, 28)
    return LabelledData(settings.short_name, classes, parts[0], parts[1])


def _check_shapes(images: Sequence[int], labels: Sequence[int], images_path: object, labels_path: object) -> None:
    if images[0] != labels[0] or images[0] == 0:
        raise InputFileError(
            f"{one_line(images_path)} has {images[0]} images, but {one_line(labels_path)} has "
            f"{labels[0]} labels: download both again"
        )
    if tuple(images[1:]) != _SHAPE:
        raise InputFileError(
            f"{one_line(images_path)}: images must be 28 × 28, found {' × '.join(map(str, images[1:]))}: "
            f"download the official file"
        )
