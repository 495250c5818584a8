"""CIFAR-10 (Krizhevsky 2009): 50,000 + 10,000 images of 3×32×32, 10 classes."""

from s2bl_cli.datasets.cifar_files import CifarLayout, CifarSet, load_cifar
from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.datasets.settings import DatasetSettings

CIFAR10 = CifarSet(
    title="CIFAR-10",
    classes=10,
    torchvision_class="CIFAR10",
    binary=CifarLayout("cifar-10-batches-bin", tuple(f"data_batch_{i}.bin" for i in range(1, 6)), ("test_batch.bin",)),
    label_bytes=1,
    pickled=CifarLayout("cifar-10-batches-py", tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",)),
    label_key="labels",
)


def load(settings: DatasetSettings) -> LabelledData:
    return load_cifar(settings, CIFAR10)
