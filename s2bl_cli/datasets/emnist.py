"""EMNIST (Cohen et al. 2017): images of handwritten characters, 28×28. The paper uses the split `mnist`.

As in the official files and in torchvision, images are transposed.
"""

from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.datasets.mnist_family import load_idx_family
from s2bl_cli.datasets.settings import DatasetSettings

_CLASSES = {"mnist": 10, "digits": 10, "letters": 26, "balanced": 47, "bymerge": 47, "byclass": 62}


def load(settings: DatasetSettings) -> LabelledData:
    split = settings.emnist_split
    prefixes = (f"emnist-{split}-train", f"emnist-{split}-test")
    first_label = 1 if split == "letters" else 0  # the official labels of letters start at 1
    return load_idx_family(settings, f"EMNIST ({split})", "EMNIST", prefixes, _CLASSES[split], first_label)
