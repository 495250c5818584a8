"""The real files, where there are some: S2BL_DATA names a folder as --data-dir takes it."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from s2bl_cli.datasets import cifar10, fmnist, mnist
from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.datasets.settings import DatasetSettings

pytestmark = pytest.mark.real_data

ROOT = os.environ.get("S2BL_DATA", "")


@pytest.fixture
def real(request: pytest.FixtureRequest) -> Callable[[str], LabelledData]:
    """Loads a data set, or skips the test where its files are not."""

    def load(dataset: str) -> LabelledData:
        folders = {"fmnist": ["FashionMNIST/raw"], "mnist": ["MNIST/raw"]}.get(
            dataset, ["cifar-10-batches-bin", "cifar-10-batches-py"]
        )
        if not ROOT:
            pytest.skip("S2BL_DATA names no folder with the real data sets")
        if not any((Path(ROOT) / folder).is_dir() for folder in folders):
            pytest.skip(f"S2BL_DATA={ROOT} has no {' or '.join(folders)}")
        loader = {"fmnist": fmnist.load, "mnist": mnist.load, "cifar10": cifar10.load}[dataset]
        return loader(DatasetSettings(dataset=dataset, data_dir=ROOT))

    return load


# MNIST's digits are not equally frequent: as its authors' files have them.
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.mark.parametrize(
    ("dataset", "shape", "train", "test"),
    [
        ("fmnist", (1, 28, 28), [6000] * 10, [1000] * 10),
        ("mnist", (1, 28, 28), MNIST_TRAIN, MNIST_TEST),
        ("cifar10", (3, 32, 32), [5000] * 10, [1000] * 10),
    ],
)
def test_official_shapes_and_label_counts(
    real: Callable[[str], LabelledData], dataset: str, shape: tuple[int, ...], train: list[int], test: list[int]
) -> None:
    data = real(dataset)
    assert data.classes == 10
    assert (data.context.dtype, data.context.shape) == ("uint8", shape)
    for part, counts in ((data.train, train), (data.test, test)):
        assert part.context.shape == (sum(counts), *shape)
        assert np.bincount(part.label).tolist() == counts


@pytest.mark.parametrize(("dataset", "name"), [("fmnist", "FashionMNIST"), ("mnist", "MNIST")])
def test_equal_to_torchvisions_loader(real: Callable[[str], LabelledData], dataset: str, name: str) -> None:
    data = real(dataset)
    from torchvision import datasets

    for part, train in ((data.train, True), (data.test, False)):
        theirs = getattr(datasets, name)(ROOT, train=train)
        assert np.array_equal(part.context[:, 0], theirs.data.numpy())
        assert np.array_equal(part.label, theirs.targets.numpy())
