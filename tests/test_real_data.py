"""The real files, where there are some: S2BL_DATA names a folder as --data-dir takes it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.datasets import cifar10, fmnist, mnist
from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.datasets.settings import DatasetSettings

pytestmark = pytest.mark.real_data

ROOT = os.environ.get("S2BL_DATA", "")


def skip_without(dataset: str) -> None:
    folders = {"fmnist": ["FashionMNIST/raw"], "mnist": ["MNIST/raw"]}.get(
        dataset, ["cifar-10-batches-bin", "cifar-10-batches-py"]
    )
    if not ROOT:
        pytest.skip("S2BL_DATA names no folder with the real data sets")
    if not any((Path(ROOT) / folder).is_dir() for folder in folders):
        pytest.skip(f"S2BL_DATA={ROOT} has no {' or '.join(folders)}")


@pytest.fixture
def real(request: pytest.FixtureRequest) -> Callable[[str], LabelledData]:
    """Loads a data set, or skips the test where its files are not."""

    def load(dataset: str) -> LabelledData:
        skip_without(dataset)
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


# The shares at τ = 1 and τ = 20 of a linear policy after one epoch, with room; far from each other in every data set.
@pytest.mark.parametrize(
    ("dataset", "sure", "flat"),
    [("fmnist", (0.65, 0.85), 0.35), ("mnist", (0.75, 0.95), 0.35), ("cifar10", (0.15, 0.4), 0.15)],
)
def test_logs_of_real_data(
    run: Callable[..., Any], tmp_path: Path, dataset: str, sure: tuple[float, float], flat: float
) -> None:
    """Through the command line: the larger τ, the fewer right draws; the cost is −1 where the draw is right."""
    skip_without(dataset)
    shares = []
    for tau in (1, 20):
        flags = ("--dataset", dataset, "--data-dir", ROOT, "--logging-model", "linear", "--epochs", 1)
        ran = run("make-logs", *flags, "--tau", tau, "--json", "--quiet", "-o", f"{tau}.parquet")
        assert ran.code == 0, ran.stderr
        facts = json.loads(ran.stdout)
        with open_logs([str(tmp_path / f"{tau}.parquet")]) as log:
            arrays = log.read(("action", "propensity", "cost", "label", "split"))
        right = arrays.action == arrays.label
        assert (facts["train"], facts["test"]) == ((~arrays.is_test).sum(), arrays.is_test.sum())
        assert facts["sampled_accuracy"] == pytest.approx(right[arrays.is_test].mean())
        assert np.array_equal(arrays.cost, np.where(right, -1, 0))
        shares.append(facts["sampled_accuracy"])
    assert facts["mean_inverse_propensity"] == pytest.approx(10, rel=0.03)
    assert sure[0] < shares[0] < sure[1]
    assert 0.1 < shares[1] < flat < shares[0]
