"""The embedded sample: 6,000 train and 1,000 test images of FashionMNIST (Xiao, Rasul & Vollgraf 2017, MIT).

It ships inside the wheel; in a checkout it lies in `sample_data/`, whose README tells how it was made.
"""

from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from s2bl_cli.contract.logs.arrays import fixed_binary_view
from s2bl_cli.contract.logs.schema import declared_context
from s2bl_cli.datasets.labelled import LabelledData, LabelledPart
from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.errors import RunError

FILE_NAME = "fmnist-sample.parquet"
CLASSES = 10


def sample_path() -> Path:
    """Where the sample lies: beside the package's code when installed, in `sample_data/` of a checkout."""
    package = Path(str(files("s2bl_cli")))
    for folder in (package / "sample_data", package.parent / "sample_data"):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise RunError(f"the embedded sample {FILE_NAME} is missing from this installation: install s2bl again")


def load(settings: DatasetSettings) -> LabelledData:
    table = pq.read_table(sample_path())
    return LabelledData(settings.short_name, CLASSES, _part(table, "train"), _part(table, "test"))


def _part(table: pa.Table, split: str) -> LabelledPart:
    rows = table.filter(pa.compute.equal(table["split"], split)).combine_chunks()
    spec = declared_context(table.schema.field("context"), FILE_NAME)
    assert spec is not None  # the file is ours, and it says
    pixels = fixed_binary_view(rows["context"].chunk(0), np.dtype(np.uint8))
    return LabelledPart(pixels.reshape(-1, *spec.shape), rows["label"].to_numpy())
