"""The embedded sample: 6,000 train and 1,000 test images of FashionMNIST (Xiao, Rasul & Vollgraf 2017, MIT).

It ships with the wheel. In a checkout it is in `sample_data/`, whose README describes how it was made.
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
    """Path of the sample: inside the installed package, or in `sample_data/` of a checkout."""
    package = Path(str(files("s2bl_cli")))
    for folder in (package / "sample_data", package.parent / "sample_data"):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise RunError(f"the embedded sample {FILE_NAME} is missing from this installation: reinstall s2bl")


def load(settings: DatasetSettings) -> LabelledData:
    table = pq.read_table(sample_path())
    return LabelledData(settings.short_name, CLASSES, _read_split(table, "train"), _read_split(table, "test"))


def _read_split(table: pa.Table, split: str) -> LabelledPart:
    rows = table.filter(pa.compute.equal(table["split"], split)).combine_chunks()
    spec = declared_context(table.schema.field("context"), FILE_NAME)
    assert spec is not None  # rebuild.py declares it
    pixels = fixed_binary_view(rows["context"].chunk(0), np.dtype(np.uint8))
    return LabelledPart(pixels.reshape(-1, *spec.shape), rows["label"].to_numpy())
