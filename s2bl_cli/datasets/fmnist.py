"""FashionMNIST (Xiao, Rasul & Vollgraf 2017): 60,000 + 10,000 images of 28×28, 10 classes."""

from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.datasets.mnist_family import load_idx_family
from s2bl_cli.datasets.settings import DatasetSettings


def load(settings: DatasetSettings) -> LabelledData:
    return load_idx_family(settings, "FashionMNIST", "FashionMNIST", ("train", "t10k"), classes=10)
