"""CIFAR-100 (Krizhevsky 2009): 50,000 + 10,000 images of 3×32×32, 100 fine classes."""

from s2bl_cli.datasets.cifar_files import CifarLayout, CifarSet, load_cifar
from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.datasets.settings import DatasetSettings

CIFAR100 = CifarSet(
    title="CIFAR-100",
    classes=100,
    torchvision_class="CIFAR100",
    binary=CifarLayout("cifar-100-binary", ("train.bin",), ("test.bin",)),
    label_bytes=2,  # coarse, then fine
    pickled=CifarLayout("cifar-100-python", ("train",), ("test",)),
    label_key="fine_labels",
)


def load(settings: DatasetSettings) -> LabelledData:
    return load_cifar(settings, CIFAR100)
